"""Many recipes or designs: a grid of points, computed here, in several processes, or on a Ray cluster."""

from .batch import Batch, SweepError
from .executor import Executor, InProcess
from .front import front, places
from .grid import Grid, GridError, read_grid
from .local import LocalExecutor, local_executor
from .on_ray import RayExecutor, ray_executor
from .studies import STUDIES, Study
from .sweeping import Swept, sweep

__all__ = [
    "STUDIES", "Batch", "Executor", "Grid", "GridError", "InProcess", "LocalExecutor", "RayExecutor", "Study",
    "SweepError", "Swept", "front", "local_executor", "places", "ray_executor", "read_grid", "sweep",
]  # fmt: skip
