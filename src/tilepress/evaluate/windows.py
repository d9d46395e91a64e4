"""How a text is cut into the windows that a model sees at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from transformers import PreTrainedModel

USUAL_WINDOW = 2048
T = TypeVar("T")

# Goes through a sequence as `iter` does; a progress bar's `track` goes through it too.
Track = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Windowing:
    """`window` tokens at once (2048, or what the model takes if that is less), each starting `stride` after the one
    before (as far as it is long), only the first `limit`, `batch` of them in one call. Each begins with the token
    `begin`, beside those of the text, if there is one."""

    window: int | None = None
    stride: int | None = None
    limit: int | None = None
    batch: int = 1
    begin: int | None = None


@dataclass(frozen=True)
class Window:
    """The tokens from `start` to before `stop`, after the token `begin` if there is one. The last `scored` of them
    count; those before are their context."""

    start: int
    stop: int
    scored: int
    begin: int | None = None


def plan(count: int, windowing: Windowing, *models: PreTrainedModel) -> list[Sequence[Window]]:
    """The windows over `count` tokens in batches of equal shape, such that each of `models` takes them."""
    length = window_length(windowing.window, models) - (windowing.begin is not None)
    stride = windowing.stride or length
    if stride > length:
        raise ValueError(f"a stride of {stride} would skip tokens between windows of {length}; give {length} or less")
    windows = list(cut(count, length, stride, windowing.begin))[: windowing.limit]
    by_length = groupby(windows, key=lambda window: (window.stop - window.start, window.scored))
    return [batch for _, group in by_length for batch in batches(list(group), windowing.batch)]


def cut(count: int, length: int, stride: int, begin: int | None = None) -> Iterator[Window]:
    """Windows over all of `count` tokens, the last one shorter where they do not come out even.

    Every token counts once, except those with nothing before them in their window: the first of the text, and the first
    of each window where windows do not overlap. With `begin` in each window there are none such.
    """
    counted, without = 0, int(begin is None)
    for start in range(0, count, stride):
        stop = min(start + length, count)
        if scored := stop - max(counted, start + without):
            yield Window(start, stop, scored, begin)
        if stop == count:
            return
        counted = stop


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def window_length(requested: int | None, models: Sequence[PreTrainedModel]) -> int:
    """`requested` tokens, or the usual number; ValueError where one of `models` does not take so many."""
    limits = [getattr(model.config, "max_position_embeddings", None) for model in models]
    limit = min((limit for limit in limits if limit), default=None)
    if requested is None:
        return min(USUAL_WINDOW, limit or USUAL_WINDOW)
    if requested < 2:
        raise ValueError(f"a window of {requested} has no token with another before it; give 2 or more")
    if limit and requested > limit:
        raise ValueError(f"the model takes {limit} tokens at once, not a window of {requested}; give {limit} or less")
    return requested
