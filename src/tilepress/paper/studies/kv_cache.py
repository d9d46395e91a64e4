"""A model under KV caches: what the studies of Harmonia's and SparAMX' papers are made of."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from torch import Tensor
from transformers.utils import logging

from ...evaluate import Accuracy, Divergence, Estimate, Question, Windowing, accuracy, beginning, read_task, tokenize
from ...evaluate.kv_studies import Cache, Setting, judge
from ...evaluate.retrieval import retrieval
from ...formats.kv import is_folded, parse_kv
from ...models import ModelUnavailableError, read_recipe
from ...models.calibration import token_windows
from ...models.smoothing import SmoothingError, check_smoothing, learn_before_rotation, smooth_model
from ...models.study_model import StudyModel, load_study_model
from ...models.texts import TextUnavailableError
from ..item import NotPossible, Track
from .activations import parts_of


@dataclass(frozen=True)
class Sizes:
    """`windows` of `tokens` to check on, `batch` of them at once; `sequences` of `length` to learn scales on, in
    `steps`."""

    windows: int = 1
    tokens: int = 256
    batch: int = 1
    sequences: int = 2
    length: int = 128
    steps: int = 8


@dataclass(frozen=True, eq=False)
class KvStudy:
    """A model, and a text: cut in a part to learn scales on and one to check on."""

    subject: StudyModel
    learned: str
    checked: str
    sizes: Sizes
    _smoothed: dict[tuple[str, str], Any] = field(default_factory=dict)

    def judge(self, settings: Sequence[Setting], track: Track, what: str, tokens: int = 0) -> list[Divergence]:
        """Each setting against halves in the cache and activations as they are, in windows of `tokens`."""
        sizes = self.sizes
        smoothed = {one: self.smoothed(one, track) for one in settings if is_folded(one.smoothing)}
        windowing = Windowing(tokens or sizes.tokens, limit=sizes.windows, batch=sizes.batch, begin=self.begin)
        track_settings = partial(_under, track, what)
        judged = judge(self.subject.model, self.tokens, settings, windowing, track_settings, smoothed=smoothed)
        return [judged[setting] for setting in settings]

    def retrieval(self, setting: Setting, tokens: int, items: int, track: Track) -> Estimate:
        smoothed = {setting: self.smoothed(setting, track)} if is_folded(setting.smoothing) else {}
        subject, what = self.subject, f"facts in {tokens} tokens"
        ask = partial(retrieval, subject.model, subject.tokenizer, setting, tokens, items, self.sizes.batch)
        return ask(track=partial(_under, track, what), smoothed=smoothed)

    def accuracy(self, cache: Cache, task: str, items: int, track: Track) -> Accuracy:
        """Of the model with that cache, on the first `items` of a task."""
        questions = _questions(task)[:items]
        tokenizer, what = self.subject.tokenizer, f"{task}, {cache}"
        model = self.smoothed(cache, track) if is_folded(cache.smoothing) else self.subject.model
        with cache.emulated(model):
            return accuracy(model, tokenizer, questions, self.sizes.batch, partial(_under, track, what))

    @cached_property
    def tokens(self) -> Tensor:
        return tokenize(self.subject.tokenizer, self.checked)

    @property
    def begin(self) -> int | None:
        """The token that windows begin with."""
        return beginning(self.subject.tokenizer)

    @cached_property
    def calibration(self) -> Tensor:
        """[sequences, length] of tokens."""
        tokens = tokenize(self.subject.tokenizer, self.learned)
        return token_windows(tokens, self.sizes.sequences, self.sizes.length, seed=0, begin=self.begin)

    @cached_property
    def unfoldable(self) -> str:
        """Why no scales can be folded into the model's weights; empty where they can."""
        try:
            check_smoothing(self.subject.model)
        except SmoothingError as error:
            return str(error)
        return ""

    def smoothed(self, setting: Setting, track: Track) -> Any:
        """The model with scales for that cache folded into its weights; learned once for each format."""
        assert isinstance(setting, Cache)
        key = (str(parse_kv(setting.format)), setting.smoothing)
        if key not in self._smoothed:
            model = deepcopy(self.subject.model)
            what = f"{setting.smoothing} scales"
            smooth_model(model, self.calibration, *key, partial(_under, track, what), steps=self.sizes.steps)
            self._smoothed[key] = model
        return self._smoothed[key]

    def scales_before_rotation(self, format: str, track: Track) -> dict[str, Tensor]:
        under = partial(_under, track, "scales before rotation")
        return learn_before_rotation(self.subject.model, self.calibration, format, under, steps=self.sizes.steps)


def _under(track: Track, what: str, sequence: Sequence[Any]) -> Iterable[Any]:
    return track(sequence, what)


def _questions(task: str) -> list[Question]:
    """NotPossible where the task is not here."""
    try:
        return read_task(task)
    except TextUnavailableError as error:
        raise NotPossible(str(error)) from error


def load_kv_study(model: str, weights: str, text: str, device: str, sizes: Sizes) -> KvStudy:
    """`weights`: a format that they are compressed to first, or "" to leave them as they come. NotPossible where the
    model or the text is not here."""
    logging.disable_progress_bar()  # ours is enough
    try:
        learned = Sizes(sequences=sizes.sequences, length=sizes.length, steps=sizes.steps)
        return replace(_study(model, weights, text, device, learned), sizes=sizes)
    except (TextUnavailableError, ModelUnavailableError) as error:
        raise NotPossible(str(error)) from error


@lru_cache(maxsize=2)
def _study(model: str, weights: str, text: str, device: str, sizes: Sizes) -> KvStudy:
    """With the sizes that scales depend on, so that studies of one run share what is learned."""
    return KvStudy(_subject(model, weights, device), *parts_of(text), sizes)


@lru_cache(maxsize=2)
def _subject(model: str, weights: str, device: str) -> StudyModel:
    return load_study_model(model, read_recipe({"weights": {"format": weights}}) if weights else None, device)
