"""Windows of text, and what blocks are given."""

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig, Gemma4ForCausalLM, Gemma4TextConfig

from tests.models import tiny
from tilepress.models import compress_model, read_recipe
from tilepress.models import layer as layers
from tilepress.models.blocks import find_blocks
from tilepress.models.calibration import CalibrationError, find_chain, first_inputs, token_windows
from tilepress.models.compress import read_windows
from tilepress.models.layer_inputs import statistics_of

LAYERS = ["sliding_attention", "full_attention"] * 2
# Embeddings of the tokens for each block, beside the hidden states.
PER_LAYER = {
    **{key: value for key, value in tiny.GATED.items() if key != "num_hidden_layers"},
    "num_hidden_layers": len(LAYERS),
    "layer_types": LAYERS,
    "head_dim": 16,
    "sliding_window": 8,
    "vocab_size_per_layer_input": tiny.VOCABULARY,
    "hidden_size_per_layer_input": 8,
}


def gemma4(shared=0):
    """`shared`: blocks at the end that use the keys and values of earlier ones."""
    return Gemma4ForCausalLM(Gemma4TextConfig(**PER_LAYER, global_head_dim=16, num_kv_shared_layers=shared))


def gemma3n():
    """Hidden states of four streams, [4, 1, length, hidden]."""
    return Gemma3nForCausalLM(Gemma3nTextConfig(**PER_LAYER, num_kv_shared_layers=2, laurel_rank=8))


FAMILIES = {
    **tiny.FAMILIES,
    "gemma4": gemma4,
    "gemma4, shared keys": lambda: gemma4(shared=2),
    "gemma3n": gemma3n,
}


def make(family):
    torch.manual_seed(0)
    return FAMILIES[family]().eval()


def test_windows_are_of_the_text_and_chosen_by_the_seed():
    tokens = torch.arange(100)
    windows = token_windows(tokens, 8, 10, seed=0)
    assert windows.shape == (8, 10) and bool((windows.diff(dim=1) == 1).all())
    assert torch.equal(windows, token_windows(tokens, 8, 10, seed=0))
    assert not torch.equal(windows, token_windows(tokens, 8, 10, seed=1))
    assert torch.equal(token_windows(tokens, 1, 100, seed=0)[0], tokens)
    with pytest.raises(CalibrationError, match=r"has 100 tokens, fewer than calibration.length 101"):
        token_windows(tokens, 8, 101, seed=0)
    begun = token_windows(tokens, 8, 10, seed=0, begin=7)
    assert torch.equal(begun[:, 1:], windows[:, :-1]) and bool((begun[:, 0] == 7).all())


@pytest.mark.parametrize("adds_bos", [False, True])
def test_windows_begin_as_the_tokenizer_begins_a_text(adds_bos):
    tokenizer = tiny.tokenizer()
    if adds_bos:
        template = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)])
        tokenizer.backend_tokenizer.post_processor = template
    recipe = read_recipe({"calibration": {"sequences": 4, "length": 16}})
    windows = read_windows(recipe, tokenizer, tiny.text())
    assert windows.shape == (4, 16)
    assert bool((windows[:, 0] == tokenizer.bos_token_id).all()) is adds_bos
    assert not bool((windows[:, 1:] == tokenizer.bos_token_id).any())


@pytest.mark.parametrize("family", FAMILIES)
def test_running_blocks_one_by_one_is_running_the_model(family):
    model, tokens = make(family), tiny.windows(3)
    blocks = list(find_blocks(model).values())
    expected = []
    blocks[-1].register_forward_hook(lambda _, __, y: expected.append(y[0] if isinstance(y, tuple) else y))
    with torch.no_grad():
        chain = find_chain(model, blocks, tokens)
        hidden, states = list(first_inputs(model, blocks[0], tokens)), [{}] * len(tokens)
        for number in range(len(blocks)):
            runs = list(chain.runs(number, tokens, hidden, states))
            hidden, states = [run() for run in runs], [run.state for run in runs]
        expected.clear()
        for window in tokens:
            model(window[None])
    torch.testing.assert_close(torch.cat(hidden), torch.cat(expected))


def test_layers_with_the_same_input_share_statistics():
    model, tokens = tiny.make("llama"), tiny.windows(2)
    attention = model.model.layers[0].self_attn
    layers = {name: getattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    with torch.no_grad():
        statistics = statistics_of(layers, [lambda w=w: model(w[None]) for w in tokens], hessian=True)
    assert (
        statistics["q_proj"] is statistics["k_proj"] is statistics["v_proj"]
        and statistics["o_proj"] is not statistics["q_proj"]
    )
    assert statistics["q_proj"].count == statistics["o_proj"].count == tokens.numel()
    assert not attention.q_proj._forward_pre_hooks


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_are_computed_anew_only_where_tokens_change_them(family):
    model = make(family)
    blocks = list(find_blocks(model).values())
    assert find_chain(model, blocks, tiny.windows(3)).varies == (family not in tiny.FAMILIES)
    same = tiny.windows(1).expand(3, -1)
    assert not find_chain(model, blocks, same).varies


@pytest.mark.parametrize("family", ["gemma4, shared keys", "gemma3n"])
def test_a_model_with_token_embeddings_for_each_block_is_compressed(family):
    """The inputs of a block's layers, of all windows, are those that the whole model gives them."""
    model, tokens = make(family), tiny.windows(3)
    layer = model.model.layers[-1].per_layer_projection
    inputs = []
    with torch.no_grad():
        handle = layer.register_forward_pre_hook(lambda _, x: inputs.append(x[0].flatten(0, -2)))
        for window in tokens:
            model(window[None])
        handle.remove()
    expected = torch.cat(inputs).square().mean(0).sqrt()
    norms, real = [], layers.compress_weight
    name = f"model.layers.{len(LAYERS) - 1}.per_layer_projection"

    def spy(weight, plan, statistics):
        if weight.data_ptr() == layer.weight.data_ptr():
            norms.append(statistics.norms)
        return real(weight, plan, statistics)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "compress_weight", spy)
        compress_model(model, {"weights": {"format": "bf16", "density": 0.99, "prune": "wanda"}}, windows=tokens)
    assert name in model.config.quantization_config.layers
    assert (norms[0] - expected).norm() <= 0.2 * expected.norm()  # earlier blocks lost 1 % of their weights
    assert bool(model(tokens).logits.isfinite().all())


def test_keys_of_earlier_blocks_that_are_gone_are_said():
    model, tokens = make("gemma4, shared keys"), tiny.windows(2)
    blocks = list(find_blocks(model).values())
    with torch.no_grad():
        chain = find_chain(model, blocks, tokens)
        hidden = list(first_inputs(model, blocks[0], tokens))
        run = next(chain.runs(3, tokens, hidden, [{}, {}]))
        with pytest.raises(CalibrationError, match=r"misses 'full_attention' of the blocks before it: .* interrupted"):
            run()
