"""Area and energy of units, converters and the vector unit as they were synthesised, or as a description gives them,
and of memories at constants of `hardware.technology`. All are scaled.

What was synthesised is cells: neither wires nor a clock tree is in it, in its energy are clock pins and leakage while
the unit works. Nothing else leaks.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

from ...hardware import Accelerator, read_accelerator
from ...hardware.accelerator import Mode, Rtl
from ...hardware.technology import area_scale, energy_scale, sram_energy
from .parameters import fitted
from .plan import Plan
from .synthesised import LINEAR, check_group, design, offset_energy, product_energy, value_energy

ARRAY, AUXILIARY, ACTIVATIONS, WEIGHTS = "array", "auxiliary array", "activation buffer", "weight buffer"
VECTOR, CONVERTER, OFFSETS = "vector unit", "converter", "offset unit"
COMPUTE, SRAM, DRAM = "compute", "SRAM", "DRAM"
VECTOR_LANE = Rtl(unit="fp16-mac", settings={"weight_format": "fp16"})  # multiplies and adds FP16 numbers
RTL, GIVEN = "RTL", "given"  # where area and energy of an array's logic come from
KEYS = "k"  # the product whose outputs they are
FP16_UNIT = "fp16-fp16"  # what stands beside arrays that do not attend (Harmonia, section V-D)


def unit_area(machine: Accelerator) -> float:
    """mm² of one unit."""
    return machine.unit.costs.area_at(machine.node)


def logic_of(machine: Accelerator) -> str:
    return RTL if machine.unit.rtl else GIVEN


def area(machine: Accelerator, attention: bool = False) -> dict[str, float]:
    """mm² by part; with the auxiliary array if `attention` shall be possible."""
    parts = {ARRAY: machine.units * unit_area(machine)}
    if attention and machine.auxiliary and not machine.attends:
        parts[AUXILIARY] = parts[ARRAY] * fitted("auxiliary_share") * machine.auxiliary
    density = fitted("sram_density") * area_scale(machine.node) / area_scale(16)
    parts[ACTIVATIONS] = machine.buffers.activations / 2**20 * density
    parts[WEIGHTS] = machine.buffers.weights / 2**20 * density
    parts[VECTOR] = machine.vector * VECTOR_LANE.area_at(machine.node)
    if machine.converter:
        parts[CONVERTER] = machine.converter.costs.area_at(machine.node)
    if machine.offsets:
        parts[OFFSETS] = machine.offsets.area_at(machine.node)
    return parts


def auxiliary(machine: Accelerator) -> Accelerator:
    """The FP16 array beside one that does not attend, with the same memories."""
    share = fitted("auxiliary_share") * (machine.auxiliary or 1)
    return fitted_to_area(_fp16(machine), share * machine.units * unit_area(machine))


def fitted_to_area(machine: Accelerator, array_area: float) -> Accelerator:
    """With as many units as fit `array_area` mm², near a square."""
    units = int(array_area / unit_area(machine))
    if units < 1:
        raise ValueError(f"no unit of {machine.name} ({unit_area(machine):.2g} mm²) fits {array_area:.2g} mm²")
    rows = 2 ** round(math.log2(math.sqrt(units)))
    return machine.changed(array={"rows": rows, "columns": max(units // rows, 1)})


def in_technology(machine: Accelerator, node: float, voltage: float, frequency: float) -> Accelerator:
    return machine.changed(node=node, voltage=voltage, frequency=frequency)


def group_energy(machine: Accelerator, mode: Mode, mantissa: int = 0) -> float:
    """pJ of one unit for one group."""
    check_group(machine)
    return machine.array.group * product_energy(machine, mode, mantissa)


def energy(plan: Plan) -> dict[str, float]:
    """pJ of all of a plan's products, by part."""
    machine, gemm = plan.machine, plan.gemm
    groups = gemm.rows * gemm.columns * math.ceil(gemm.inputs / machine.array.group)
    outputs = gemm.rows * gemm.columns
    bit = _sram_bit(machine)
    parts = {
        ARRAY: groups * group_energy(machine, plan.mode, gemm.activations.mantissa),
        VECTOR: outputs * gemm.vector * _vector_energy(machine),
        CONVERTER: outputs * _conversion_energy(plan),
        **{buffer: bits * bit for buffer, bits in sram_bits(plan).items()},
        DRAM: plan.traffic.total * machine.memory.energy,
    }
    if machine.offsets:
        parts[OFFSETS] = outputs * offset_energy(machine.offsets, machine) * (gemm.name == KEYS)
    return {name: gemm.count * value for name, value in parts.items()}


def traffic_energy(machine: Accelerator) -> float:
    """pJ of a bit of an operand that comes from memory into a buffer."""
    return machine.memory.energy + _sram_bit(machine)


def sram_bits(plan: Plan) -> dict[str, float]:
    """Bits read or written by buffer, for one of the plan's products: every pass of the array reads its operands,
    memory fills the buffers, outputs are written and sent off."""
    gemm, array = plan.gemm, plan.machine.array
    activations = gemm.rows * gemm.inputs * gemm.activations.bits * math.ceil(gemm.columns / array.columns)
    other = gemm.inputs * gemm.columns * gemm.other.bits * math.ceil(gemm.rows / array.rows)
    outputs = 2 * plan.traffic.outputs
    return {ACTIVATIONS: activations + plan.traffic.activations + outputs, WEIGHTS: other + plan.traffic.other}


def breakdown(parts: Mapping[str, float]) -> dict[str, float]:
    """Energies by part as both papers sum them up: compute, SRAM, DRAM."""
    sram = parts[ACTIVATIONS] + parts[WEIGHTS]
    return {COMPUTE: sum(parts.values()) - sram - parts[DRAM], SRAM: sram, DRAM: parts[DRAM]}


def _conversion_energy(plan: Plan) -> float:
    """pJ of an output."""
    converter = plan.machine.converter
    if converter is None or not plan.gemm.is_converted:
        return 0.0
    return value_energy(plan.machine, converter, plan.gemm.out.mantissa)


def _vector_energy(machine: Accelerator) -> float:
    """pJ of an operation on an output."""
    return design(VECTOR_LANE).item_energy_at(LINEAR, machine.node, machine.voltage)


def _sram_bit(machine: Accelerator) -> float:
    """pJ to read or write a bit of a buffer."""
    return sram_energy(fitted("sram_bank")) * _scale(machine.node, machine.voltage)


def _fp16(machine: Accelerator) -> Accelerator:
    unit = _named(FP16_UNIT)
    return machine.changed(
        name=f"{machine.name}'s auxiliary",
        array=unit.array.model_dump(),
        modes=[mode.model_dump() for mode in unit.modes],
        unit=unit.unit.model_dump(),
        stores="fp16",
        converter=None,
        auxiliary=None,
    )


@lru_cache(maxsize=8)
def _named(name: str) -> Accelerator:
    return read_accelerator(name)


@lru_cache(maxsize=256)
def _scale(node: float, voltage: float) -> float:
    return energy_scale(node, voltage)
