"""Windows of text, and what blocks are given."""

import pytest
import torch

from tests.models import tiny
from tilepress.models.blocks import find_blocks
from tilepress.models.calibration import CalibrationError, find_chain, first_inputs, statistics_of, token_windows


def test_windows_are_of_the_text_and_chosen_by_the_seed():
    tokens = torch.arange(100)
    found = token_windows(tokens, 8, 10, seed=0)
    assert found.shape == (8, 10) and bool((found.diff(dim=1) == 1).all())
    assert torch.equal(found, token_windows(tokens, 8, 10, seed=0))
    assert not torch.equal(found, token_windows(tokens, 8, 10, seed=1))
    assert torch.equal(token_windows(tokens, 1, 100, seed=0)[0], tokens)
    with pytest.raises(CalibrationError, match=r"has 100 tokens, fewer than calibration.length 101"):
        token_windows(tokens, 8, 101, seed=0)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_running_blocks_one_by_one_is_running_the_model(family):
    model, tokens = tiny.make(family), tiny.windows(2)
    blocks = list(find_blocks(model).values())
    expected = []
    blocks[-1].register_forward_hook(lambda _, __, y: expected.append(y[0] if isinstance(y, tuple) else y))
    with torch.no_grad():
        chain = find_chain(model, blocks, tokens[0])
        found = []
        for hidden in first_inputs(model, blocks[0], tokens):
            for call, block in zip(chain.calls, blocks, strict=True):
                hidden = call(block, hidden)
            found.append(hidden)
        expected.clear()
        for window in tokens:
            model(window[None])
    torch.testing.assert_close(torch.cat(found), torch.cat(expected))


def test_layers_with_the_same_input_share_statistics():
    model, tokens = tiny.make("llama"), tiny.windows(2)
    attention = model.model.layers[0].self_attn
    layers = {name: getattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    with torch.no_grad():
        found = statistics_of(layers, [lambda w=w: model(w[None]) for w in tokens], hessian=True)
    assert found["q_proj"] is found["k_proj"] is found["v_proj"] and found["o_proj"] is not found["q_proj"]
    assert found["q_proj"].count == found["o_proj"].count == tokens.numel()
    assert not attention.q_proj._forward_pre_hooks
