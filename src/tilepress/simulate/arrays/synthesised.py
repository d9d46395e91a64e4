"""What a unit or converter takes for a product or a value: of our RTL by the case that was measured, or as given."""

from functools import lru_cache

from ...hardware import Accelerator, MachineError
from ...hardware.accelerator import Converter, Logic, Mode, Offsets, Rtl
from ...hardware.synthesised import Cost, cost
from ..units import harmonia_pe

LINEAR, ATTENTION = "linear", "attention"  # cases of units that multiply with weights, and of two activations
PATH = "channels"  # of Harmonia's converter: that of outputs
QUANTISED, OFFSET = "outputs", "keys"
_GROUPS = {"anda-apu": "lanes", "harmonia-pe": "group"}  # units that sum groups of their own size


def product_energy(machine: Accelerator, mode: Mode, mantissa: int) -> float:
    """pJ of one product of a group, with magnitudes of `mantissa` bits."""
    rtl = machine.unit.rtl
    return _energy(machine.unit, _product_case(rtl.unit, mode, mantissa) if rtl else "", mantissa, machine)


def value_energy(machine: Accelerator, converter: Converter, mantissa: int) -> float:
    """pJ of a value that is converted to magnitudes of `mantissa` bits."""
    rtl = converter.rtl
    return _energy(converter, _value_case(rtl.unit, mantissa) if rtl else "", mantissa, machine)


def offset_energy(offsets: Offsets, machine: Accelerator) -> float:
    """pJ of a key's value, from which its channel's offset is taken. Offsets are found once, in 32 tokens of a text:
    that is not counted."""
    return design(offsets.subtractor).item_energy_at(OFFSET, machine.node, machine.voltage)


def check_group(machine: Accelerator) -> None:
    """MachineError where the unit's RTL sums groups of another size than the array's."""
    rtl = machine.unit.rtl
    if rtl is None or rtl.unit not in _GROUPS:
        return
    group = int(design(rtl).settings[_GROUPS[rtl.unit]])
    if machine.array.group != group:
        raise MachineError(
            f"{machine.name}: {rtl.unit} sums groups of {group}, not of {machine.array.group}: give the costs of a "
            "unit that does (unit.given)"
        )


def element_mode(mode: Mode) -> harmonia_pe.Mode:
    if mode.other_mantissa is None:
        return harmonia_pe.Mode.m8w4
    return harmonia_pe.Mode.m8m4 if mode.other_mantissa <= harmonia_pe.HALF_BITS else harmonia_pe.Mode.m8m8


def design(rtl: Rtl) -> Cost:
    return _design(rtl.unit, tuple(rtl.settings.items()))


def _product_case(unit: str, mode: Mode, mantissa: int) -> str:
    if unit == "anda-apu":
        return f"m={mantissa}"
    if unit == "harmonia-pe":
        return element_mode(mode).name
    return LINEAR if mode.other in ("int4", "int8") else ATTENTION


def _value_case(unit: str, mantissa: int) -> str:
    return {"anda-compressor": f"m={mantissa}", "harmonia-converter": PATH}.get(unit, QUANTISED)


def _energy(logic: Logic, case: str, mantissa: int, machine: Accelerator) -> float:
    if isinstance(logic.costs, Rtl):
        return design(logic.costs).item_energy_at(case, machine.node, machine.voltage)
    return logic.costs.energy_at(mantissa, machine.node, machine.voltage)


@lru_cache(maxsize=256)
def _design(unit: str, settings: tuple[tuple[str, int | str], ...]) -> Cost:
    return cost(unit, dict(settings))
