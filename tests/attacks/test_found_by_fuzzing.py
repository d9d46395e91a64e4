"""Files that `make fuzz` found to end in a traceback: each is refused in one line now."""

import json

import pytest
from tests.models import tiny
from tests.models.gguf_files import write_gguf

from tilepress.models import ModelUnavailableError, load_model, model_folder, read_recipe
from tilepress.models.recipe import RecipeError


def test_a_recipe_with_a_number_of_thousands_of_digits(tmp_path):
    (tmp_path / "r.toml").write_text(f"[calibration]\nseed = {'9' * 5000}\n")
    with pytest.raises(RecipeError, match=r"r\.toml is not TOML: Exceeds the limit \(4300 digits\)"):
        read_recipe(tmp_path / "r.toml")


@pytest.mark.parametrize("length", [b"\x20\x40\0\0", b"\x20\0\1\0"])
def test_a_gguf_file_that_describes_more_than_it_holds(tmp_path, monkeypatch, length):
    """transformers made gigabytes of random numbers of 45 kB before it compared shapes."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("too late"))
    write_gguf(tmp_path / "toy.gguf")
    key = b"llama.embedding_length\4\0\0\0"
    before, after = (tmp_path / "toy.gguf").read_bytes().split(key)
    (tmp_path / "toy.gguf").write_bytes(before + key + length + after[4:])
    with pytest.raises(ModelUnavailableError, match=r"metadata of toy\.gguf describe .* million weights"):
        model_folder(str(tmp_path / "toy.gguf"), announce=lambda _: None)


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        ("config.json", "rms_norm_eps", -256, "transformers cannot read .*/config.json: "),
        ("config.json", "num_attention_heads", -14, "transformers cannot read .*/config.json: "),
        ("tokenizer.json", "normalizer", 7, "holds no tokenizer that transformers can read: "),
        ("tokenizer_config.json", "unk_token", {}, "holds no tokenizer that transformers can read: "),
        ("tokenizer_config.json", "tokenizer_class", 7, "holds no tokenizer that transformers can read: "),
    ],
)
def test_values_of_other_types_in_a_model_folder(tmp_path, file, key, value, message):
    folder, _ = tiny.save(tmp_path / "model", num_hidden_layers=1)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | {key: value}))
    with pytest.raises(ModelUnavailableError, match=message) as error:
        load_model(str(folder))
    assert "\n" not in str(error.value)
