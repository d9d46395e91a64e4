"""Experts as linear layers, against transformers' own."""

import copy
import pickle

import pytest
import torch
from tests.models import mixtures

from tilepress.models.linear_form import to_linear_form
from tilepress.nn import PackedExperts


def routed(family, tokens=24):
    """A family's experts, and what its router might give them."""
    model = mixtures.make(family)
    plain = next(module for name, module in model.named_modules() if name.endswith("experts"))
    torch.manual_seed(3)
    hidden, weights = torch.randn(tokens, 64), torch.rand(tokens, 2)
    chosen = torch.stack([torch.randperm(4)[:2] for _ in range(tokens)])
    return plain, (hidden, chosen, weights)


@pytest.mark.parametrize("family", [family for family in mixtures.FAMILIES if family != "llama4"])
def test_the_linear_form_computes_what_the_experts_did(family):
    plain, inputs = routed(family)
    plain.config._experts_implementation = "eager"
    expected = plain(*inputs)
    holder = torch.nn.ModuleDict({"experts": plain})
    parts = to_linear_form(holder)
    experts = holder["experts"]
    assert isinstance(experts, PackedExperts) and len(experts.layer_names) == 8
    assert {part.key for part in parts.values()} == {f"experts.{name}" for name, _ in plain.named_parameters()}
    torch.testing.assert_close(experts(*inputs), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(copy.deepcopy(experts)(*inputs), experts(*inputs))
    assert torch.equal(pickle.loads(pickle.dumps(experts))(*inputs), experts(*inputs))


def test_llama4_gives_every_expert_all_tokens():
    plain, (hidden, *_) = routed("llama4")
    scores = torch.zeros(4, 24, 1).scatter_(0, torch.arange(24).view(1, 24, 1) % 3, 0.5)  # the last expert sees none
    inputs = (hidden * scores).view(-1, 64)
    expected = plain(inputs)
    holder = torch.nn.ModuleDict({"experts": plain})
    to_linear_form(holder)
    torch.testing.assert_close(holder["experts"](inputs), expected, rtol=1e-4, atol=1e-5)


def test_each_layer_is_given_the_tokens_of_its_expert_alone():
    plain, (hidden, chosen, weights) = routed("qwen3_moe")
    holder = torch.nn.ModuleDict({"experts": plain})
    to_linear_form(holder)
    seen = {}
    for number in range(4):
        layer = holder["experts"].get_submodule(f"{number}.gate_up_proj")
        layer.register_forward_pre_hook(lambda _, x, number=number: seen.update({number: x[0]}))
    holder["experts"](hidden, chosen, weights)
    for number, x in seen.items():
        rows = (chosen == number).any(1).nonzero().flatten()
        assert sorted(map(tuple, x.tolist())) == sorted(map(tuple, hidden[rows].tolist()))


def test_an_expert_that_nobody_chooses_is_not_run():
    plain, (hidden, chosen, weights) = routed("qwen3_moe")
    holder = torch.nn.ModuleDict({"experts": plain})
    to_linear_form(holder)
    holder["experts"].get_submodule("3.gate_up_proj").register_forward_pre_hook(lambda *_: pytest.fail("it was run"))
    outputs = holder["experts"](hidden, chosen.clamp(max=2), weights)
    assert outputs.shape == hidden.shape
    none = holder["experts"](hidden, torch.full_like(chosen, 4), weights)  # no expert's number
    assert not none.any()
