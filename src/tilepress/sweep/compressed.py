"""A model compressed by a recipe: its size, and what it lost."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from ..models.recipe import Recipe, read_recipe
from .studies import Figure, Part, StudyPoint

if TYPE_CHECKING:
    from ..evaluate import Divergence, Estimate, Perplexity

Section = dict[str, Any]


class Evaluation(Part):
    """As of `tilepress eval`; `against`: whether to measure the divergence from the model as it came."""

    data: str | None = None
    window: int | None = Field(default=None, ge=2)
    windows: int | None = Field(default=None, ge=1)
    against: bool = True


class Point(StudyPoint):
    """`weights` to `calibration`: the sections of a recipe."""

    model: str
    eval: Evaluation = Evaluation()
    weights: Section = Field(default_factory=dict)
    activations: Section = Field(default_factory=dict)
    kv_cache: Section = Field(default_factory=dict)
    calibration: Section = Field(default_factory=dict)

    @cached_property
    def recipe(self) -> Recipe:
        sections = self.model_dump(include={"weights", "activations", "kv_cache", "calibration"})
        return read_recipe(sections)

    @model_validator(mode="after")
    def _is_possible(self) -> "Point":
        assert self.recipe
        return self

    def figures(self) -> Iterator[Figure]:
        """The compressed folder is a temporary one."""
        from transformers.utils import logging

        from ..models import compress_folder

        logging.disable_progress_bar()
        with TemporaryDirectory() as folder:
            outcome = compress_folder(self.model, Path(folder) / "model", self.recipe, announce=_silently)
            yield Figure("source_size", outcome.source_bytes, "B", "measured")
            yield Figure("size", outcome.nbytes, "B", "measured")
            yield Figure("bits_per_weight", outcome.bits_per_weight, "bit", "measured")
            yield from self._quality(str(outcome.folder))

    def _quality(self, folder: str) -> Iterator[Figure]:
        from ..evaluate import Windowing, beginning, divergence, in_engine, perplexity, tokenize
        from ..models import load_model
        from ..models.texts import evaluation_text

        name, text = evaluation_text(self.eval.data)
        loaded = load_model(folder, announce=_silently)
        tokens, begin = tokenize(loaded.tokenizer, text), beginning(loaded.tokenizer)
        windowing = Windowing(self.eval.window, limit=self.eval.windows, begin=begin)
        model = in_engine(loaded.model)
        if not self.eval.against:
            return (yield from _perplexity(perplexity(model, tokens, windowing), name))
        reference = in_engine(load_model(self.model, announce=_silently).model)
        yield from _divergence(divergence(model, reference, tokens, windowing), name)


def _silently(text: str) -> None:
    pass


def _divergence(measured: "Divergence", text: str) -> Iterator[Figure]:
    yield from _perplexity(measured.model, text)
    yield from _with_error("reference_perplexity", measured.reference.perplexity, "", text)
    yield from _with_error("perplexity_ratio", measured.ratio, "", text)
    yield from _with_error("kl_divergence", measured.kl, "nat", text)
    yield from _with_error("same_top1", measured.same_top, "", text)


def _perplexity(measured: "Perplexity", text: str) -> Iterator[Figure]:
    yield from _with_error("perplexity", measured.perplexity, "", text)


def _with_error(metric: str, estimate: "Estimate", unit: str, text: str) -> Iterator[Figure]:
    yield Figure(metric, estimate.value, unit, "measured", {"text": text})
    yield Figure(metric, estimate.error, unit, "measured", {"text": text, "statistic": "standard_error"})
