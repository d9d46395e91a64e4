import json

import pytest

from tilepress.simulate.layers import TRANSFORMERS, find_transformer, from_config

PARAMETERS = {  # billions, with the embedding once; from the models' cards
    "opt-1.3b": 1.3, "opt-6.7b": 6.6, "opt-30b": 29.9, "llama-7b": 6.6, "llama-65b": 65.0, "llama2-70b": 68.7,
    "llama3.1-8b": 7.5, "llama3.2-1b": 1.24, "llama3.2-3b": 3.2, "mistral-7b": 7.1, "smollm2-135m": 0.135,
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.parametrize("name, billions", PARAMETERS.items())
def test_models_have_their_size(name, billions):
    assert TRANSFORMERS[name].weights == pytest.approx(billions * 1e9, rel=0.02)


def test_opt_weights_its_types_3_1_4_4():
    assert [count / 2048**2 for count in TRANSFORMERS["opt-1.3b"].products] == [3, 1, 4, 4]


@pytest.mark.parametrize("name", ["LLaMA2-7B", "llama-2-7b", "Llama_2_7B"])
def test_names_as_people_write_them(name):
    assert find_transformer(name).name == "Llama2-7B"


def test_a_configuration_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = find_transformer(str(tmp_path))
    assert model.head_size == 16 and model.kv_width == 32
    assert model.matrices == ((64, 64), (32, 64), (32, 64), (64, 64), (96, 64), (96, 64), (64, 96))
    assert from_config({**CONFIG, "head_dim": 32}, "wide", "here").width == 128


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": "mamba"}, "no layer table for models of type 'mamba'"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "big"}, "hidden_size is no whole number: 'big'"),
        ({"num_hidden_layers": 0}, "layers is at least 1, not 0"),
        ({"head_dim": "128"}, "head_dim is no whole number: '128'"),
        ({"head_dim": -1}, "head_size is at least 1, not -1"),
        ({"num_key_value_heads": 3}, "4 heads do not share 3 of keys"),
    ],
)
def test_what_is_wrong_with_a_configuration(change, message):
    with pytest.raises(ValueError, match=message):
        from_config({**CONFIG, **change}, "mine", "mine.json")


def test_unknown_models_and_files(tmp_path):
    with pytest.raises(ValueError, match=r"no model 'llama-3b'; did you mean llama-"):
        find_transformer("llama-3b")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        find_transformer(str(tmp_path))
    with pytest.raises(ValueError, match="cannot be read"):
        find_transformer(str(tmp_path / "other.json"))
