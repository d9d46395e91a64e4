"""A model under formats of activations: what the studies of Anda's and Harmonia's papers are made of."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from transformers.utils import logging

from ...compression.search import LIMIT, Found, relative_loss, search
from ...evaluate import Windowing, beginning, tokenize
from ...evaluate.precision import BASELINES, FP16, Cost, Scheme, compare_schemes
from ...formats import Anda
from ...models import ModelUnavailableError, read_recipe
from ...models.calibration import token_windows
from ...models.precision import Evaluations, Judge
from ...models.study_model import StudyModel, load_study_model
from ...models.texts import TextUnavailableError, read_text
from ..item import NotPossible, Track

# Where a text has a part for training, that is searched on; else the first half of it, and the second is for checking.
TRAINING = {"wikitext2": "wikitext2-train"}


@dataclass(frozen=True)
class Sizes:
    """`windows` of `tokens` to check on; `sequences` of `length` to search on; `batch` of either at once."""

    windows: int = 1
    tokens: int = 256
    sequences: int = 2
    length: int = 128
    batch: int = 1


@dataclass(frozen=True)
class ActivationStudy:
    """A model with activations as they are, and a text: cut in a part to search on and one to check on."""

    subject: StudyModel
    searched: str
    checked: str
    sizes: Sizes

    def losses(self, formats: Sequence[Anda], track: Track, what: str) -> list[float]:
        """Per cent of perplexity that each format loses against FP16 on the part to check on."""
        schemes = [FP16, *(Scheme(str(format), format) for format in formats)]
        return [100 * cost.loss for cost in self.costs(schemes, track, what)][1:]

    def costs(self, schemes: Iterable[Scheme], track: Track, what: str) -> list[Cost]:
        subject, sizes = self.subject, self.sizes
        tokens = tokenize(subject.tokenizer, self.checked)
        begin = beginning(subject.tokenizer)
        windowing = Windowing(window=sizes.tokens, limit=sizes.windows, batch=sizes.batch, begin=begin)
        compare = partial(compare_schemes, subject.model, subject.types, subject.products, tokens)
        # One scheme after another: the first is what the rest are compared with.
        costs: list[Cost] = []
        for scheme in track(list(schemes), what):
            (cost,) = compare([scheme], windowing)
            first = costs[0] if costs else cost
            loss = relative_loss(cost.perplexity.perplexity.value, first.perplexity.perplexity.value)
            costs.append(Cost(scheme, cost.perplexity, loss, cost.saving))
        return costs

    def search(self, tolerance: float, track: Track) -> Found:
        """Anda's search on the part to search on; what another tolerance asked for is not computed again."""
        steps = iter(track(range(LIMIT), f"searching within {100 * tolerance:g} %"))
        return search(_judge(self), self.subject.products, tolerance, track=lambda _: next(steps, None))

    def search_seconds(self, tolerance: float, track: Track) -> float:
        """What the search takes when nothing is known before."""
        _judge.cache_clear()
        start = time.monotonic()
        self.search(tolerance, track)
        return time.monotonic() - start


def table_schemes(searches: Iterable[Found], group: int = 64) -> list[Scheme]:
    """The rows of a table like Anda's: FP16 and the baselines, then what searches found."""
    ours = [Scheme(f"Anda {100 * one.tolerance:g} %", Anda(one.mantissas, group)) for one in searches]
    return [*BASELINES, *ours]


def gptq_seconds(model: str, text: str, sizes: Sizes) -> float:
    """What GPTQ takes to give a model int4:g128 weights, calibrated with the windows that a search would see."""
    calibration = {"text": TRAINING.get(text, text), "sequences": sizes.sequences, "length": sizes.length}
    recipe = {"weights": {"format": "int4:g128", "quantize": "gptq"}, "calibration": calibration}
    seconds = load_study_model(model, read_recipe(recipe)).seconds
    assert seconds is not None
    return seconds


def load_study(model: str, weights: str, quantize: str, text: str, device: str, sizes: Sizes) -> ActivationStudy:
    """`weights`: a format that they are compressed to first, or "" to leave them as they come. NotPossible where the
    model or the text is not here."""
    logging.disable_progress_bar()  # ours is enough
    try:
        searched, checked = parts_of(text)
        return ActivationStudy(_subject(model, weights, quantize, device), searched, checked, sizes)
    except (TextUnavailableError, ModelUnavailableError) as error:
        raise NotPossible(str(error)) from error


def parts_of(text: str) -> tuple[str, str]:
    """What of a text is searched or learned on, and what it is checked on."""
    whole = read_text(text)
    if text in TRAINING:
        return read_text(TRAINING[text]), whole
    middle = whole.find("\n", len(whole) // 2) + 1 or len(whole) // 2
    return whole[:middle], whole[middle:]


@lru_cache(maxsize=1)
def _subject(model: str, weights: str, quantize: str, device: str) -> StudyModel:
    recipe = read_recipe({"weights": {"format": weights, "quantize": quantize}}) if weights else None
    return load_study_model(model, recipe, device)


@lru_cache(maxsize=4)
def _judge(study: ActivationStudy) -> Judge:
    subject, sizes = study.subject, study.sizes
    tokens = tokenize(subject.tokenizer, study.searched)
    windows = token_windows(tokens, sizes.sequences, sizes.length, seed=0, begin=beginning(subject.tokenizer))
    return Judge(subject.model, subject.types, windows, 64, Evaluations(), sizes.batch)
