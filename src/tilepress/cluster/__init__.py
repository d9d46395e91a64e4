"""Where work runs: here, in several processes of this machine, or on a Ray cluster."""

from .batch import Batch, ClusterError
from .executor import Executor, InProcess
from .local import LocalExecutor, local_executor
from .on_ray import RayExecutor, ray_executor

__all__ = [
    "Batch", "ClusterError", "Executor", "InProcess", "LocalExecutor", "RayExecutor", "local_executor", "ray_executor",
]  # fmt: skip
