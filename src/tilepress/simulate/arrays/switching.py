"""Which parts switch, and how often, when a unit takes a group and when a converter takes a value.

Where a machine's description names a unit of `simulate.units`, its events are counted, which are those of the unit
stepped bit by bit, whatever the data; each event switches parts of `hardware.technology`, as wide as the unit's values
are. Where it names none, parts are counted by the description: those that switch every cycle and once a group.
"""

from collections.abc import Mapping
from dataclasses import asdict

from ...hardware import Accelerator, MachineError
from ...hardware.accelerator import Converter, Mode
from ..units import anda_apu, anda_compressor, harmonia_converter, harmonia_pe
from ..units.dot import WEIGHT_BITS
from ..units.events import Events
from ..units.halves import EXPONENT_BITS, SIGNIFICAND_BITS

Parts = dict[str, float]
NORMALISER_STAGES = 5  # of multiplexers, that shift a sum by up to 31 places
ALIGNER_STAGES = 4  # … a significand by up to 15
_COMMON: dict[str, Parts] = {
    "register_bits": {"flip_flop": 1},
    "converts": {"multiplexer": NORMALISER_STAGES * anda_apu.FLOAT_BITS},
    "float_multiplies": {"fp16_multiply": 1},
    "float_adds": {"fp32_add": 1},
}


def _tree_bits(inputs: int, bits: int) -> int:
    """Bits of all adders of a tree of `inputs` numbers of `bits`, each as wide as its sum."""
    levels = range(1, inputs.bit_length())
    return sum((inputs >> level) * (bits + level) for level in levels)


_SIGNED_WEIGHT, _PRODUCT = WEIGHT_BITS + 1, 1 + harmonia_pe.WHOLE_BITS + harmonia_pe.HALF_BITS
_PLANE_ADDERS, _LANES = anda_apu.LANES - 1, harmonia_pe.LANES

# Event → the parts that one of it switches, on average over those that a unit counts together.
_EVENTS: dict[str, dict[str, Parts]] = {
    "anda-apu": {
        **_COMMON,
        "plane_adds": {  # each bit lets a weight pass, or minus it
            "gate": anda_apu.LANES * _SIGNED_WEIGHT / _PLANE_ADDERS,
            "add": _tree_bits(anda_apu.LANES, _SIGNED_WEIGHT) / _PLANE_ADDERS,
        },
        "adds": {"add": anda_apu.SUM_BITS},
        "shifts": {},  # by one place: wires
    },
    "harmonia-pe": {
        **_COMMON,
        "multiplies": {"multiply": harmonia_pe.WHOLE_BITS * harmonia_pe.HALF_BITS, "gate": 1},
        "adds": {"add": (_tree_bits(_LANES, _PRODUCT) + harmonia_pe.SUM_BITS) / _LANES},
        "shifts": {},  # by four places: wires
    },
    "anda-compressor": {
        **_COMMON,
        "compares": {"add": EXPONENT_BITS},
        "adds": {"add": EXPONENT_BITS},
        "shifts": {"multiplexer": SIGNIFICAND_BITS},
    },
    "harmonia-converter": {
        **_COMMON,
        "compares": {"add": EXPONENT_BITS},
        "adds": {"add": EXPONENT_BITS},
        "shifts": {"multiplexer": ALIGNER_STAGES * SIGNIFICAND_BITS},
    },
}


def group_parts(machine: Accelerator, mode: Mode, mantissa: int) -> Parts:
    """Of one unit, for one group of activations with magnitudes of `mantissa` bits."""
    check_group(machine)
    unit = machine.unit
    if unit.simulation is None:
        return _sum((unit.cycle, mode.cycles.of(mantissa)), (unit.group, 1))
    if unit.simulation == "anda-apu":
        return _switched(unit.simulation, anda_apu.events(1, mantissa))
    return _switched(unit.simulation, harmonia_pe.group_events(element_mode(mode)))


def value_parts(converter: Converter, mantissa: int) -> Parts:
    """Of a converter, for one value."""
    if converter.simulation is None:
        return _sum((converter.parts, converter.cycles.of(mantissa)))
    if converter.simulation == "anda-compressor":
        events, values = anda_compressor.events(1, mantissa), anda_compressor.GROUP
    else:
        tokens, channels = harmonia_converter.ROWS, harmonia_converter.GROUP
        events = harmonia_converter.events(tokens, channels, harmonia_converter.Path.channels)
        values = tokens * channels
    return _sum((_switched(converter.simulation, events), 1 / values))


def _switched(unit: str, events: Events) -> Parts:
    return _sum(*((_EVENTS[unit][name], count) for name, count in asdict(events).items() if count))


def _sum(*terms: tuple[Mapping[str, float], float]) -> Parts:
    """Σ times · parts, of (parts, times)."""
    total: Parts = {}
    for parts, times in terms:
        for name, count in parts.items():
            total[name] = total.get(name, 0.0) + times * count
    return total


def check_group(machine: Accelerator) -> None:
    """A unit that is simulated sums groups of its own size."""
    groups = {"anda-apu": anda_apu.LANES, "harmonia-pe": harmonia_pe.PAIRS}
    group = groups.get(machine.unit.simulation or "", machine.array.group)
    if machine.array.group != group:
        raise MachineError(
            f"{machine.name}: {machine.unit.simulation} sums groups of {group}, not of {machine.array.group}: leave "
            "unit.simulation out"
        )


def element_mode(mode: Mode) -> harmonia_pe.Mode:
    if mode.other_mantissa is None:
        return harmonia_pe.Mode.m8w4
    return harmonia_pe.Mode.m8m4 if mode.other_mantissa <= harmonia_pe.HALF_BITS else harmonia_pe.Mode.m8m8
