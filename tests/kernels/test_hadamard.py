"""The fast transform against the matrix, and the native one against both."""

import pytest
import torch
from tests.kernels.kv_cases import tensors

from tilepress.formats import FormatError
from tilepress.formats.kv import KvBfp
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.hadamard import matrix, transform


@pytest.mark.parametrize("channels", [16, 32, 64, 80, 96, 128, 256, 288])
def test_the_fast_transform_is_the_matrix(channels):
    whole = matrix(channels)
    assert torch.allclose(whole @ whole.T, torch.eye(channels, dtype=torch.float64), atol=1e-12)
    assert torch.equal(whole, whole.T)
    x = torch.randn(3, 5, channels, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(transform(x).double(), x.double() @ whole, atol=1e-6)


def test_blocks_are_the_largest_powers_of_two_that_divide_a_head():
    sizes = {channels: int((matrix(channels)[0] != 0).sum()) for channels in (16, 64, 80, 96, 128, 288)}
    assert sizes == {16: 16, 64: 64, 80: 16, 96: 32, 128: 128, 288: 32}


@pytest.mark.parametrize(("channels", "block"), [(40, 8), (100, 4), (7, 1)])
def test_heads_that_hardly_can_be_divided_are_refused(channels, block):
    with pytest.raises(FormatError, match=f"{channels} channels cannot be rotated: .* is {block}, .*leave rotate out"):
        transform(torch.zeros(2, channels))


def test_halves_are_rotated_as_floats():
    x = torch.randn(4, 64).to(torch.bfloat16)
    assert torch.equal(transform(x), transform(x.float()))


def test_attention_stays_what_it_is():
    """Over floats, to their accuracy."""
    (query,), (keys,), (values,) = (part.flatten(0, 1) for part in tensors(200, heads=1, rows=1))
    plain, rotated = (
        torch.softmax(q @ k.T * 0.125, -1) @ values for q, k in ((query, keys), (transform(query), transform(keys)))
    )
    assert torch.allclose(rotated, plain, atol=1e-5 * float(values.abs().max()))


def test_an_outlier_takes_no_bits_of_others():
    (query,), (keys,), (values,) = (part.flatten(0, 1) for part in tensors(200, heads=1, rows=1))
    keys[:, 5] += 30.0 * torch.randn(200, generator=torch.Generator().manual_seed(1))
    exact = torch.softmax(query.double() @ keys.double().T * 0.125, -1) @ values.double()
    naive, rotated = (
        reference.attend(query, keys, values, KvBfp(4, 4), 0.125, rotated=rotated) for rotated in (False, True)
    )
    assert (rotated - exact).norm() < 0.8 * (naive - exact).norm()
