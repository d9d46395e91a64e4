"""What a recipe says, and what it refuses by name."""

import pytest

from tilepress.formats import AndaSearch, parse_weight
from tilepress.models import Recipe, RecipeError, read_recipe
from tilepress.models.recipe import to_toml

EXAMPLE = """
[weights]
format = "int4:g32"
density = 0.5
prune = "wanda"
quantize = "gptq"
lm_head = "compress"

[[weights.override]]
match = "*.down_proj"
format = "int8:row"

[[weights.override]]
match = "model.layers.0.*"
density = 1.0

[activations]
format = "bfp:g32:m8"

[kv_cache]
format = "fp16"

[calibration]
text = "some.txt"
sequences = 16
length = 256
seed = 3
"""


def test_a_recipe_from_toml(tmp_path):
    (tmp_path / "r.toml").write_text(EXAMPLE)
    recipe = read_recipe(tmp_path / "r.toml")
    assert recipe.weights.lm_head == "compress" and recipe.calibration.sequences == 16
    assert recipe.activations.format == "bfp:g32:m8"
    assert recipe.needs_calibration and recipe.needs_hessian
    assert read_recipe(recipe) is recipe
    assert read_recipe(recipe.model_dump(mode="json")) == recipe


def test_overrides_by_name(tmp_path):
    (tmp_path / "r.toml").write_text(EXAMPLE)
    recipe = read_recipe(tmp_path / "r.toml")
    plans = {name: recipe.plan(f"model.layers.{name}") for name in ("1.q_proj", "1.down_proj", "0.down_proj")}
    assert [str(plan.format) for plan in plans.values()] == ["int4:g32", "int8:row", "int8:row"]
    assert [plan.density for plan in plans.values()] == [0.5, 0.5, 1.0]
    assert plans["1.q_proj"].prune == "wanda" and plans["1.q_proj"].quantize == "gptq"


def test_the_default_needs_no_calibration():
    recipe = Recipe()
    assert not recipe.needs_calibration and recipe.activations.format == "fp"
    assert recipe.plan("any").format == parse_weight("int4:g32")


@pytest.mark.parametrize(
    ("weights", "calibration", "hessian"),
    [
        ({"prune": "wanda"}, False, False),  # nothing is pruned
        ({"prune": "wanda", "density": 0.5}, True, False),
        ({"prune": "sparsegpt", "density": 0.5}, True, True),
        ({"prune": "wanda", "override": [{"match": "*", "density": 0.5}]}, True, False),
        ({"quantize": "gptq"}, True, True),
        ({"quantize": "learned-clip"}, True, True),
    ],
)
def test_what_a_recipe_needs(weights, calibration, hessian):
    recipe = read_recipe({"weights": weights})
    assert (recipe.needs_calibration, recipe.needs_hessian) == (calibration, hessian)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"weigths": {}}, "unknown key weigths; did you mean weights?"),
        ({"weights": {"densty": 0.5}}, "unknown key weights.densty; did you mean density?"),
        ({"weights": {"override": [{"match": "*", "prune": "wanda"}]}}, "unknown key weights.override.0.prune"),
        ({"weights": {"format": "int44:g32"}}, "weights.format: unknown format 'int44:g32'; did you mean 'int4:g32'?"),
        ({"weights": {"density": 0}}, "weights.density: Input should be greater than 0"),
        ({"weights": {"density": 1.5}}, "weights.density: Input should be less than or equal to 1"),
        ({"weights": {"prune": "wander"}}, "weights.prune: Input should be 'magnitude', 'wanda' or 'sparsegpt'"),
        ({"weights": {"override": [{"density": 0.5}]}}, "weights.override.0.match: Field required"),
        ({"weights": {"prune": "wanda", "prune_scope": "layer"}}, "prune_scope 'layer' goes with prune 'magnitude'"),
        ({"weights": {"format": "bf16", "quantize": "learned-clip"}}, "learned-clip trains the scales of groups"),
        ({"activations": {"format": "anda:7,7,6"}}, "activations.format: 'anda:7,7,6': Anda's mantissas are four"),
        ({"activations": {"format": "anda:17,7,6,5"}}, "activations.format: 'anda:17,7,6,5': BFP mantissa must be an"),
        ({"activations": {"format": "float"}}, "activations that stay as they are are written fp"),
        (
            {"activations": {"types": {"*.wi": "up"}}},
            "activations.types.*.wi: Input should be 'qkv', 'o', 'u', 'd' or 'fp'",
        ),
        (
            {"weights": {"format": "mxfp4"}, "activations": {"format": "anda:1%"}},
            "anda:1% wants integer weights, and weights.format is mxfp4: take int4:g32 or int8:row, say, or "
            "activations fp; `tilepress eval --acts` judges them on any weights",
        ),
        (
            {"activations": {"format": "anda:1%"}, "calibration": {"sequences": 0}},
            "anda:1% looks at calibration inputs, and calibration.sequences is 0",
        ),
        ({"activations": {"format": "bfp:g32:m17"}}, "BFP mantissa must be an int from 1 to 16, got 17; did you mean"),
        (
            {"weights": {"format": "mxfp4"}, "activations": {"format": "int8"}},
            "activations.format int8 wants integer weights, and weights.format is mxfp4",
        ),
        (
            {
                "weights": {"override": [{"match": "*", "format": "bf16"}]},
                "activations": {"format": "bfp:g32:m8"},
            },
            "activations.format bfp:g32:m8 wants integer weights, and weights.override[0].format is bf16",
        ),
        ({"kv_cache": {"format": "bfp5"}}, "kv_cache.format: 'bfp5' is no cache format"),
        (
            {"kv_cache": {"smoothing": "some"}},
            "kv_cache.smoothing: Input should be 'none', 'offline', 'online' or 'hybrid'",
        ),
        (
            {"kv_cache": {"format": "fp16", "smoothing": "online"}},
            "kv_cache: smoothing is for caches in block floating point, and the format is fp16",
        ),
        (
            {"kv_cache": {"format": "bf16", "smoothing": "offline"}},
            "kv_cache: smoothing is for caches in block floating point, and the format is bf16",
        ),
        (
            {"kv_cache": {"format": "bfp4", "smoothing": "hybrid"}, "calibration": {"sequences": 0}},
            "hybrid smoothing looks at calibration inputs, and calibration.sequences is 0",
        ),
        (
            {"weights": {"quantize": "gptq"}, "calibration": {"sequences": 0}},
            "gptq looks at calibration inputs, and calibration.sequences is 0",
        ),
        ({"weights": {"column_order": "best"}}, "weights.column_order: Input should be 'input' or 'activation'"),
        ({"weights": {"clip_search": "maybe"}}, "weights.clip_search: Input should be a valid boolean"),
        (
            {"weights": {"target": "dense"}},
            'weights.target "dense" goes with a method that makes up for errors: quantize gptq or',
        ),
        ({"calibration": {"length": 0}}, "calibration.length: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_refused_by_name(recipe, message):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe)
    assert str(error.value).startswith("the recipe: ") and message in str(error.value)


def test_errors_name_the_file(tmp_path):
    (tmp_path / "r.toml").write_text("[weights]\nformat = 'int4'")
    with pytest.raises(RecipeError, match=r"r.toml: weights.format: 'int4': int4 needs a scale"):
        read_recipe(tmp_path / "r.toml")
    (tmp_path / "r.toml").write_text("weights = [")
    with pytest.raises(RecipeError, match=r"r.toml is not TOML"):
        read_recipe(tmp_path / "r.toml")
    with pytest.raises(OSError, match="nowhere"):
        read_recipe(tmp_path / "nowhere.toml")


def test_activations_by_tensor_type():
    recipe = read_recipe({"activations": {"format": "anda:G64:7,7,6,5", "types": {"*.wi": "u", "*.router": "fp"}}})
    assert recipe.activations.format == "anda:7,7,6,5" and recipe.activations.search is None
    assert not recipe.looks_at_text
    assert read_recipe(recipe.model_dump(mode="json")) == recipe


def test_mantissas_to_be_found():
    recipe = read_recipe({"activations": {"format": "anda:g32:0.5%"}})
    assert recipe.activations.search == AndaSearch(0.005, 32)
    assert recipe.looks_at_text and not recipe.needs_calibration


def test_a_recipe_written_is_the_one_read(tmp_path):
    (tmp_path / "r.toml").write_text(EXAMPLE)
    recipe = read_recipe(tmp_path / "r.toml")
    types = {"activations": {"format": "anda:7,7,6,5", "types": {'*.ü"x': "u", "router": "fp"}}}
    for one in (recipe, Recipe(), read_recipe(types)):
        (tmp_path / "again.toml").write_text(to_toml(one), "utf-8")
        assert read_recipe(tmp_path / "again.toml") == one
    assert '[activations]\nformat = "fp"' in to_toml(Recipe())
