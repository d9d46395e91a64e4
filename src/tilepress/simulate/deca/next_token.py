"""Time to the next token of a whole model: its GeMMs simulated, the rest by a plain model.

Beside its GeMMs a layer takes a fixed time (norms, rotation, attention's small kernels, threads that wait for each
other), more for each sequence of the batch, and attention reads keys and values of every query head. The constants of
these three are fitted to table 1.
"""

from dataclasses import dataclass

from ...formats import WeightFormat
from ...hardware import Machine
from ..layers import TRANSFORMERS, Transformer
from .parameters import fitted
from .simulation import WEIGHTS, simulate
from .systems import System

CACHE_BYTES = 2  # of a number in the KV cache: 16 bits


LLAMA2_70B, OPT_66B = TRANSFORMERS["llama2-70b"], TRANSFORMERS["opt-66b"]
MODELS = {model.name.lower(): model for model in (LLAMA2_70B, OPT_66B)}


@dataclass(frozen=True)
class NextToken:
    """Seconds."""

    gemms: float
    other: float

    @property
    def total(self) -> float:
        return self.gemms + self.other


def next_token(
    machine: Machine,
    system: System,
    model: Transformer,
    format: WeightFormat,
    density: float = 1.0,
    batch: int = 1,
    tokens: float = 192,
    weights: int = WEIGHTS,
) -> NextToken:
    """`tokens` in each sequence's cache: 192 is the mean while 128 are written after 128. A GeMM of `weights` weights
    is simulated for all."""
    cycles = simulate(machine, system, format, density, batch, weights).cycles_per_tile
    gemms = model.tiles / machine.cores * cycles / machine.frequency
    return NextToken(gemms, other_time(model, batch, tokens))


def other_time(model: Transformer, batch: int, tokens: float) -> float:
    cache = model.layers * 2 * model.width * CACHE_BYTES * tokens * batch
    layer = fitted("other_layer_time") + fitted("other_sequence_time") * batch
    return model.layers * layer + cache / fitted("attention_rate")
