"""What the lanes of an element are asked, and what float32 gives."""

import numpy as np
import torch
from amaranth.sim import Simulator

from tilepress.formats.tensors import scale_values
from tilepress.rtl.deca import Parameters
from tilepress.rtl.deca.parameters import Scale
from tilepress.rtl.deca.scale import NAN, Lane

FORMATS = {
    Scale.NONE: "bf16",
    Scale.E8M0: "mxfp8",
    Scale.BF16: "bf8:g32:bf16",
    Scale.FP16: "bf8:g32:fp16",
    Scale.FP32: "bf8:g32:fp32",
}
ALL = Parameters(8, 4, (*FORMATS.values(), "uint8:g32"))
CORNERS = (0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x00FF, 0x3F80, 0x3F81, 0xBF80, 0x7F7F, 0xFF7F)
SPECIALS = (0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7F81, 0x7FFF)
HALVES = (0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x8001)
DTYPES = {Scale.BF16: torch.bfloat16, Scale.FP16: torch.float16}


def ask(questions, parameters=ALL):
    """`results` of a lane, of (scale, code bits or 0 without zero points, value, low, high)."""
    lane, results = Lane(parameters), []

    async def bench(context):
        for scale, code_bits, value, low, high in questions:
            control = {"scale": scale, "code_bits": code_bits, "zero_points": int(code_bits > 0)}
            context.set(lane.control, control)
            for port, word in ((lane.value, value), (lane.low, low), (lane.high, high)):
                context.set(port, int(word))
            results.append(context.get(lane.result))

    simulator = Simulator(lane)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def expected(question):
    """By numpy and torch: (value - zero) · scale in float32, rounded to bf16."""
    scale, code_bits, value, low, high = question
    number = torch.tensor([value], dtype=torch.uint16).view(torch.bfloat16).float()
    if code_bits:
        number = number - (high & 0xFF) / 2 ** (8 - code_bits)
    result = (number * _scale(scale, low, high)).to(torch.bfloat16)
    return NAN if result.isnan() else int(result.view(torch.uint16))


def _scale(scale, low, high):
    if scale is Scale.NONE:
        return torch.ones(1)
    if scale is Scale.E8M0:
        return scale_values(torch.tensor([low & 0xFF], dtype=torch.uint8))
    if scale is Scale.FP32:
        return torch.tensor([high << 16 | low], dtype=torch.uint32).view(torch.float32)
    return torch.tensor([low], dtype=torch.uint16).view(DTYPES[scale]).float()


def corners():
    """All pairs of special values and special scales."""
    for value in (*CORNERS, *SPECIALS):
        yield Scale.NONE, 0, value, 0, 0
        for scale in (Scale.E8M0, Scale.BF16, Scale.FP16):
            words = {Scale.E8M0: (0, 1, 127, 254, 255), Scale.FP16: HALVES}.get(scale, (*CORNERS, *SPECIALS))
            yield from ((scale, 0, value, word, 0) for word in words)
        yield from ((Scale.FP32, 0, value, low, high) for high in CORNERS for low in (0, 1, 0x8000, 0xFFFF))


def random(count, seed=0):
    """Bit patterns of any kind; half of them near where results are subnormal; zero points beside integers."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        scale = Scale(int(generator.integers(0, 5)))
        value, low, high = (int(word) for word in generator.integers(0, 1 << 16, 3))
        code_bits = int(generator.integers(2, 9)) if scale is not Scale.FP32 and generator.random() < 0.3 else 0
        if code_bits:
            integer = torch.tensor([float(generator.integers(0, 1 << code_bits))], dtype=torch.bfloat16)
            value = int(integer.view(torch.uint16))
        elif generator.random() < 0.5:
            value &= 0xA3FF
            high &= 0xA3FF
            low = low & 0xA3FF if scale is Scale.BF16 else low
        yield scale, code_bits, value, low, high


def check(seed, vectors):
    """Products of all corners, or of random patterns; how many."""
    questions = [*corners(), *random(vectors, seed)] if seed == 0 else list(random(vectors, seed))
    for question, answer in zip(questions, ask(questions), strict=True):
        assert answer == expected(question), question
    return len(questions)
