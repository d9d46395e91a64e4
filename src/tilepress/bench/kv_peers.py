"""Other people's small KV caches around the same model, to be measured beside ours.

transformers' quantized caches, which unpack all of it for every token, and llama.cpp's, which attend to blocks of eight
and four bits. What cannot be had here is refused with the reason.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import QuantizedCache

from ..models import load_model
from ..models.checkpoint_checks import NOTHING, Allowed
from ..records import Labels
from . import llama_cpp_model
from .model import Entrant, TransformersWriter

WEIGHTS = "Q4_0"  # of llama.cpp: its caches are measured around one kind


@dataclass(frozen=True)
class Quantized:
    """A backend of transformers' `QuantizedCache`, with what it takes beside the model's configuration."""

    name: str
    backend: str
    package: str
    options: tuple[tuple[str, int], ...]

    def make(self, config: Any) -> Any:
        return QuantizedCache(self.backend, config, **dict(self.options))

    def refusal(self, config: Any) -> str | None:
        """Why there can be none of it here, or None."""
        try:
            self.make(config)
        except ImportError:
            return f"it needs {self.package}, which is not installed"
        except (TypeError, ValueError) as error:
            return f"transformers refuses it: {error}"
        return None


QUANTIZED = (
    Quantized("quanto int4", "quanto", "optimum-quanto", (("nbits", 4),)),
    Quantized("hqq int4", "hqq", "hqq", (("nbits", 4), ("axis_key", 1), ("axis_value", 1))),
    Quantized("hqq int8", "hqq", "hqq", (("nbits", 8), ("axis_key", 1), ("axis_value", 1))),
)


def quantized_caches(
    base: str, config: Any, dtype: torch.dtype, nbytes: int, allowed: Allowed = NOTHING
) -> tuple[list[Entrant], dict[str, str]]:
    """transformers with each of its quantized caches around the model called `base`; peer → why it is refused."""
    entrants, refused = [], {}
    for cache in QUANTIZED:
        library = f"transformers {str(dtype).removeprefix('torch.')}"
        name, labels = f"{library}, kv {cache.name}", Labels(library=library, kv=cache.name)
        reason = cache.refusal(config)
        if reason is None:
            load = partial(_load, base, dtype, partial(cache.make, config), allowed)
            entrants.append(Entrant(name, nbytes, load, labels=labels))
        else:
            refused[name] = reason
    return entrants, refused


def llama_cpp_caches(path: Path) -> list[Entrant]:
    """llama.cpp with each of its small caches around the model in a GGUF file."""
    return [_llama_cpp_cache(path, kind) for kind in llama_cpp_model.CACHES]


def _llama_cpp_cache(path: Path, kind: str) -> Entrant:
    library, size = f"llama.cpp {WEIGHTS}", 2 * path.stat().st_size
    labels, load = Labels(library=library, kv=kind), partial(_load_llama_cpp, path, kind)
    return Entrant(f"{library}, kv {kind}", size, load, pool="ggml", labels=labels)


def _load(base: str, dtype: torch.dtype, make: Callable[[], Any], allowed: Allowed, threads: int) -> TransformersWriter:
    return TransformersWriter(load_model(base, dtype=dtype, **asdict(allowed)).model, make)


def _load_llama_cpp(path: Path, kind: str, threads: int) -> llama_cpp_model.LlamaCppWriter:
    return llama_cpp_model.LlamaCppWriter(llama_cpp_model.requantized(path, WEIGHTS), threads, kind)
