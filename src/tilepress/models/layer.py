"""One layer's weight compressed and packed."""

from torch import Tensor

from ..compression import CompressedWeight, InputStatistics, WeightPlan, compress_weight
from ..formats import WeightFormat
from ..tiles import PackedMatrix, pack_codes
from .device import CPU
from .storage import Layer


def compress_named(name: str, weight: Tensor, plan: WeightPlan, statistics: InputStatistics | None) -> CompressedWeight:
    """`compress_weight` of the layer called `name`, which an error names."""
    try:
        return compress_weight(weight, plan, statistics)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def pack_weight(
    name: str, weight: CompressedWeight, format: WeightFormat, activations: str
) -> tuple[PackedMatrix, Layer]:
    """The packed matrix, and what became of the layer called `name`."""
    weight = weight.to(CPU)
    matrix = pack_codes(weight.quantized, format, mask=weight.mask)
    streams = {stream: str(array.dtype).removeprefix("torch.") for stream, array in matrix.streams.items()}
    size = matrix.shape, matrix.nbytes, matrix.bits_per_weight
    facts = str(format), matrix.density, weight.error, *size, activations, streams
    return matrix, Layer(name, *facts, grid_error=weight.grid_error)
