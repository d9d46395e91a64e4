"""Whole models in llama.cpp, through the library that comes with llama-cpp-python (extra `peers`)."""

import ctypes
import importlib
import time
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._files import replacing
from ..models.gguf.folder import gguf_folder
from ..models.loading import say
from .peers import LlamaCppPeer
from .shapes import Shape

KINDS = {"Q4_0": 2, "Q8_0": 7}  # of llama_ftype
CACHES = {"q8_0": 8, "q4_0": 2}  # of ggml_type


def refusal() -> str | None:
    """Why llama.cpp is no honest peer here, or None."""
    reason = LlamaCppPeer().refusal(Shape(32, 32))
    if reason is not None:
        return reason
    try:
        _library()
    except (ImportError, OSError, RuntimeError) as error:
        return f"llama-cpp-python does not load: {error}"
    return None


def requantized(path: Path, kind: str) -> Path:
    """The GGUF file `path` with its weights in Q4_0 or Q8_0, made on first use, in that file's folder in the cache."""
    made = gguf_folder(path, say) / f"{kind}.gguf"
    if not made.exists():
        with replacing(made) as beside:
            _requantize(path, beside, kind)
    return made


def _requantize(source: Path, target: Path, kind: str) -> None:
    parameters = _library().llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = KINDS[kind], True
    if _library().llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)):
        raise RuntimeError(f"llama.cpp could not make {kind} of {source}")


@lru_cache(maxsize=1)
def _library() -> Any:
    """llama.cpp's own functions, silenced; imported by name, since it may be missing."""
    library = importlib.import_module("llama_cpp.llama_cpp")
    library.llama_log_set(_SILENCE, None)
    library.llama_backend_init()
    return library


_SILENCE = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)


class LlamaCppWriter:
    """The model in a GGUF file; the likeliest token is taken, as `generate` does without sampling.

    Args:
        cache: one of CACHES for keys and values, which llama.cpp takes with flash attention only; FP16 if None.
    """

    def __init__(self, path: Path, threads: int, cache: str | None = None) -> None:
        self.threads, self.cache = threads, cache
        self.model = _library().llama_model_load_from_file(bytes(path), _library().llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        weakref.finalize(self, _library().llama_model_free, self.model)
        self.bytes_read: int = _library().llama_model_size(self.model)
        if cache is not None:
            self._check_cache(cache)

    def _check_cache(self, cache: str) -> None:
        """RuntimeError where llama.cpp has no such cache for the model, whose heads its groups of 32 must divide."""
        try:
            _library().llama_free(self._context(1, 32, 32))
        except RuntimeError as error:
            raise RuntimeError(f"llama.cpp makes no cache in {cache} for this model") from error

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        return self.continued(prompt, tokens)[1]

    def continued(self, prompt: Tensor, tokens: int) -> tuple[Tensor, list[float]]:
        """The new tokens [batch, tokens], and the times of `Writer.write`."""
        batch, length = prompt.shape
        context = self._context(batch, length, tokens)
        try:
            times, tokens_so_far = [time.perf_counter()], [self._step(context, prompt, 0)]
            times.append(time.perf_counter())
            for position in range(length, length + tokens - 1):
                tokens_so_far.append(self._step(context, tokens_so_far[-1], position))
                times.append(time.perf_counter())
        finally:
            _library().llama_free(context)
        return torch.cat(tokens_so_far, dim=1), times

    def _context(self, batch: int, length: int, tokens: int) -> Any:
        parameters = _library().llama_context_default_params()
        parameters.n_ctx = batch * (length + tokens)
        parameters.n_batch = batch * length
        parameters.n_seq_max = batch
        parameters.n_threads = parameters.n_threads_batch = self.threads
        if self.cache is not None:
            parameters.type_k = parameters.type_v = CACHES[self.cache]
            parameters.flash_attn_type = _library().LLAMA_FLASH_ATTN_TYPE_ENABLED
        context = _library().llama_init_from_model(self.model, parameters)
        if not context:
            raise RuntimeError(f"llama.cpp has no memory for {batch} sequences of {length + tokens} tokens")
        return context

    def _step(self, context: Any, tokens: Tensor, position: int) -> Tensor:
        """The likeliest next token, [batch, 1], of each row of `tokens` [batch, count], which begins at `position`."""
        count = tokens.shape[1]
        filled = self._batch(tokens, position)
        failed = _library().llama_decode(context, filled)
        _library().llama_batch_free(filled)
        if failed:
            raise RuntimeError(f"llama.cpp failed to decode ({failed})")
        last = range(count - 1, tokens.numel(), count)
        return torch.tensor([[self._likeliest(context, index)] for index in last])

    def _batch(self, tokens: Tensor, position: int) -> Any:
        count = tokens.shape[1]
        filled = _library().llama_batch_init(tokens.numel(), 0, 1)
        filled.n_tokens = tokens.numel()
        for index, token in enumerate(tokens.flatten().tolist()):
            filled.token[index], filled.pos[index] = token, position + index % count
            filled.n_seq_id[index], filled.seq_id[index][0] = 1, index // count
            filled.logits[index] = index % count == count - 1
        return filled

    def _likeliest(self, context: Any, index: int) -> int:
        logits = _library().llama_get_logits_ith(context, index)
        vocabulary = _library().llama_vocab_n_tokens(_library().llama_model_get_vocab(self.model))
        return int(np.ctypeslib.as_array(logits, (vocabulary,)).argmax())
