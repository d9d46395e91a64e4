"""Harmonia's converter in hardware, both paths, against `formats.bfp` and the clocked model's cycles."""

import numpy as np
import pytest
import torch
from amaranth.sim import Simulator

from tests.rtl.clocked import packed, vectors
from tests.rtl.data import half_bits, halves
from tilepress.formats.bfp import BFP, encode
from tilepress.rtl.harmonia import converter
from tilepress.rtl.harmonia.converter import Converter, ConverterParameters
from tilepress.simulate.units import harmonia_converter
from tilepress.simulate.units.harmonia_converter import Path

GROUP, ROWS, COLUMNS = 32, 8, 16
AXES = {Path.channels: 1, Path.tokens: 0}
CODES = {path: converter.Path[path.name.upper()].value for path in Path}


def blocks(tokens, channels, path):
    """Which eight (token, channel) each step of each block brings, past the matrix's edge too."""
    height, width = (ROWS, GROUP) if path is Path.channels else (GROUP, COLUMNS)
    for top in range(0, tokens, height):
        passes = -(-min(tokens - top, height) // ROWS)
        for left in range(0, channels, width):
            yield [
                [(top + ROWS * n + row, left + column) for row in range(ROWS)]
                for n in range(passes)
                for column in range(width)
            ]


class Bench:
    """A converter with its temporary memory, over matrices one after another."""

    def __init__(self, pauses=lambda: 0):
        self.unit, self.pauses, self.memory = Converter(ConverterParameters()), pauses, {}
        self.cycle, self.results, self.last = 0, [], []

    def run(self, jobs):
        """Each job is (FP16 [tokens, channels], mantissa, path): fills the results' magnitude, sign and exponent."""

        async def testbench(context):
            for x, mantissa, path in jobs:
                await self.convert(context, x, mantissa, path)

        simulator = Simulator(self.unit)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()
        return self.results, self.last

    async def convert(self, context, x, mantissa, path):
        start, self.blocks = self.cycle, list(blocks(*x.shape, path))
        sizes = [len(block) for block in self.blocks]
        self.result, self.at, self.left = np.full((3, *x.shape), -1), (0, 0), sum(sizes)
        padded = np.zeros((x.shape[0] + GROUP, x.shape[1] + GROUP), np.uint16)
        padded[: x.shape[0], : x.shape[1]] = half_bits(x)
        for block in self.blocks:
            passes = len(block) // COLUMNS if path is Path.tokens else 0
            setting = CODES[path] | passes << 1 | mantissa << 4
            for step in block:
                values = packed([padded[place] for place in step], 16)
                while not await self.clock(context, setting, values):
                    pass
                for _ in range(self.pauses()):
                    await self.clock(context)
        while self.left:
            await self.clock(context)
        self.results.append(self.result)
        self.last.append(self.cycle - start)

    async def clock(self, context, setting=0, values=None):
        """One cycle; whether the values were taken."""
        unit = self.unit
        context.set(unit.setting.as_value(), setting)
        context.set(unit.valid, int(values is not None))
        context.set(unit.values.as_value(), values or 0)
        taken = values is not None and bool(context.get(unit.ready))
        context.set(unit.stored.as_value(), self.memory.get(context.get(unit.read_address), 0))
        if taken:
            self.memory[context.get(unit.write_address)] = values
        await context.tick()
        self.cycle += 1
        if context.get(unit.converted_valid):
            self.keep(context.get(unit.place), context.get(unit.converted.as_value()))
        return taken

    def keep(self, place, converted):
        block, step = self.at
        for row, (token, channel) in enumerate(self.blocks[block][place]):
            bits = converted >> 14 * row
            if token < self.result.shape[1] and channel < self.result.shape[2]:
                self.result[:, token, channel] = bits & 255, bits >> 8 & 1, bits >> 9 & 31
        self.left -= 1
        self.at = (block, step + 1) if step + 1 < len(self.blocks[block]) else (block + 1, 0)


def any_job(random):
    path = (Path.channels, Path.tokens)[random.integers(2)]
    shape = random.integers(1, 80, 2)
    return halves(random, *shape), int(random.integers(1, 9)), path


def check(x, mantissa, path, result):
    encoded = encode(torch.from_numpy(x), BFP(GROUP, mantissa), AXES[path])
    exponent = encoded.exponent[..., None].expand(encoded.magnitude.shape)
    for ours, theirs in zip(result, (encoded.magnitude, encoded.sign, exponent), strict=True):
        lines = theirs.reshape(len(theirs), -1)[:, : x.shape[AXES[path]]]
        assert (ours == (lines if AXES[path] else lines.T).numpy()).all()


def test_values_and_cycles():
    random = np.random.default_rng(0)
    jobs = [any_job(random) for _ in range(-(-vectors(700) // 100))]
    results, cycles = Bench().run(jobs)
    for job, result, took in zip(jobs, results, cycles, strict=True):
        check(*job, result)
        assert took == harmonia_converter.cycles(*job[0].shape, job[2])


def test_values_that_come_with_pauses():
    random = np.random.default_rng(1)
    jobs = [any_job(random) for _ in range(-(-vectors(400) // 100))]
    for job, result in zip(jobs, Bench(lambda: int(random.integers(3))).run(jobs)[0], strict=True):
        check(*job, result)


@pytest.mark.parametrize("tokens", [5, 9, 17, 32, 40])
def test_blocks_of_fewer_passes(tokens):
    job = halves(np.random.default_rng(tokens), tokens, 33), 4, Path.tokens
    ((result,), (cycles,)) = Bench().run([job])
    check(*job, result)
    assert cycles == harmonia_converter.cycles(tokens, 33, Path.tokens)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rows": 1}, "rows must be an int from 2 to 64, got 1"),
        ({"columns": 4}, "columns must be an int from 8 to 64, got 4"),
        ({"group": 36}, "a group of 36 values is no multiple of 8 rows"),
        ({"mantissa": 12}, "mantissa must be an int from 1 to 11, got 12"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        ConverterParameters(**change)
