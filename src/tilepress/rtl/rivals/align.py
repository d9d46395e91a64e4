"""FP16 values to signed magnitudes under a shared exponent, in one step: FIGNA's and iFPU's."""

from amaranth.hdl import Module, Mux, Signal, Value

from ...simulate.units.halves import EXPONENT_BITS, SIGNIFICAND_BITS
from ..floating import Unpacked, effective


def align(m: Module, value: Unpacked, shared: Value, mantissa: int) -> Value:
    """Shifted right by how far its exponent lies below, and cut to `mantissa` bits."""
    magnitude = Signal(mantissa)
    distance = (effective(shared) - effective(value.exponent))[:EXPONENT_BITS]
    m.d.comb += magnitude.eq((value.significand << mantissa >> SIGNIFICAND_BITS) >> distance)
    return Mux(value.sign, -magnitude, magnitude)
