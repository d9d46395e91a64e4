"""Harmonia's element in hardware: the clocked model's bits and cycles in its three modes, and the kernels' bits."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import vectors
from tests.rtl.data import halves, to_bits
from tests.rtl.harmonia.products import GROUP, Product, any_product, assert_as_modelled, linear_product, run
from tests.simulate.units.matrices import neurons
from tilepress import kernels
from tilepress.formats.bfp import BFP, encode
from tilepress.rtl.harmonia.pe import PeParameters
from tilepress.simulate.units import harmonia_pe
from tilepress.simulate.units.harmonia_pe import Mode, Pair


@pytest.mark.parametrize("intermediate", ["fp32", "fp16"])
def test_the_models_bits_and_cycles(intermediate):
    random = np.random.default_rng(0)
    products = [any_product(random) for _ in range(vectors(40))]
    assert {pair.mode for product in products for pair in product.pairs} == set(Mode)
    assert_as_modelled(products, intermediate)


def test_the_kernels_bits():
    random, products, expected = np.random.default_rng(1), [], []
    for seed in range(vectors(25)):
        mantissa, inputs = int(random.integers(1, 9)), int(random.integers(1, 200))
        x, (matrix, (weights,)) = torch.from_numpy(halves(random, inputs)), neurons(1, inputs, GROUP, seed)
        products.append(linear_product(encode(x, BFP(GROUP, mantissa)), weights))
        expected.append(kernels.linear(x.float(), matrix, activations=f"bfp:g32:m{mantissa}").item())
    assert [total for total, _ in run(products)] == [to_bits(value) for value in expected]


def test_pairs_that_come_with_pauses():
    random = np.random.default_rng(2)
    products = [any_product(random) for _ in range(vectors(10))]
    steady = [total for total, _ in run(products)]
    assert [total for total, _ in run(products, pauses=lambda: int(random.integers(3)))] == steady


@pytest.mark.parametrize("mode, right", [(Mode.m8w4, -8), (Mode.m8m4, 15), (Mode.m8m4, -15), (Mode.m8m8, 255)])
def test_the_largest_sums(mode, right):
    pairs = [Pair(mode, np.full(GROUP, -255), np.full(GROUP, right), 0)] * 5
    product = Product(pairs, [(15 + 7, 15 + 7, 1.0)] * 5, {mode: (8, 8)})
    ((total, cycles),) = run([product])
    assert total == to_bits(5 * GROUP * -255 * right)
    assert cycles == harmonia_pe.cycles([mode] * 5)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"group": 2}, "group must be an int from 4 to 128, got 2"),
        ({"lanes": 0}, "lanes must be an int from 1 to 8, got 0"),
        ({"lanes": 16}, "lanes must be an int from 1 to 8, got 16"),  # sums come faster than they are taken
        ({"lanes": 5}, "a group of 32 pairs is no multiple of 5 lanes"),
        ({"intermediate": "int"}, "intermediate must be one of 'fp32', 'fp16', got 'int'"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        PeParameters(**change)
