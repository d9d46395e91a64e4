"""The object that a worker keeps, on whatever machine."""

import platform
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
import transformers

from .. import __version__
from ..compression.threads import one_thread
from .batch import ClusterError
from .work import reason


def versions() -> dict[str, str]:
    """All that bytes depend on, but for the machine's kind."""
    return {"tilepress": __version__, "torch": torch.__version__, "transformers": transformers.__version__}


class Host:
    """Each operation of torch has one thread; the object's own parallelism has `threads`, if not as many as usual."""

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)

    def start(self, expected: Mapping[str, str], function: str, arguments: tuple[Any, ...]) -> None:
        """ClusterError, which names the machine, where the object cannot be made here."""
        _refuse_versions(expected)
        module, _, name = function.partition(":")
        try:
            with torch.no_grad(), one_thread():
                self._object = getattr(import_module(module), name)(*arguments)
        except Exception as error:  # whatever it is, the machine is to be named
            raise ClusterError(f"{platform.node()}: {reason(error)}") from error

    def call(self, method: str, *arguments: Any) -> Any:
        with torch.no_grad(), one_thread():
            return getattr(self._object, method)(*arguments)


def _refuse_versions(expected: Mapping[str, str]) -> None:
    for name, here in versions().items():
        if here != expected[name]:
            raise ClusterError(
                f"{platform.node()} has {name} {here}, and the command was started with {expected[name]}: install the "
                "same version on every machine"
            )
