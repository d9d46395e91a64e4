"""Energy of units that were synthesised: which of the measured cases a group or a converted value is."""

from functools import lru_cache

from ...hardware import Accelerator
from ...hardware.accelerator import Converter, Mode, Rtl
from ...hardware.synthesised import cost
from .switching import element_mode

PRODUCTS = "linear"  # of activations with weights of four bits, in units that have no other case
PATH = "channels"  # of Harmonia's converter: that of outputs


def product_energy(machine: Accelerator, mode: Mode, mantissa: int) -> float | None:
    """pJ of one product of a group; None if the unit was not synthesised, or not measured with such operands."""
    rtl = machine.unit.rtl
    return _energy(rtl, _product_case(rtl.unit, mode, mantissa), machine) if rtl else None


def value_energy(machine: Accelerator, converter: Converter, mantissa: int) -> float | None:
    """pJ of a value that is converted to magnitudes of `mantissa` bits."""
    rtl = converter.rtl
    return _energy(rtl, f"m={mantissa}" if rtl.unit == "anda-compressor" else PATH, machine) if rtl else None


def _product_case(unit: str, mode: Mode, mantissa: int) -> str:
    if unit == "anda-apu":
        return f"m={mantissa}"
    if unit == "harmonia-pe":
        return element_mode(mode).name
    return PRODUCTS if mode.other == "int4" else ""


def _energy(rtl: Rtl, case: str, machine: Accelerator) -> float | None:
    return _item_energy(rtl.unit, tuple(rtl.settings.items()), case, machine.node, machine.voltage)


@lru_cache(maxsize=256)
def _item_energy(
    unit: str, settings: tuple[tuple[str, int | str], ...], case: str, node: float, voltage: float
) -> float | None:
    design = cost(unit, dict(settings))
    return design.item_energy_at(case, node, voltage) if case in design.energy else None
