"""An exported file as llama.cpp reads it: the same next tokens as the packed model's. Skipped without llama.cpp."""

import pytest
import torch
from torch import nn

from tests.models import tiny
from tests.models.export.models import compressed, give_byte_level_tokenizer
from tilepress.models import load_model
from tilepress.models.export import export_folder
from tilepress.models.registration import unpack_layers

pytest.importorskip("gguf")
llama_cpp = pytest.importorskip("llama_cpp")
GROUP, LARGEST = 32, 127  # of Q8_0, to which llama.cpp rounds what a layer of blocks is given
BLOCKS = ["int4:g32", "int3:g32", "int8:g32", "mxfp4"]
# Format → how far logits may be apart, as a share of their spread: llama.cpp rounds inputs, to 8 bits for blocks.
FARTHEST = dict.fromkeys(BLOCKS, 0.06) | {"bf16": 0.02, "fp16": 0.005}


def of_llama_cpp(path, tokens):
    """float32 [tokens, vocabulary]: logits after each token."""
    model = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, n_threads=1, verbose=False)
    model.eval(tokens.tolist())
    return torch.from_numpy(model.scores[: len(tokens)].copy())


def in_eight_bits(_, arguments):
    groups = arguments[0].unflatten(-1, (-1, GROUP))
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-20) / LARGEST
    return ((groups / scales).round() * scales.half().float()).flatten(-2)


def distance(ours, theirs):
    return float((theirs - ours).std() / ours.std())


@pytest.mark.parametrize("format", FARTHEST)
def test_next_tokens(tmp_path, format):
    small = compressed(tmp_path, {"format": format})
    give_byte_level_tokenizer(small)
    export_folder(small, tmp_path / "small.gguf", "gguf")
    tokens, model = tiny.windows()[0], load_model(str(small), dtype=torch.float32).model
    theirs, ours = of_llama_cpp(tmp_path / "small.gguf", tokens), model(tokens[None]).logits[0].detach()
    assert theirs.shape == ours.shape and ours.std() > 0.5
    assert distance(ours, theirs) < FARTHEST[format]
    best, second = ours.topk(2).values.T
    is_clear = best - second > 0.2 * ours.std()  # closer ones may change places
    assert is_clear.sum() >= 6 and torch.equal(theirs.argmax(-1)[is_clear], ours.argmax(-1)[is_clear])


@pytest.mark.parametrize("format", BLOCKS)
def test_what_differs_is_how_inputs_are_rounded(tmp_path, format):
    """llama.cpp's logits are as far from the packed model's as those are that its weights give with inputs rounded so,
    and nearer to these. Not equal to them: an input between two steps goes one way here and the other way there."""
    small = compressed(tmp_path, {"format": format})
    give_byte_level_tokenizer(small)
    export_folder(small, tmp_path / "small.gguf", "gguf")
    tokens, model = tiny.windows()[0], load_model(str(small), dtype=torch.float32).model
    theirs, plain = of_llama_cpp(tmp_path / "small.gguf", tokens), model(tokens[None]).logits[0].detach()
    dense = unpack_layers(model)
    for layer in dense.model.layers.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(in_eight_bits)
    rounded = dense(tokens[None]).logits[0].detach()
    assert 0.7 < distance(plain, theirs) / distance(plain, rounded) < 1.4
    assert distance(rounded, theirs) < 0.85 * distance(plain, theirs)
