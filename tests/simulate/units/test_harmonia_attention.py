"""A head's attention, every product on the element and every number through the converter: the native cache's bits."""

import pytest
import torch

from tests.simulate.units.matrices import narrowed
from tilepress.formats.bfp import BFP, BFPTensor
from tilepress.formats.kv import parse_kv
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.kv_store import BfpKvStore
from tilepress.simulate.units.harmonia_converter import Converter, Path
from tilepress.simulate.units.harmonia_offsets import OffsetGenerator, subtract
from tilepress.simulate.units.harmonia_pe import Mode, Pe, attention_pairs

CHANNELS, SCALING = 32, 0.125


def tensors(tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query, keys, values = (torch.randn(n, CHANNELS, generator=generator).half() for n in (1, tokens, tokens))
    values *= torch.exp2(torch.randint(-6, 6, (tokens, 1), generator=generator).float()).half()
    keys[:, 5] += 12.0
    return query, keys, values


def cut(magnitude, bits):
    return magnitude >> 8 - bits << 8 - bits


def row(whole, index, magnitude):
    """Line `index` of a converted matrix, with these magnitudes."""
    length = whole.shape[whole.axis]
    return BFPTensor(BFP(32, 8), (length,), 0, whole.sign[index], magnitude, whole.exponent[index])


def on_units(query, keys, values, format, top):
    """One query over all tokens; and how many groups went through the element in each mode."""
    modes = []

    def dot(first, second):
        pairs = [narrowed(pair) for pair in attention_pairs(first, second)]
        modes.extend(pair.mode for pair in pairs)
        return Pe().dot(pairs).total

    def line(x):
        whole = Converter(8).convert(x, Path.channels).values
        return row(whole, 0, whole.magnitude[0])

    bits = reference.bits_of_tokens(format, len(keys))
    smooth = subtract(keys, OffsetGenerator(top).generate(keys[:32]).values)
    k, v = Converter(8).convert(smooth, Path.channels).values, Converter(8).convert(values, Path.tokens).values
    q = line(query)
    scores = torch.tensor([dot(q, row(k, token, cut(k.magnitude[token], bits[token]))) for token in range(len(keys))])
    scores = scores * SCALING
    weights = reference.exponential(scores - scores.max()).half()  # the vector unit's work
    p = line(weights[None])
    padded = torch.nn.functional.pad(bits, (0, p.magnitude.numel() - len(bits)), value=8).reshape(-1, 32)
    mixed = [dot(p, row(v, channel, cut(v.magnitude[channel], padded))) for channel in range(CHANNELS)]
    ones = BFPTensor(BFP(32, 8), p.shape, 0, torch.zeros_like(p.sign), torch.full_like(p.magnitude, 128),
                     torch.full_like(p.exponent, 15))  # fmt: skip
    return torch.tensor(mixed) / Pe().dot(attention_pairs(p, ones)).total, modes


@pytest.mark.parametrize(
    "name", ["bfp4", "bfp8", "bfp:m4", "bfp:m3:hi6:initial7:local5", "bfp:m2:hi4:initial0:local33"]
)
@pytest.mark.parametrize("tokens, top", [(115, 0), (21, 2), (140, 2)])
def test_the_native_caches_bits(name, tokens, top):
    query, keys, values = tensors(tokens)
    format = parse_kv(name).bfp
    native = BfpKvStore(format, 1, 1, CHANNELS, smoothed_channels=top)
    if tokens > 1:
        native.append(keys[None, None, :-1].float(), values[None, None, :-1].float())
    last = (x[None, None, -1:].float() for x in (query, keys, values))
    result, modes = on_units(query, keys, values, format, top)
    assert torch.equal(native.attend(*last, SCALING)[0, 0, 0], result)
    assert (Mode.m8m4 in modes) == (format.mantissa <= 4) or tokens < 97
    assert (Mode.m8m8 in modes) == (format.high > 4)
