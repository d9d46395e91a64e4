"""What must hold of units, proved by `checking` of small ones: their control does not depend on how wide they are."""

from collections.abc import Callable, Mapping

from ..anda.apu import ApuParameters
from ..anda.compressor import CompressorParameters
from ..checking import Monitor
from ..deca import Parameters
from ..harmonia.converter import ConverterParameters
from . import anda, deca, harmonia

_ELEMENT = Parameters(W=64, L=8, formats=("mxfp4",), address_bits=1, epoch_bits=2)
# Of each unit: name of a monitor → how to make it.
MONITORS: Mapping[str, Mapping[str, Callable[[], Monitor]]] = {
    "deca-pe": {
        "pipeline": lambda: deca.Pipeline(_ELEMENT),
        "requests": lambda: deca.Requests(_ELEMENT),
        "rows": lambda: deca.Rows(_ELEMENT),
    },
    "anda-apu": {"groups": lambda: anda.Groups(ApuParameters(lanes=2, weight_bits=2, mantissa=2))},
    "anda-compressor": {"rounds": lambda: anda.Rounds(CompressorParameters(lanes=1, group=2, mantissa=2))},
    "harmonia-converter": {
        "blocks": lambda: harmonia.Blocks(ConverterParameters(rows=2, columns=2, group=4, mantissa=2))
    },
}


def monitors_of(unit: str) -> Mapping[str, Callable[[], Monitor]]:
    if unit not in MONITORS:
        raise ValueError(f"there is no monitor of {unit!r}; there are monitors of {', '.join(MONITORS)}")
    return MONITORS[unit]
