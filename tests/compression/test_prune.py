import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.compression.layers import layer
from tilepress.compression import magnitude_mask, wanda_mask


def test_the_largest_magnitudes_of_each_row_are_kept():
    weight = torch.tensor([[1.0, -4.0, 2.0, 0.5], [0.0, 0.0, -1.0, 3.0]])
    assert magnitude_mask(weight, 0.5).tolist() == [[False, True, True, False], [False, False, True, True]]


def test_the_largest_magnitudes_of_the_layer_are_kept():
    weight = torch.tensor([[1.0, -4.0, 2.0, 0.5], [0.0, 0.0, -1.0, 3.0]])
    mask = magnitude_mask(weight, 0.5, "layer")
    assert mask.tolist() == [[True, True, True, False], [False, False, False, True]]


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_each_row_keeps_its_share_and_ties_go_to_the_first(density):
    mask = magnitude_mask(torch.ones(3, 100), density)
    assert mask.sum(1).tolist() == [round(100 * density)] * 3
    assert mask[:, : round(100 * density)].all()


def test_wanda_weighs_magnitudes_by_the_inputs():
    weight = torch.tensor([[1.0, -4.0, 2.0, 0.5]])
    assert wanda_mask(weight, torch.tensor([9.0, 1.0, 1.0, 20.0]), 0.5).tolist() == [[True, False, False, True]]
    assert torch.equal(wanda_mask(weight, torch.ones(4), 0.5), magnitude_mask(weight, 0.5))


def keep_by_sorting(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The slow obvious way: a stable sort puts the first of equal scores first."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, order[:, :count], True)


@given(
    rows=st.integers(1, 6),
    inputs=st.integers(1, 40),
    density=st.floats(0, 1),
    levels=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_masks_are_those_of_a_stable_sort(rows, inputs, density, levels, seed):
    """Few levels make many ties."""
    weight = (layer(rows, inputs, seed) * 20 * levels).round()
    norms = layer(1, inputs, seed + 1)[0].abs()
    count, all_count = round(density * inputs), round(density * rows * inputs)
    assert torch.equal(magnitude_mask(weight, density), keep_by_sorting(weight.abs(), count))
    assert torch.equal(wanda_mask(weight, norms, density), keep_by_sorting(weight.abs() * norms, count))
    whole = keep_by_sorting(weight.abs().view(1, -1), all_count).view(weight.shape)
    assert torch.equal(magnitude_mask(weight, density, "layer"), whole)


@pytest.mark.parametrize("density", [-0.1, 1.1, float("nan")])
def test_impossible_densities_are_refused(density):
    with pytest.raises(ValueError, match="between 0 and 1"):
        magnitude_mask(torch.ones(2, 2), density)
    with pytest.raises(ValueError, match="between 0 and 1"):
        wanda_mask(torch.ones(2, 2), torch.ones(2), density)


def test_unknown_scopes_and_wrong_norms_are_refused():
    with pytest.raises(ValueError, match="prune_scope is one of row, layer, not 'column'"):
        magnitude_mask(torch.ones(2, 2), 0.5, "column")
    with pytest.raises(ValueError, match=r"2 inputs need as many norms, not \[3\]"):
        wanda_mask(torch.ones(2, 2), torch.ones(3), 0.5)
