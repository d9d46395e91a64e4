"""Anda's mantissas for a model: what combinations of them cost on calibration text, and the search for the best."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .._files import write_text
from ..compression.search import Found, Mantissas, Products, Step, brute_force, search
from ..formats import Anda, AndaSearch
from ..nn import with_activations
from .tensor_types import LayerType, layer_formats

CHUNK = 256  # positions whose logits are widened at once


class EvaluationsError(ValueError):
    """A file of evaluations that belongs to something else."""


class Evaluations:
    """Perplexities by combination, written to the file `path` as soon as they are there, so that a search that was
    interrupted goes on, and another tolerance asks only for what is new. `job`: all that they depend on."""

    def __init__(self, path: Path | None = None, job: Mapping[str, Any] | None = None) -> None:
        self._path, self._job = path, json.loads(json.dumps(job or {}))
        self._known = self._read()

    def get(self, mantissas: Mantissas | None) -> float | None:
        return self._known.get(_key(mantissas))

    def put(self, mantissas: Mantissas | None, perplexity: float) -> None:
        self._known[_key(mantissas)] = perplexity
        if self._path is not None:
            write_text(self._path, json.dumps({"job": self._job, "perplexities": self._known}, indent=1))

    def _read(self) -> dict[str, float]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            stored = json.loads(self._path.read_text())
            job, known = stored["job"], {str(key): float(value) for key, value in stored["perplexities"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EvaluationsError(f"{self._path} is not what a search left: delete it, or move it away") from error
        if job != self._job:
            raise EvaluationsError(
                f"{self._path} holds evaluations of another model, recipe, text or version: delete it, or choose "
                "another output"
            )
        return known


@dataclass
class Judge:
    """Perplexity of `model` on `windows` [sequences, length] with the activations of layers rounded by `types`, groups
    of `group`. Each combination is computed once."""

    model: nn.Module
    types: Mapping[str, LayerType]
    windows: Tensor
    group: int
    evaluations: Evaluations
    batch: int = 1
    progress: Callable[[int, int], None] = lambda done, total: None

    def __call__(self, mantissas: Mantissas | None) -> float:
        known = self.evaluations.get(mantissas)
        if known is None:
            known = self._compute(mantissas)
            self.evaluations.put(mantissas, known)
        return known

    def conduct(self, search: Callable[..., Found], track: Callable[[Step], None]) -> Found:
        """What `search` finds with these perplexities."""
        return search(self, track=track)

    def _compute(self, mantissas: Mantissas | None) -> float:
        formats = {} if mantissas is None else layer_formats(self.types, Anda(mantissas, self.group))
        with with_activations(self.model, formats):
            return window_perplexity(self.model, self.windows, self.batch, self.progress)


class Conductor(Protocol):
    """A `Judge`, or one that others work for."""

    def conduct(self, search: Callable[..., Found], track: Callable[[Step], None]) -> Found: ...


@dataclass(frozen=True)
class Precision:
    """The `result` of a search that took so many `seconds`; `optimum`: that of brute force, where it was asked for."""

    result: Found
    format: Anda
    seconds: float
    optimum: Found | None = None


def find_precision(
    judge: Conductor,
    products: Products,
    request: AndaSearch,
    *,
    prove: bool = False,
    track: Callable[[Step], None] = lambda _: None,
) -> Precision:
    """Anda's search on a model; `prove`: then by brute force too."""
    start = time.monotonic()
    tolerance = request.tolerance
    result = judge.conduct(partial(search, products=products, tolerance=tolerance), track)
    seconds = time.monotonic() - start
    optimum = None
    if prove:
        least = min(4, *result.mantissas)
        optimum = judge.conduct(partial(brute_force, products=products, tolerance=tolerance, least=least), track)
    return Precision(result, Anda(result.mantissas, request.group), seconds, optimum)


def window_perplexity(
    model: nn.Module, windows: Tensor, batch: int = 1, progress: Callable[[int, int], None] = lambda done, total: None
) -> float:
    """exp of the mean loss of every token of `windows` [sequences, length] but the first of each; inf where it is
    beyond float64's, NaN where the model gives none."""
    if windows.ndim != 2 or not len(windows) or windows.shape[1] < 2:
        raise ValueError(f"windows are [sequences, length] of at least one and two tokens, not {list(windows.shape)}")
    device = next(iter(model.parameters())).device
    total, rows = 0.0, torch.split(windows, batch)
    with torch.inference_mode():
        for done, part in enumerate(rows, 1):
            tokens = part.to(device)
            logits: Tensor = model(input_ids=tokens, use_cache=False).logits
            total += float(_loss(logits[:, :-1], tokens[:, 1:]))
            progress(done, len(rows))
    mean = total / (windows.shape[0] * (windows.shape[1] - 1))
    return math.exp(mean) if mean < 709 else mean if math.isnan(mean) else math.inf


def fingerprint(windows: Tensor) -> str:
    return hashlib.sha256(windows.numpy().tobytes()).hexdigest()


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum of −log p in nats, float64; few positions at a time, since logits are large."""
    parts = []
    for start in range(0, logits.shape[1], CHUNK):
        wide = logits[:, start : start + CHUNK].float()
        picked = wide.gather(-1, targets[:, start : start + CHUNK, None])[..., 0]
        parts.append((wide.logsumexp(-1) - picked).double().sum())
    return torch.stack(parts).sum()


def _key(mantissas: Mantissas | None) -> str:
    return "fp" if mantissas is None else ",".join(map(str, mantissas))
