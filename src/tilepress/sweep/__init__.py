"""Many recipes or designs: a grid of points, computed by a `cluster`'s executor, into a folder of records."""

from .folder import SweepError
from .front import front, places
from .grid import Grid, GridError, read_grid
from .studies import STUDIES, Study
from .sweeping import Swept, sweep

__all__ = ["STUDIES", "Grid", "GridError", "Study", "SweepError", "Swept", "front", "places", "read_grid", "sweep"]
