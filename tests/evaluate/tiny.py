"""Small random models, and a tokenizer with tokens of several bytes."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from tilepress.models import texts

SIZES = {"vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2, max_position_embeddings=128)
    ),
    "opt": lambda: OPTForCausalLM(OPTConfig(**SIZES, ffn_dim=64, max_position_embeddings=128, word_embed_proj_dim=32)),
    "gpt-neox": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(**SIZES, intermediate_size=64, max_position_embeddings=128, attention_dropout=0.0)
    ),
}


def tiny_model(family="llama", seed=0):
    """A model whose predictions are far from uniform, as those of a trained one are."""
    torch.manual_seed(seed)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.normal_(std=0.3)
    return model


def tiny_tokenizer(bos=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZES["vocab_size"],
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator([texts.read_text("pydoc")[:20_000]], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
