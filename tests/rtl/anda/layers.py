"""Linear layers through Anda's hardware alone: compressor, buffers, array of units."""

import numpy as np
import torch
from amaranth.sim import Simulator

from tests.rtl.anda import rounds
from tests.rtl.clocked import packed, plain
from tests.rtl.data import to_bits
from tilepress.formats import decode
from tilepress.rtl.anda.apu import ApuParameters
from tilepress.rtl.anda.array import Array, ArrayParameters
from tilepress.rtl.anda.compressor import CompressorParameters
from tilepress.tiles import unpack_codes


def linear(x, matrix, mantissa, neurons=4):
    """float32 [tokens, neurons of the matrix] of FP16 x [tokens, inputs], and the cycles of all passes."""
    lanes, (tokens, inputs) = matrix.layout.group, x.shape
    groups, unit = inputs // lanes, ApuParameters(lanes=lanes, mantissa=mantissa)
    parameters = ArrayParameters(unit, tokens, neurons, groups)
    words, weights = list(_words(x, lanes, mantissa)), _weights(matrix, lanes)
    array, totals, cycles = Array(parameters), torch.zeros(tokens, matrix.rows, dtype=torch.int64), []

    async def testbench(context):
        context.set(array.groups, groups)
        context.set(array.planes, mantissa)
        for fill in words:
            await _fill(context, array.fill_words, array.fill_words_valid, fill)
        for first in range(0, matrix.rows, neurons):
            for neuron, row in enumerate(weights[first : first + neurons]):
                for group, of_group in enumerate(row):
                    given = {"neuron": neuron, "address": group, "group": of_group}
                    await _fill(context, array.fill_weights, array.fill_weights_valid, given)
            cycles.append(await _pass(context, array))
            for token, row in enumerate(array.totals):
                for neuron, total in enumerate(row[: matrix.rows - first]):
                    totals[token, first + neuron] = context.get(total)

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return totals.to(torch.uint32).view(torch.float32), cycles


async def _fill(context, port, valid, given):
    context.set(plain(port), port.shape().const(given).as_bits())
    context.set(valid, 1)
    await context.tick()
    context.set(valid, 0)


async def _pass(context, array):
    """Cycles from start to done."""
    context.set(array.start, 1)
    await context.tick()
    context.set(array.start, 0)
    cycles = 0
    while not context.get(array.done):
        await context.tick()
        cycles += 1
    return cycles


def _words(x, lanes, mantissa):
    """What the compressor gives of each token's groups, as the buffers take it."""
    every = [(mantissa, group.numpy()[None]) for token in x for group in token.split(lanes)]
    words, exponents, _ = rounds.run(CompressorParameters(1, lanes, mantissa), every)
    per_token = x.shape[1] // lanes
    for index, (of_group, (exponent,)) in enumerate(zip(words, exponents, strict=True)):
        token, group = divmod(index, per_token)
        for step, (bits,) in enumerate(of_group):
            address = group * (1 + mantissa) + step
            yield {"token": token, "address": address, "word": {"bits": bits, "exponent": exponent}}


def _weights(matrix, lanes):
    """Of each neuron and group: weights and scale as the buffers take them."""
    quantized, _ = unpack_codes(matrix)
    integers = decode(quantized.codes, matrix.format.element).to(torch.int64).numpy()
    scales = quantized.scales.to(torch.float32).numpy()
    return [
        [
            {"weights": packed(part, 4), "scale": to_bits(np.float32(scale))}
            for part, scale in zip(row.reshape(-1, lanes), of_row, strict=True)
        ]
        for row, of_row in zip(integers, scales, strict=True)
    ]
