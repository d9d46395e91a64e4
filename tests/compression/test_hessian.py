import pytest
import torch

from tests.compression.layers import statistics
from tilepress.compression.hessian import upper_factor


def test_the_factor_is_upper_and_of_the_damped_hessian():
    hessian = statistics(40).hessian
    factor = upper_factor(hessian)
    assert torch.equal(factor, factor.triu())
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(40)
    torch.testing.assert_close(factor @ factor.T, damped)


@pytest.mark.parametrize("hessian", [torch.zeros(5, 5), torch.ones(5, 5), torch.diag(torch.tensor([0.0, 1, 0, 2, 0]))])
def test_singular_hessians_have_a_factor(hessian):
    factor = upper_factor(hessian)
    assert bool(factor.isfinite().all()) and bool((factor.diagonal() > 0).all())


def test_damping_grows_until_there_is_a_factor():
    hessian = torch.eye(4) + 3 * (torch.ones(4, 4) - torch.eye(4))  # least eigenvalue -2, mean diagonal 1
    factor = upper_factor(hessian)
    torch.testing.assert_close(factor @ factor.T, hessian + 10 * torch.eye(4))


def test_what_is_no_hessian_is_refused():
    with pytest.raises(ValueError, match=r"Hessian of 2 inputs has no Cholesky factor, even with 10 times .* anew"):
        upper_factor(torch.tensor([[1.0, 50.0], [50.0, 1.0]]))
