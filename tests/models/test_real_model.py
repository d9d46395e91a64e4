"""The embedded default, for real: its perplexity as it comes, and compressed. Skipped where it cannot be had."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from tilepress import kernels, tiles
from tilepress.formats import BFP, Anda
from tilepress.formats.bfp import encode, rounded
from tilepress.kernels import reference
from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models.blocks import linear_layers
from tilepress.models.precision import window_perplexity
from tilepress.models.tensor_types import classify, layer_formats
from tilepress.models.texts import TextUnavailableError, read_text
from tilepress.nn import emulated

pytestmark = pytest.mark.slow
WINDOW, SHORT = 2048, 512


@pytest.fixture(scope="module")
def base():
    try:
        return load_model("smollm2-135m")
    except ModelUnavailableError as error:
        pytest.skip(str(error))


def perplexity(loaded, text, windows, window=WINDOW):
    tokens = torch.tensor(loaded.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    losses = []
    with torch.no_grad():
        for part in tokens[: windows * window].view(windows, window):
            losses.append(float(cross_entropy(loaded.model(part[None]).logits[0, :-1], part[1:])))
    return math.exp(sum(losses) / windows)


def test_perplexity_as_it_comes(base):
    try:
        text = read_text("wikitext2")
    except TextUnavailableError as error:
        pytest.skip(str(error))
    assert perplexity(base, text, 4) == pytest.approx(24.52, abs=0.02)


@pytest.fixture(scope="module")
def expected(base):
    """The perplexity of a short text as the model comes."""
    return perplexity(base, read_text("pydoc"), 1, SHORT)


def test_weights_of_eight_bits_and_of_the_four_that_they_came_with_lose_little(expected, tmp_path):
    """The model came from a Q4_1 file, whose weights are d · q + m. Both formats in one model: each loses less."""
    four = {"match": "*.mlp.*", "format": "uint4:g32"}
    weights = {"format": "int8:g32", "clip_search": False, "override": [four]}  # a search takes long
    compress_folder("smollm2-135m", tmp_path / "small", {"weights": weights})
    small = load_model(str(tmp_path / "small"))
    assert perplexity(small, read_text("pydoc"), 1, SHORT) == pytest.approx(expected, rel=0.005)
    size = sum(path.stat().st_size for path in Path(tmp_path / "small").glob("*.safetensors"))
    assert size < 0.22 * 538e6


@torch.no_grad()
def inputs_of_layers(model, tokens, block):
    """Name → what each linear layer of a block is given."""
    inputs = {}
    layers = {name: layer for name, layer in linear_layers(model).items() if f".layers.{block}." in name}
    handles = [
        layer.register_forward_pre_hook(lambda _, x, name=name: inputs.__setitem__(name, x[0][0]))
        for name, layer in layers.items()
    ]
    model(tokens[None])
    for handle in handles:
        handle.remove()
    return {name: (layers[name].weight, x) for name, x in inputs.items()}


@pytest.mark.parametrize("block", [0, 29])
def test_anda_natively_and_by_emulation_on_real_activations(base, block):
    """The same integers, and outputs that differ by the order of float32 additions alone."""
    tokens = torch.tensor(base.tokenizer(read_text("pydoc")[:2000])["input_ids"])[:24]
    for name, (weight, x) in inputs_of_layers(base.model, tokens, block).items():
        matrix = tiles.pack(weight, "int4:g32")
        dense = tiles.unpack(matrix)
        for mantissa in (5, 8, 13):
            format = BFP(64, mantissa)
            native = kernels.linear(x, matrix, activations=str(format))
            assert torch.equal(native[:6], reference.linear_integer(x[:6], matrix, format)), name
            values = rounded(x, format)
            bound = x.shape[1] * 2.0**-23 * values.abs().double() @ dense.abs().double().T
            assert ((native.double() - torch.nn.functional.linear(values, dense).double()).abs() <= bound).all(), name
            assert_group_dots_are_equal(x, values, matrix, format)


def assert_group_dots_are_equal(x, values, matrix, format):
    """Sums over each segment of inputs that share all scales: of the format's integers, and of emulated values."""
    blocks, segment = encode(x, format), 32
    signed = torch.where(blocks.sign, -blocks.magnitude, blocks.magnitude).flatten(1)[:, : x.shape[1]]
    codes = reference._integer_weights(matrix)[0]
    exact = (signed.long().view(len(x), -1, segment).transpose(0, 1)) @ codes.view(len(codes), -1, segment).permute(
        1, 2, 0
    )
    unit = 2.0 ** (blocks.exponent.double().clamp(min=1) - 15 - (format.mantissa - 1))
    scaled = (values.double() / unit.repeat_interleave(format.group, 1)[:, : x.shape[1]]).view(len(x), -1, segment)
    emulated = scaled.transpose(0, 1) @ codes.double().view(len(codes), -1, segment).permute(1, 2, 0)
    assert torch.equal(exact.double(), emulated)


def test_anda_loses_little_on_real_text(base):
    """Thirteen bits are lossless for all that it matters, seven nearly so, four are not."""
    tokens = torch.tensor(base.tokenizer(read_text("pydoc")[:2000])["input_ids"])[:256][None]
    types = classify(base.model)
    losses = [window_perplexity(base.model, tokens)]
    for bits in (13, 7, 4):
        with emulated(base.model, layer_formats(types, Anda((bits,) * 4))):
            losses.append(window_perplexity(base.model, tokens))
    assert losses[1] == pytest.approx(losses[0], rel=0.002) and losses[2] == pytest.approx(losses[0], rel=0.05)
    assert losses[2] < losses[3]
