"""Matrices for INT8 quantisers, and what must come out: the clocked models' codes and scales, in their cycles."""

import numpy as np
import torch
from amaranth.sim import Simulator

from tests.rtl.clocked import clocked, enough, packed
from tests.rtl.data import half_bits, halves, to_bits
from tilepress.rtl.rivals.int8_quantiser import Quantiser, QuantiserParameters
from tilepress.simulate.units import int8_quantiser
from tilepress.simulate.units.int8_quantiser import GROUP, OfflineQuantiser, OnlineQuantiser, Scale

ROWS = 8
TF32_WIDTH, LOST = 19, 13  # bits of FP32 that TF32 does not have


def any_matrix(random):
    """FP16 [tokens, channels] of any size, in some of which values are infinite or not numbers."""
    x = halves(random, *random.integers(1, 30, 1), *random.integers(1, 150, 1))
    if not random.integers(3):
        x = (random.standard_normal(x.shape) * 2.0 ** random.integers(-24, 12, (len(x), 1))).astype(np.float16)
    if not random.integers(4):
        x[random.random(x.shape) < 0.02] = random.choice(np.array([np.inf, -np.inf, np.nan], np.float16))
    return torch.from_numpy(x)


def any_scales(random, x):
    """FP16 [channels]: any, or of a size that brings codes into their range."""
    any_ = torch.from_numpy(halves(random, x.shape[1]))
    any_[torch.from_numpy(random.random(len(any_)) < 0.05)] = float("inf")
    fitting = (100 / x.abs().amax(0).clamp(2e-3, 6e4)).half()
    return any_ if random.integers(2) else fitting


def columns(x, group):
    """Words of eight patterns, in the order in which they come, with zeros past the edge."""
    patterns = np.pad(half_bits(x.numpy()), ((0, -x.shape[0] % ROWS), (0, -x.shape[1] % group))).astype(int)
    for top in range(0, len(patterns), ROWS):
        yield from (packed(column, 16) for column in patterns[top : top + ROWS].T.tolist())


def signed(word, rows=ROWS):
    return np.frombuffer(word.to_bytes(rows, "little"), np.int8).tolist()


def offline_codes(words, tokens, channels):
    """[tokens, channels] of columns in the order of `columns`."""
    blocks = np.array([signed(word) for word in words]).reshape(-1, channels, ROWS)
    return blocks.transpose(0, 2, 1).reshape(-1, channels)[:tokens]


def assert_offline(jobs, pauses=None):
    inputs = []
    for x, scales in jobs:
        for index, word in enumerate(columns(x, 1)):
            scale = half_bits(scales.numpy())[index % len(scales)]
            inputs += [{"valid": 1, "values": word, "scale": int(scale)}]
            inputs += [{"valid": 0, "scale": 0, "values": 0}] * (pauses() if pauses else 0)
    seen = clocked(Quantiser(QuantiserParameters()), inputs, ["codes_valid", "codes"])
    assert [valid for valid, _ in seen] == [given["valid"] for given in inputs]
    words = [word for valid, word in seen if valid]
    for x, scales in jobs:
        model = OfflineQuantiser().quantise(x, scales)
        mine, words = words[: model.cycles], words[model.cycles :]
        assert np.array_equal(offline_codes(mine, *x.shape), model.codes)
    assert not words


class Online:
    """A quantiser with its memory, over one matrix after another."""

    def __init__(self, group=GROUP, pauses=lambda: 0):
        self.unit = Quantiser(QuantiserParameters("online", ROWS, group))
        self.group, self.pauses, self.memory = group, pauses, {}

    def run(self, matrices):
        """Codes [tokens, channels], patterns of scales [tokens, groups] and cycles, of each."""
        self.results = []

        async def testbench(context):
            for x in matrices:
                await self.quantise(context, x)

        simulator = Simulator(self.unit)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()
        return self.results

    async def quantise(self, context, x):
        words = list(columns(x, self.group))
        self.codes, self.scales, self.cycles = [], [], 0
        for word in words:
            await self.clock(context, word)
            for _ in range(self.pauses()):
                await self.clock(context)
        while len(self.codes) < len(words):
            await self.clock(context)
        self.results.append((*self.matrices(*x.shape), self.cycles))

    async def clock(self, context, word=None):
        unit = self.unit
        context.set(unit.valid, int(word is not None))
        context.set(unit.values.as_value(), word or 0)
        context.set(unit.stored.as_value(), self.memory.get(context.get(unit.read_address), 0))
        if word is not None:
            self.memory[context.get(unit.write_address)] = word
        await context.tick()
        self.cycles += 1
        if context.get(unit.codes_valid):
            assert context.get(unit.place) == len(self.codes) % self.group
            if len(self.codes) % self.group == 0:
                scales = context.get(unit.scales.as_value())
                self.scales.append([scales >> TF32_WIDTH * row & (1 << TF32_WIDTH) - 1 for row in range(ROWS)])
            self.codes.append(signed(context.get(unit.codes.as_value())))

    def matrices(self, tokens, channels):
        groups = -(-channels // self.group)
        codes = np.array(self.codes).reshape(-1, groups * self.group, ROWS).transpose(0, 2, 1)
        scales = np.array(self.scales).reshape(-1, groups, ROWS).transpose(0, 2, 1)
        return codes.reshape(-1, groups * self.group)[:tokens, :channels], scales.reshape(-1, groups)[:tokens]


def assert_online(matrices, group=GROUP, pauses=None):
    results = Online(group, pauses or (lambda: 0)).run(matrices)
    for x, (codes, scales, cycles) in zip(matrices, results, strict=True):
        model = OnlineQuantiser(group).quantise(x)
        assert np.array_equal(codes, model.codes)
        expected = [[to_bits(one) for one in row] for row in model.scales.tolist()]
        assert (scales << LOST).tolist() == expected
        assert pauses or cycles == model.cycles


def count_columns(x, group):
    return -(-x.shape[0] // ROWS) * -(-x.shape[1] // group) * group


def check(scale, seed, vectors):
    """Columns of random matrices, at least so many; how many."""
    random = np.random.default_rng(seed)
    group = 1 if scale is Scale.offline else (GROUP, int8_quantiser.SCALING, 100)[seed % 3]
    matrices, count = enough(lambda: any_matrix(random), lambda x: count_columns(x, group), vectors)
    if scale is Scale.offline:
        assert_offline([(x, any_scales(random, x)) for x in matrices])
    else:
        assert_online(matrices, group)
    return count
