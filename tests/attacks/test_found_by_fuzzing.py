"""Files that `make fuzz` found to end in a traceback: each is refused in one line now."""

import json

import pytest
from tests.models import tiny

from tilepress.models import ModelUnavailableError, load_model, read_recipe
from tilepress.models.recipe import RecipeError


def test_a_recipe_with_a_number_of_thousands_of_digits(tmp_path):
    (tmp_path / "r.toml").write_text(f"[calibration]\nseed = {'9' * 5000}\n")
    with pytest.raises(RecipeError, match=r"r\.toml is not TOML: Exceeds the limit \(4300 digits\)"):
        read_recipe(tmp_path / "r.toml")


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
