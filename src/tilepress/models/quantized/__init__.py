"""Checkpoints that other tools have quantised, read with the codes and scales that they have.

One file per scheme; `open_checkpoint` recognises it by the model's `quantization_config`. `docs/checkpoints.md` says
which grids our formats hold to the bit.
"""

from .checkpoint import BESIDE, METHODS, QuantizedShards, is_readable, open_checkpoint
from .layer import Held, SourceWeight, Unheld

__all__ = [
    "BESIDE", "METHODS", "Held", "QuantizedShards", "SourceWeight", "Unheld", "is_readable", "open_checkpoint",
]  # fmt: skip
