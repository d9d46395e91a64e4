import pytest
import torch

from tilepress.compress import magnitude_mask


def test_the_largest_magnitudes_of_each_row_are_kept():
    weight = torch.tensor([[1.0, -4.0, 2.0, 0.5], [0.0, 0.0, -1.0, 3.0]])
    assert magnitude_mask(weight, 0.5).tolist() == [[False, True, True, False], [False, False, True, True]]


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_each_row_keeps_its_share_and_ties_go_to_the_first(density):
    mask = magnitude_mask(torch.ones(3, 100), density)
    assert mask.sum(1).tolist() == [round(100 * density)] * 3
    assert mask[:, : round(100 * density)].all()


@pytest.mark.parametrize("density", [-0.1, 1.1])
def test_impossible_densities_are_refused(density):
    with pytest.raises(ValueError, match="between 0 and 1"):
        magnitude_mask(torch.ones(2, 2), density)
