"""What each unit is given while its energy is measured, and what an operation of it is.

Operands follow each other as in a layer: groups of one dot product after another, without pauses.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ...formats.bfp import BFP, encode, pack_planes
from ...tiles import PackedMatrix, pack
from ..deca.testbench import Job, run
from ..units import Unit
from .case import MARGIN, Case, Cycle, clocked, halves, packed, rows_of, single
from .harmonia_stimuli import harmonia_converter, harmonia_offsets, harmonia_pe, harmonia_subtractor
from .integer_stimuli import int_mac, m_ant_mac, m_ant_sums
from .operands import Operands
from .quantising import int8_quantiser
from .rival_stimuli import figna, fp16_mac, fp_fp, fp_int, ifpu
from .trace import Recorder, Trace

DENSITIES = (1.0, 0.5, 0.2, 0.05)  # of DECA's tiles


def cases(unit: Unit, operands: Operands) -> list[Case]:
    return _CASES[unit.name](unit, operands)


def _anda_apu(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    rows = rows_of(operands, parameters.weight_bits, parameters.lanes)

    def inputs(mantissa: int) -> tuple[list[Cycle], int]:
        """Each group's weights are loaded beside the last word of the group before."""
        cycles: list[Cycle] = [{"valid": 0}]
        for row, neuron in rows:
            planes = pack_planes(encode(row, BFP(parameters.lanes, mantissa)))
            last = len(neuron.scales) - 1
            for group, scale in enumerate(neuron.scales):
                weights = packed(neuron.integers[group], parameters.weight_bits)
                cycles[-1] |= {"load": 1, "weights": weights, "scale": single(scale)}
                marks = {"planes": mantissa, "first": int(group == 0), "last": int(group == last)}
                words = [packed(word, 8) for word in planes.planes[group].tolist()]
                signs = {"exponent": int(planes.exponent[group]), **marks}
                cycles.append({"valid": 1, "load": 0, "word": words[0], **signs})
                cycles += [{"load": 0, "word": word} for word in words[1:]]
        return cycles + [{"valid": 0, "load": 0}] * MARGIN, sum(len(neuron.scales) for _, neuron in rows)

    operation = f"a group of {parameters.lanes} products"
    return [
        Case(f"m={bits}", operation, parameters.lanes, "product", clocked(unit, partial(inputs, bits)))
        for bits in range(1, parameters.mantissa + 1)
    ]


def _anda_compressor(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    count = parameters.lanes * parameters.group
    values = operands.activations.flatten()[: operands.activations.numel() // count * count].reshape(-1, count)
    rounds = values[: max(1, 16 // parameters.lanes)]

    def inputs(mantissa: int) -> tuple[list[Cycle], int]:
        cycles: list[Cycle] = []
        for values in rounds:
            cycles.append({"planes": mantissa, "valid": 1, "values": packed(halves(values), 16)})
            cycles += [{"valid": 0}] * mantissa
        return cycles, len(rounds) * parameters.lanes

    operation = f"a group of {parameters.group} values"
    return [
        Case(f"m={bits}", operation, parameters.group, "value", clocked(unit, partial(inputs, bits)))
        for bits in range(1, parameters.mantissa + 1)
    ]


def _deca_pe(unit: Unit, operands: Operands) -> list[Case]:
    weights = operands.weights[:64, :64].to(torch.bfloat16)

    def matrix(format: str, density: float) -> PackedMatrix:
        """The weights of largest magnitude."""
        if density == 1:
            return pack(weights, format, operand_bits=16)
        kept = torch.zeros(weights.numel(), dtype=torch.bool)
        kept[weights.abs().flatten().topk(int(density * weights.numel())).indices] = True
        return pack(weights, format, mask=kept.reshape(weights.shape), operand_bits=16)

    def trace(format: str, density: float) -> tuple[Trace, int, int]:
        """From the first tile on: what fills the tables comes before."""
        recorders: list[Recorder] = []

        def watch(component: Any) -> Any:
            recorders.append(Recorder(component))
            return recorders[0].process

        packed_weights = matrix(format, density)
        run(unit.parameters, [Job(packed_weights, lambda tile, line: 1)], watch)
        seen = recorders[0].trace()
        begin = int(seen.inputs["tile_0_valid"].argmax())
        return seen, packed_weights.layout.blocks * packed_weights.layout.block_tiles, begin

    return [
        Case(f"{format}, {density:.0%} kept", "a tile of 512 weights", 512, "weight", partial(trace, format, density))
        for format in unit.parameters.formats
        for density in DENSITIES
    ]


_CASES: Mapping[str, Callable[[Unit, Operands], list[Case]]] = {
    "deca-pe": _deca_pe,
    "anda-apu": _anda_apu,
    "anda-compressor": _anda_compressor,
    "harmonia-pe": harmonia_pe,
    "harmonia-converter": harmonia_converter,
    "harmonia-offsets": harmonia_offsets,
    "harmonia-subtractor": harmonia_subtractor,
    "fp-fp": fp_fp,
    "fp-int": fp_int,
    "figna": figna,
    "ifpu": ifpu,
    "fp16-mac": fp16_mac,
    "int-mac": int_mac,
    "m-ant-mac": m_ant_mac,
    "m-ant-sums": m_ant_sums,
    "int8-quantiser": int8_quantiser,
}
