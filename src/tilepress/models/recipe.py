"""What to do to a model: a recipe, read from TOML, that says everything and refuses what it does not know."""

import copy
import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from .._bounded import UnreadableError, read_bounded_text
from ..compression import WeightPlan
from ..compression.plan import ColumnOrder, Prune, Quantize, Target
from ..compression.prune import PruneScope
from ..formats import AndaSearch, Integer, WeightFormat, parse_activations, parse_weight
from ..formats.kv import Smoothing, is_folded, parse_kv
from .blocks import pattern
from .tensor_types import LayerType

Grid = Literal["new", "source"]
KEEP, COMPRESS = "keep", "compress"
LARGEST = 256_000  # bytes of a recipe; one with an override for each of 1,000 layers has 80,000
MOST_DOTS = 32  # of a line
MOST_NAMES = 12  # that an error lists

# Recipes that have a name: what a paper sets, whole.
NAMED: dict[str, dict[str, Any]] = {
    "harmonia": {
        "weights": {"format": "int4:g32"},
        "activations": {"format": "bfp:g32:m8"},
        "kv_cache": {"format": "bfp4", "smoothing": "hybrid"},
        "calibration": {"sequences": 8},
    },
}


class RecipeError(ValueError):
    """A recipe that cannot be followed; the message names the key."""


def _weight_format(name: str) -> str:
    return str(parse_weight(name))


def _activation_format(name: str) -> str:
    return str(parse_activations(name))


def _kv_format(name: str) -> str:
    return name if name == "model" else str(parse_kv(name))


def _format_or_keep(name: str) -> str:
    return name if name == KEEP else _weight_format(name)


def _format_or_word(name: str) -> str:
    return name if name == COMPRESS else _format_or_keep(name)


FormatName = Annotated[str, AfterValidator(_weight_format)]
Steps = Annotated[int, Field(ge=0)]
Density = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Override(_Section):
    """Another format or density for the layers whose full name fits the pattern `match`, "*.down_proj" say."""

    match: str
    format: FormatName | None = None
    density: Density | None = None


class Weights(_Section):
    """How weights are stored, which are not zero (`density`, 1 is all) and how codes are chosen; see
    `compression.WeightPlan`.

    embedding: format of the table of token embeddings, or keep; its weights are rounded to nearest, and none is
    dropped. lm_head, the layer that gives logits: keep, compress like all other layers, or a format of its own. Where
    a model has one weight for both, `keep` and the embedding's own format keep it so: packed once for both.
    grid "source": with the codes and scales that another tool has chosen, see `importing`; no other key counts then.
    reconstruct, heal: steps of training afterwards, of each block and of the whole model; see the modules of that name.
    """

    format: FormatName = "int4:g32"
    density: Density = 1.0
    prune: Prune = "magnitude"
    prune_scope: PruneScope = "row"
    quantize: Quantize = "rtn"
    clip_search: bool = True
    column_order: ColumnOrder = "activation"
    refit: bool = True
    target: Target = "layer"
    embedding: Annotated[str, AfterValidator(_format_or_keep)] = "int8:row"
    lm_head: Annotated[str, AfterValidator(_format_or_word)] = KEEP
    grid: Grid = "new"
    reconstruct: Steps = 0
    heal: Steps = 0
    override: tuple[Override, ...] = ()


class Activations(_Section):
    """What the inputs of packed layers are rounded to: see `formats.activations`. `types`: which of Anda's tensor types
    layers take whose names we do not know, see `tensor_types`."""

    format: Annotated[str, AfterValidator(_activation_format)] = "fp"
    types: dict[str, LayerType] = {}

    @property
    def search(self) -> AndaSearch | None:
        """The search that is still to be done, if any."""
        format = parse_activations(self.format)
        return format if isinstance(format, AndaSearch) else None


class KvCacheRecipe(_Section):
    """What `generate` stores keys and values in: as the model has them, or as `formats.kv` says. `smoothing` of keys:
    offline folds scales into weights, see `smoothing`; online subtracts offsets, see `tilepress.kv_cache`; hybrid does
    both."""

    format: Annotated[str, AfterValidator(_kv_format)] = "model"
    smoothing: Smoothing = "none"

    @model_validator(mode="after")
    def _is_possible(self) -> "KvCacheRecipe":
        if self.smoothing != "none" and (self.format == "model" or parse_kv(self.format).bfp is None):
            raise ValueError(f"smoothing is for caches in block floating point, and the format is {self.format}")
        if is_folded(self.smoothing) and parse_kv(self.format).rotated:
            raise ValueError(
                f"{self.smoothing} smoothing is for keys that are not rotated, and the format is {self.format}: leave "
                "rotate out, or take smoothing none or online"
            )
        return self


class Calibration(_Section):
    """`sequences` windows of `length` tokens of `text`, chosen by `seed`. The text: see `texts.calibration_text`."""

    text: str | None = None
    sequences: Annotated[int, Field(ge=0)] = 128
    length: Annotated[int, Field(ge=1)] = 512
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Recipe(_Section):
    """What becomes of a model's weights, activations and KV cache, and what text it is calibrated with."""

    weights: Weights = Weights()
    activations: Activations = Activations()
    kv_cache: KvCacheRecipe = KvCacheRecipe()
    calibration: Calibration = Calibration()

    @model_validator(mode="after")
    def _is_possible(self) -> "Recipe":
        _refuse_float_weights_under_integers(self)
        if self.weights.target == "dense" and not self.needs_drift:
            raise ValueError(
                'weights.target "dense" goes with a method that makes up for errors: quantize gptq or learned-clip, or '
                "prune sparsegpt and a density below 1"
            )
        if self.looks_at_text and not self.calibration.sequences:
            raise ValueError(
                f"{self.looking} looks at calibration inputs, and calibration.sequences is 0: set it to 128, say"
            )
        return self

    @property
    def needs_calibration(self) -> bool:
        """Whether a method that looks at inputs has something to do."""
        return self.folds_scales or self._weights_need_statistics or self.weights.reconstruct > 0

    @property
    def folds_scales(self) -> bool:
        """Whether keys are smoothed by weights."""
        return is_folded(self.kv_cache.smoothing)

    @property
    def looking(self) -> str:
        """What it is that looks at the calibration text, if `looks_at_text`."""
        if self._weights_need_statistics:
            return self.weights.quantize if self.weights.quantize != "rtn" else self.weights.prune
        if self.weights.reconstruct or self.weights.heal:
            return "reconstruct" if self.weights.reconstruct else "heal"
        return f"{self.kv_cache.smoothing} smoothing" if self.folds_scales else self.activations.format

    @property
    def _weights_need_statistics(self) -> bool:
        return any(plan.needs_statistics for plan in self._plans)

    @property
    def looks_at_text(self) -> bool:
        """Whether there is something to do for which the calibration text is read."""
        return self.needs_calibration or self.weights.heal > 0 or self.activations.search is not None

    @property
    def needs_hessian(self) -> bool:
        """Whether norms of inputs are not enough."""
        return any(plan.needs_hessian for plan in self._plans)

    @property
    def needs_dense_stream(self) -> bool:
        """Whether a method aims for what the model gave before it was compressed; see `hidden_states`."""
        return self.needs_drift or self.weights.reconstruct > 0

    @property
    def needs_drift(self) -> bool:
        """Whether layers' inputs are compared with those in the dense model."""
        return any(plan.needs_drift for plan in self._plans)

    @property
    def _plans(self) -> list[WeightPlan]:
        return [self._plan(()), *(self._plan((override,)) for override in self.weights.override)]

    def plan(self, layer: str) -> WeightPlan:
        """What becomes of the layer of that name; of several overrides that match it, the last counts."""
        return self._plan([override for override in self.weights.override if fnmatchcase(layer, override.match)])

    def plan_of_output(self, layer: str) -> WeightPlan:
        """What becomes of the output layer, where the recipe packs it by itself."""
        if self.weights.lm_head == COMPRESS:
            return self.plan(layer)
        return WeightPlan(parse_weight(self.weights.lm_head))

    @property
    def plan_of_embedding(self) -> WeightPlan | None:
        """What becomes of the embedding; None where it stays as it is."""
        return None if self.weights.embedding == KEEP else WeightPlan(parse_weight(self.weights.embedding))

    def ties(self, is_tied: bool) -> bool:
        """Whether the output layer takes the embedding's packed matrix; `is_tied`: they have one weight."""
        return is_tied and self.weights.embedding != KEEP and self.weights.lm_head in (KEEP, self.weights.embedding)

    def check_overrides(self, layers: Collection[str], left_output: str | None = None) -> None:
        """RecipeError where an override fits none of `layers`, which are compressed by it; `left_output` is the output
        layer where it is not."""
        for number, override in enumerate(self.weights.override):
            if not any(fnmatchcase(layer, override.match) for layer in layers):
                misfit = _unfitting(override.match, layers, left_output, self.weights.lm_head)
                raise RecipeError(f"weights.override[{number}].match: {misfit}")

    def _plan(self, overrides: Sequence[Override]) -> WeightPlan:
        weights = self.weights
        format, density = weights.format, weights.density
        for override in overrides:
            format, density = override.format or format, override.density or density
        methods = ("prune", "prune_scope", "quantize", "clip_search", "column_order", "refit", "target")
        return WeightPlan(parse_weight(format), density, **{method: getattr(weights, method) for method in methods})


def read_recipe(source: "Recipe | Mapping[str, Any] | str | Path") -> Recipe:
    """A recipe as it is, from nested mappings, from a TOML file, or of a name; RecipeError names the key that is
    wrong."""
    if isinstance(source, Recipe):
        return source
    where = "the recipe" if isinstance(source, Mapping) else str(source)
    try:
        return Recipe.model_validate(source if isinstance(source, Mapping) else read_toml(source))
    except ValidationError as error:
        raise RecipeError(f"{where}: {'; '.join(map(_in_words, error.errors()))}") from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """What the file says; a name of `NAMED` where there is no such file."""
    if str(path) in NAMED and not Path(path).exists():
        return copy.deepcopy(NAMED[str(path)])
    try:
        text = read_bounded_text(path, LARGEST)
    except UnreadableError as error:
        raise RecipeError(f"{path} cannot be read: {error}") from error
    return parse_toml(text, path)


def parse_toml(text: str, source: object) -> dict[str, Any]:
    """What the text says; a RecipeError names its `source`."""
    try:
        if len(text) > LARGEST:
            raise UnreadableError(f"it has more than {LARGEST} characters")
        _refuse_deep_keys(text)
        return tomllib.loads(text)
    except UnreadableError as error:
        raise RecipeError(f"{source} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # Python's own ValueError of numbers with thousands of digits
        raise RecipeError(f"{source} is not TOML: {error}") from error


def _refuse_deep_keys(text: str) -> None:
    """Parsing a key a.b.c… takes time by the square of its parts. A key is on one line, so dots bound its parts."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise UnreadableError(f"line {number} has more than {MOST_DOTS} dots: divide it into several")


def to_toml(recipe: Recipe) -> str:
    """The recipe as a file that `read_recipe` reads; what is as it is anyway is left out, but not the formats."""
    stated = recipe.model_dump(mode="json", exclude_defaults=True)
    for section in ("weights", "activations"):
        stated[section] = {"format": getattr(recipe, section).format, **stated.get(section, {})}
    return tomli_w.dumps(dict(sorted(stated.items())))


def _unfitting(match: str, layers: Collection[str], left_output: str | None, lm_head: str) -> str:
    if left_output is not None and fnmatchcase(left_output, match):
        does = "leaves as it is" if lm_head == KEEP else "gives its format"
        return f'{match!r} fits only {left_output}, which weights.lm_head "{lm_head}" {does}: set it to "compress"'
    names = sorted({pattern(layer) for layer in layers})
    near = get_close_matches(match, names, n=1, cutoff=0.0)[0]
    listing = ", ".join(names[:MOST_NAMES]) + (" …" if len(names) > MOST_NAMES else "")
    return f"{match!r} fits no layer; did you mean {near!r}? There are {listing}"


def _refuse_float_weights_under_integers(recipe: Recipe) -> None:
    if recipe.activations.format in ("fp", "bf16"):
        return
    named = {"weights.format": recipe.weights.format}
    named |= {} if recipe.weights.lm_head in (KEEP, COMPRESS) else {"weights.lm_head": recipe.weights.lm_head}
    named |= {f"weights.override[{i}].format": o.format for i, o in enumerate(recipe.weights.override) if o.format}
    for key, format in named.items():
        if not _takes_integers(parse_weight(format)):
            raise ValueError(
                f"activations.format {recipe.activations.format} wants integer weights, and {key} is {format}: "
                "take int4:g32 or int8:row, say, or activations fp; `tilepress eval --acts` judges them on any weights"
            )


def _takes_integers(format: WeightFormat) -> bool:
    """As `kernels.linear` will see it."""
    return isinstance(format.element, Integer) and format.operand_bits == 8


def _in_words(error: Any) -> str:
    """One error of pydantic: the key with its section, and what is wrong with it."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        near = get_close_matches(str(error["loc"][-1]), _known_keys(error["loc"][:-1]), n=1)
        return f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else "")
    message = error["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def _known_keys(section: tuple[str | int, ...]) -> list[str]:
    model: Any = Recipe
    for part in section:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            model = next((a for a in get_args(annotation) if isinstance(a, type)), annotation)
    return list(model.model_fields)
