"""Small random models, and a tokenizer with tokens of several bytes."""

import json

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


GOALS = ["Boil an egg" + ", and another" * count for count in range(5)]
DATA = """
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/eggs.jsonl}, cache_dir: FOLDER/cache}
test_split: test
doc_to_text: "Question: {{goal}}\\nAnswer:"
"""
CHOICE = """
task: eggs
output_type: multiple_choice
doc_to_target: label
doc_to_choice: ["in water", "in a bag"]
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
GENERATION = """
task: answers
output_type: generate_until
doc_to_target: "in water"
generation_kwargs: {until: ["?"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match}]
"""


def write_lm_eval_tasks(folder):
    """Two tasks of lm-eval on GOALS: "eggs", whose answers are 0 and 1 in turn, and "answers", freely written."""
    items = [{"goal": goal, "label": number % 2} for number, goal in enumerate(GOALS)]
    (folder / "eggs.jsonl").write_text("\n".join(map(json.dumps, items)))
    for name, task in (("eggs", CHOICE), ("answers", GENERATION)):
        (folder / f"{name}.yaml").write_text(task + DATA.replace("FOLDER", str(folder)))
    return folder
