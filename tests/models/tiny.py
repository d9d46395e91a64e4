"""Models of every family we promise, small and random, and a tokenizer that knows a few words."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tilepress.tiles import unpack

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.2,  # random logits, but far enough apart for equal choices
}
GATED = {**SIZES, "intermediate_size": 128, "num_key_value_heads": 2}


def llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**{**GATED, "tie_word_embeddings": True, **changes}))


def mistral():
    return MistralForCausalLM(MistralConfig(**GATED, sliding_window=8))


def qwen2():
    # Biases, and attention that differs from layer to layer.
    return Qwen2ForCausalLM(Qwen2Config(**GATED, use_sliding_window=True, sliding_window=8, max_window_layers=1))


def opt():
    # Linear layers outside the blocks: the embedding is narrower than the blocks.
    return OPTForCausalLM(OPTConfig(**{**SIZES, "init_std": 0.2}, ffn_dim=128, word_embed_proj_dim=32, dropout=0.0))


def gemma3(**changes):
    # An embedding that multiplies its rows, by a number that bfloat16 must round; normalised queries and keys.
    sizes = {"hidden_size": 96, "head_dim": 16, "sliding_window": 8}
    return Gemma3ForCausalLM(Gemma3TextConfig(**{**GATED, **sizes, **changes}))


def gpt_neox():
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, intermediate_size=128))


FAMILIES = {"llama": llama, "mistral": mistral, "qwen2": qwen2, "opt": opt, "gemma3": gemma3, "gpt_neox": gpt_neox}


def make(family, **changes):
    torch.manual_seed(0)
    return FAMILIES[family](**changes).eval()


def dense_layer(layer):
    """An ordinary layer with the weights that a packed one stands for."""
    dense = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
    dense.weight.data = unpack(layer.matrix)
    if layer.bias is not None:
        dense.bias.data = layer.bias.float()
    return dense.requires_grad_(False)


def windows(sequences=6, length=16):
    return torch.randint(3, VOCABULARY, (sequences, length), generator=torch.Generator().manual_seed(1))


def tokenizer():
    words = ["<pad>", "<bos>", "<eos>", *(f"w{number}" for number in range(3, VOCABULARY))]
    plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="w3"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "w3"}
    return PreTrainedTokenizerFast(tokenizer_object=plain, **names)


def text(words=400):
    numbers = torch.randint(3, VOCABULARY, (words,), generator=torch.Generator().manual_seed(2))
    return " ".join(f"w{number}" for number in numbers.tolist())


def save(folder, family="llama", **changes):
    """A folder with a model and a tokenizer, and beside it a text to calibrate with: (folder, text file)."""
    make(family, **changes).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    path = folder.parent / "text.txt"
    path.write_text(text())
    return folder, path
