"""Encoders, and models that read one text and write another: compressed, though tilepress does not run them."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

from tests.models import tiny
from tilepress.models import ModelUnavailableError, compress_folder, compress_model, load_model
from tilepress.models.registration import packed_layers

WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}


def bert():
    return BertForMaskedLM(BertConfig(vocab_size=tiny.VOCABULARY, max_position_embeddings=64, **WIDTHS))


def t5():
    return T5ForConditionalGeneration(T5Config(vocab_size=tiny.VOCABULARY, **T5))


def logits(model):
    tokens = tiny.windows(2)
    options = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=tokens, **options).logits


@pytest.mark.parametrize("quantize", ["rtn", "gptq"])
@pytest.mark.parametrize("make", [bert, t5])
def test_in_folders_and_in_memory(make, quantize, tmp_path):
    torch.manual_seed(0)
    model = make().eval()
    before = logits(model)
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny.text())
    calibration = {"text": str(tmp_path / "text.txt"), "sequences": 4, "length": 16}
    recipe = {"weights": {"format": "int8:g32", "quantize": quantize}, "calibration": calibration}
    said = []
    outcome = compress_folder(str(tmp_path / "model"), tmp_path / "out", recipe, announce=said.append)
    loaded = type(model).from_pretrained(tmp_path / "out").eval()
    packed = logits(loaded)
    assert said == [] and len(outcome.layers) == len(list(packed_layers(loaded)))
    assert 0 < (packed - before).norm() < 0.1 * before.norm()
    compress_model(model, recipe, tokenizer=tiny.tokenizer(), announce=said.append)
    assert torch.equal(logits(model), packed)
    assert f"import AutoTokenizer, {type(model).__name__}" in (tmp_path / "out/README.md").read_text()
    with pytest.raises(ModelUnavailableError, match="which does not write text token after token"):
        load_model(str(tmp_path / "out"))  # to be run by tilepress
