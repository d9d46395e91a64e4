"""Recipes: `tilepress.models.read_recipe` of a TOML file."""

from pathlib import Path

from tests.attacks.fuzz.text_file import TextReader

from tilepress.models.recipe import NAMED, RecipeError, read_recipe

NAME = "recipe.toml"
SAMPLES = (
    '[weights]\nformat = "int4:g32"\ndensity = 0.5\nprune = "wanda"\n'
    '[kv_cache]\nformat = "bfp4"\nsmoothing = "hybrid"\n',
    '[weights]\nformat = "int4:g32"\nlm_head = "compress"\nquantize = "gptq"\nprune_scope = "row"\n'
    '[[weights.override]]\nmatch = "*.down_proj"\nformat = "int8:row"\n[activations]\nformat = "anda:7,7,6,5"\n'
    '[activations.types]\nc_fc = "u"\n[calibration]\ntext = "pydoc"\nsequences = 4\nlength = 16\nseed = 7\n',
    'weights = {format = "mxfp4", override = [{match = "lm_head", density = 1.0}]}\nactivations.format = "fp"\n',
)
WORDS = (
    "weights", "activations", "kv_cache", "calibration", "format", "override", "match", "types", "smoothing", "density",
    *NAMED, "lut4:/dev/zero", "lut2:/", "bfp:g32:m8", "anda:1%", "anda", "sparse:k30,v50", "bfp:m4:hi8:initial1048576",
    "uint4", "g48", "row", "nf4", "mxfp8", "model", "a.a", "[[", "]]", "g99999999999999999999", "+sparse:k1,v99",
)  # fmt: skip


class Reader(TextReader):
    refusals = (RecipeError,)
    name, texts, words, byte_share = NAME, SAMPLES, WORDS, 0.2

    def read(self, folder: Path) -> None:
        recipe = read_recipe(folder / NAME)
        recipe.plan("model.layers.0.mlp.down_proj")
