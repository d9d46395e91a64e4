"""The Roof-Surface model: memory, vector and matrix units together bound how fast compressed weights are multiplied."""

from .bord import Bord, bord
from .decompressors import Deca, Decompressor, Libxsmm, Nothing, bubbles, parse_decompressor, tile_bytes
from .domains import FRONT_END, MATRIX, MEMORY, VECTOR, Bound, bound, bounds
from .model import Prediction, expected_time, predict, row_tiles
from .ranks import Cut, Step, check_ranks, one_process, step
from .search import POWERS_OF_TWO, Design, Space, Swept, designs, smallest, sweep

__all__ = [
    "FRONT_END", "MATRIX", "MEMORY", "POWERS_OF_TWO", "VECTOR", "Bord", "Bound", "Cut", "Deca", "Decompressor",
    "Design", "Libxsmm", "Nothing", "Prediction", "Space", "Step", "Swept", "bord", "bound", "bounds", "bubbles",
    "check_ranks", "designs", "expected_time", "one_process", "parse_decompressor", "predict", "row_tiles", "smallest",
    "step", "sweep", "tile_bytes",
]  # fmt: skip
