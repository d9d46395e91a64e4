"""Matrices for Harmonia's converter, and what must come out: `formats.bfp`, in the clocked model's cycles."""

import numpy as np
import torch
from amaranth.sim import Simulator

from tests.rtl.clocked import enough, packed
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


def assert_encoded(x, mantissa, path, result):
    encoded = encode(torch.from_numpy(x), BFP(GROUP, mantissa), AXES[path])
    exponent = encoded.exponent[..., None].expand(encoded.magnitude.shape)
    for ours, theirs in zip(result, (encoded.magnitude, encoded.sign, exponent), strict=True):
        lines = theirs.reshape(len(theirs), -1)[:, : x.shape[AXES[path]]]
        assert (ours == (lines if AXES[path] else lines.T).numpy()).all()


def assert_as_modelled(jobs):
    results, cycles = Bench().run(jobs)
    for job, result, took in zip(jobs, results, cycles, strict=True):
        assert_encoded(*job, result)
        assert took == harmonia_converter.cycles(*job[0].shape, job[2])


def check(seed, vectors):
    """Columns of random matrices, at least so many; how many."""
    random = np.random.default_rng(seed)
    jobs, steps = enough(lambda: any_job(random), lambda job: sum(map(len, blocks(*job[0].shape, job[2]))), vectors)
    assert_as_modelled(jobs)
    return steps
