"""Models whose embedding multiplies its rows by a constant: packed, saved, loaded, unpacked; and those left alone."""

import copy
import pickle

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    XGLMConfig,
    XGLMForCausalLM,
)

from tests.models import tiny
from tilepress.models import compress_folder, compress_model
from tilepress.models.registration import unpack_layers
from tilepress.nn import PackedEmbedding, TiedLinear
from tilepress.tiles import unpack

TYPES = [torch.float32, torch.bfloat16]
RECIPE = {"weights": {"format": "int8:row"}}


def xglm():
    sizes = {"d_model": 96, "ffn_dim": 128, "num_layers": 2, "attention_heads": 4, "max_position_embeddings": 64}
    return XGLMForCausalLM(XGLMConfig(vocab_size=tiny.VOCABULARY, init_std=0.2, dropout=0.0, **sizes))


FAMILIES = {"gemma3": tiny.gemma3, "xglm": xglm}


def saved(family, folder, dtype):
    torch.manual_seed(0)
    FAMILIES[family]().eval().to(dtype).save_pretrained(folder)
    return folder


def rows_and_logits(model):
    with torch.no_grad():
        return model.get_input_embeddings()(tiny.windows()), model(tiny.windows()).logits


def assert_same(first, second):
    assert all(map(torch.equal, rows_and_logits(first), rows_and_logits(second)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_packed_with_their_output_layer(family, dtype, tmp_path):
    folder = saved(family, tmp_path / "model", dtype)
    model = compress_model(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), RECIPE)
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert isinstance(table, PackedEmbedding) and isinstance(head, TiedLinear) and head.matrix is table.matrix
    dense = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        dense.get_input_embeddings().weight.copy_(unpack(table.matrix, dtype))
    assert torch.equal(rows_and_logits(model)[0], rows_and_logits(dense)[0])
    unpacked = unpack_layers(copy.deepcopy(model), dtype)
    assert type(unpacked.get_input_embeddings()) is type(dense.get_input_embeddings())
    assert torch.equal(rows_and_logits(unpacked)[0], rows_and_logits(dense)[0])
    logits, expected = rows_and_logits(model)[1], rows_and_logits(unpacked)[1]
    assert (logits - expected).norm() < (1e-3 if dtype == torch.float32 else 2e-2) * expected.norm()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_folders_copies_and_pickles_compute_the_same(family, dtype, tmp_path):
    folder = saved(family, tmp_path / "model", dtype)
    tiny.tokenizer().save_pretrained(folder)
    outcome = compress_folder(str(folder), tmp_path / "out", RECIPE)
    assert outcome.layers[-1].tied == "lm_head" and outcome.share.embeddings <= 64 * 96  # positions of none or few
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=dtype)
    assert_same(loaded, compress_model(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), RECIPE))
    assert_same(loaded, pickle.loads(pickle.dumps(loaded)))
    assert_same(loaded, copy.deepcopy(loaded))
    loaded.save_pretrained(tmp_path / "again")
    assert_same(loaded, AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype=dtype))


def test_a_dequantised_model_is_saved_and_loaded_as_an_ordinary_one(tmp_path):
    model = compress_model(tiny.make("gemma3"), RECIPE)
    before = rows_and_logits(model)[0]
    model.hf_quantizer.dequantize(model).save_pretrained(tmp_path / "plain")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert torch.equal(rows_and_logits(plain)[0], before)


def test_a_table_whose_weight_the_models_code_reads_stays():
    sizes = {"head_dim": 16, "global_head_dim": 16, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}
    model = Gemma4ForCausalLM(Gemma4TextConfig(**tiny.GATED | sizes, layer_types=["full_attention"] * 3)).eval()
    compress_model(model, RECIPE)
    why = model.config.quantization_config.dense["model.embed_tokens"]
    assert why == "Gemma4TextScaledWordEmbedding is no plain lookup of rows"


def test_a_table_that_encoder_and_decoder_share_stays():
    sizes = {f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    model = BartForConditionalGeneration(BartConfig(vocab_size=tiny.VOCABULARY, d_model=64, **sizes)).eval()
    compress_model(model, RECIPE)
    assert type(model.get_input_embeddings()).__name__ == "BartScaledWordEmbedding"
