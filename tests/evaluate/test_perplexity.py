"""Perplexity in windows and batches is what scoring token by token gives."""

import math
import os

import pytest
import torch
from torch.nn import functional

from tests.evaluate.tiny import tiny_model
from tilepress.evaluate import Windowing, perplexity, reference, scoring, tokenize
from tilepress.evaluate.windows import cut
from tilepress.models import ModelUnavailableError, load_model
from tilepress.models.texts import TextUnavailableError, read_text

CASES = [
    Windowing(window=16),
    Windowing(window=16, batch=3),
    Windowing(window=16, stride=5),
    Windowing(window=16, stride=5, batch=4),
    Windowing(window=16, limit=2),
    Windowing(),
    Windowing(window=16, begin=3),
    Windowing(window=16, stride=5, batch=4, begin=3),
    Windowing(begin=3),
]


@pytest.mark.parametrize("windowing", CASES, ids=str)
def test_windows_and_batches_give_what_single_tokens_give(any_model, tokens, windowing):
    length = (windowing.window or 128) - (windowing.begin is not None)
    windows = list(cut(len(tokens), length, windowing.stride or length, windowing.begin))[: windowing.limit]
    expected = torch.tensor(reference.losses(any_model, tokens.tolist(), windows), dtype=torch.float64)
    measured = perplexity(any_model, tokens, windowing)
    assert measured.tokens == len(expected)
    assert measured.loss.value == pytest.approx(expected.mean().item(), abs=2e-6)
    assert measured.perplexity.value == pytest.approx(expected.mean().exp().item(), rel=2e-6)
    error = expected.std().item() / math.sqrt(len(expected))
    assert measured.loss.error == pytest.approx(error, rel=1e-5)
    assert measured.perplexity.error == pytest.approx(measured.perplexity.value * error, rel=1e-5)


@torch.no_grad()
def perplexity_by_transformers(model, tokens, length, stride):
    """The loop that transformers' own documentation has: losses of `labels`, context masked by -100."""
    loss, counted, before = 0.0, 0, 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + length, len(tokens))
        ids = tokens[None, begin:end]
        labels = ids.clone()
        labels[:, : before - begin] = -100
        count = int((labels[:, 1:] != -100).sum())
        if count:
            loss += float(model(ids, labels=labels).loss) * count
        counted, before = counted + count, end
        if end == len(tokens):
            break
    return math.exp(loss / counted)


@pytest.mark.parametrize(("length", "stride"), [(16, 16), (16, 5), (32, 32)])
def test_it_is_what_a_plain_loop_of_transformers_gives(any_model, tokens, length, stride):
    expected = perplexity_by_transformers(any_model, tokens, length, stride)
    measured = perplexity(any_model, tokens, Windowing(window=length, stride=stride))
    assert measured.perplexity.value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk_bytes", [1, 5000, 16 << 20])
def test_losses_in_chunks_are_torch_cross_entropy(monkeypatch, dtype, chunk_bytes):
    monkeypatch.setattr(scoring, "CHUNK_BYTES", chunk_bytes)
    logits = (torch.randn(2, 33, 301, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
    targets = torch.arange(66).reshape(2, 33)
    expected = functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten(), reduction="none")
    torch.testing.assert_close(scoring.losses(logits, targets).flatten().double(), expected, atol=3e-6, rtol=1e-6)


def test_chunks_bound_what_is_made_beside_the_logits():
    logits = torch.empty(2, 2047, 49152, device="meta")
    sizes = [logits[:, part].numel() * 4 for part in scoring.position_chunks(logits)]
    assert sum(sizes) == logits.numel() * 4 and max(sizes) <= scoring.CHUNK_BYTES


def test_only_the_positions_that_count_reach_the_output_layer(model, tokens):
    seen = []
    hook = model.get_output_embeddings().register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    perplexity(model, tokens, Windowing(window=16, stride=4, limit=3))
    hook.remove()
    assert seen == [16, 5, 5]


def test_a_model_that_cannot_leave_positions_out_gives_the_same(model, tokens, monkeypatch):
    windowing = Windowing(window=16, stride=4)
    expected = perplexity(model, tokens, windowing)
    whole = type(model).forward

    def forward(self, input_ids):
        return whole(self, input_ids=input_ids)

    monkeypatch.setattr(type(model), "forward", forward)
    assert perplexity(model, tokens, windowing).loss.value == pytest.approx(expected.loss.value, abs=1e-6)


def test_the_model_runs_with_its_own_cache_and_without_gradients(model, tokens):
    seen = []
    hook = model.register_forward_hook(lambda _, __, output: seen.append(output))
    perplexity(model, tokens, Windowing(window=16, limit=1))
    hook.remove()
    assert seen[0].past_key_values.get_seq_length() == 16 and seen[0].logits.is_inference()


def test_a_text_shorter_than_a_window_and_one_of_two_tokens(model, tokens):
    assert perplexity(model, tokens[:10], Windowing(window=16)).tokens == 9
    shortest = perplexity(model, tokens[:2])
    assert shortest.tokens == 1 and math.isnan(shortest.perplexity.error)


def test_track_sees_every_batch(model, tokens):
    seen = []
    perplexity(model, tokens, Windowing(window=16, batch=2), track=lambda batches: seen.extend(batches) or batches)
    assert [len(batch) for batch in seen] == [2, 1, 1]


def test_a_model_that_gives_no_numbers_is_refused(tokens):

    broken = tiny_model()
    broken.model.norm.weight.data.fill_(math.nan)
    with pytest.raises(ValueError, match=r"not a number \(NaN\) on this text"):
        perplexity(broken, tokens)


@pytest.mark.slow
def test_the_embedded_model_on_wikitext():
    """24.52: first 4 windows of 2048 tokens, joined raw, no BOS, float32."""
    if not os.environ.get("TILEPRESS_DATA"):
        pytest.skip("needs wikitext2-test.txt in the folder TILEPRESS_DATA")
    try:
        text = read_text("wikitext2")
        loaded = load_model("smollm2-135m", dtype=torch.float32)
    except (TextUnavailableError, ModelUnavailableError) as error:
        pytest.skip(str(error))
    tokens = tokenize(loaded.tokenizer, text)
    measured = perplexity(loaded.model, tokens, Windowing(limit=4))
    assert measured.tokens == 4 * 2047
    assert measured.perplexity.value == pytest.approx(24.52, abs=0.02)
    plain = perplexity_by_transformers(loaded.model, tokens[: 4 * 2048], 2048, 2048)
    assert measured.perplexity.value == pytest.approx(plain, abs=1e-3)
