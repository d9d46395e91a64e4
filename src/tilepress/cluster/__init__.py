"""Where work runs: here, in several processes of this machine, or on a Ray cluster.

`compress_over` is imported when it is first used: the others need no torch.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .batch import Batch, ClusterError
from .executor import Executor, InProcess
from .local import LocalExecutor, local_executor
from .on_ray import RayExecutor, ray_executor

if _TYPE_CHECKING:
    from .compressing import compress_over

__all__ = [
    "Batch", "ClusterError", "Executor", "InProcess", "LocalExecutor", "RayExecutor", "compress_over", "local_executor",
    "ray_executor",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name == "compress_over":
        from .compressing import compress_over

        return compress_over
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
