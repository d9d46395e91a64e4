"""Text from compressed models of every family: that of the same model with its weights unpacked, within rounding."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, pipeline

from tests.models import tiny
from tilepress.models import compress_model
from tilepress.models.linear_form import replace_layer
from tilepress.models.registration import packed_layers

pytestmark = pytest.mark.isas
NEW = 12  # with the prompt, more than the sliding windows of 8 hold
TOLERANCE = 3 * 2.0**-7  # kernels.error_bound grants each layer 2^-7


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def models(request, tmp_path_factory):
    """(the model as loaded from its folder, the same with ordinary layers, the folder)."""
    folder = tmp_path_factory.mktemp(request.param)
    compress_model(tiny.make(request.param), {"weights": {"format": "int8:g32"}}).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    packed = AutoModelForCausalLM.from_pretrained(folder)
    dense = copy.deepcopy(packed)
    for name, layer in list(packed_layers(dense)):
        replace_layer(dense, name, tiny.dense_layer(layer))
    return packed, dense, folder


def generate(model, tokens, **options):
    mask = (tokens != 0).long()
    how = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "output_scores": True, **options}
    return model.generate(tokens, attention_mask=mask, return_dict_in_generate=True, **how)


def padded(*lengths):
    tokens = tiny.windows(len(lengths), max(lengths))
    for row, length in zip(tokens, lengths, strict=True):
        row[: len(row) - length] = 0
    return tokens


@pytest.mark.parametrize("lengths", [(6,), (6, 3), (2, 7, 5)])
def test_greedy_choice(models, lengths):
    packed, dense, _ = models
    actual, expected = (generate(model, padded(*lengths)) for model in (packed, dense))
    for step, (ours, theirs) in enumerate(zip(actual.scores, expected.scores, strict=True)):
        finite = theirs.isfinite()
        assert torch.equal(ours.isfinite(), finite)
        assert (ours - theirs)[finite].norm() <= TOLERANCE * theirs[finite].norm()
        length = max(lengths) + step + 1
        if not torch.equal(actual.sequences[:, :length], expected.sequences[:, :length]):
            break  # two tokens alike: from here on they write different texts
    assert step >= 2


def test_padding_changes_nothing(models):
    packed, _, _ = models
    tokens = padded(3, 6)
    alone, together = generate(packed, tokens[:1, 3:]), generate(packed, tokens)
    first, other = alone.scores[0][0], together.scores[0][0]
    finite = first.isfinite()
    assert (first - other)[finite].norm() <= 1e-4 * first[finite].norm()


@torch.no_grad()
def mean_log_probability(model, sequences, prompts):
    """Of the tokens after the prompts, all at once and without a cache."""
    mask = torch.cat([(prompts != 0).long(), torch.ones(len(sequences), NEW, dtype=torch.long)], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    arguments = {} if model.config.model_type == "opt" else {"position_ids": positions}
    logits = model(sequences, attention_mask=mask, **arguments).logits[:, -NEW - 1 : -1]
    chosen = sequences[:, -NEW:, None]
    return logits.log_softmax(-1).gather(2, chosen).squeeze(2).mean(1)


@pytest.mark.parametrize("lengths", [(6,), (6, 3)])
def test_beam_search(models, lengths):
    """Which of two beams alike wins is rounding's choice; that each has the score of its own tokens is not."""
    packed, dense, _ = models
    prompts = padded(*lengths)
    actual = generate(packed, prompts, num_beams=3)
    expected = mean_log_probability(dense, actual.sequences, prompts)
    torch.testing.assert_close(actual.sequences_scores, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_pipelines_write_what_the_model_writes(models):
    packed, _, folder = models
    made = pipeline("text-generation", model=str(folder), tokenizer=tiny.tokenizer(), device="cpu", batch_size=2)
    prompts = ["w5 w6 w7", "w8"]
    how = {"max_new_tokens": NEW, "do_sample": False}
    texts = [replies[0]["generated_text"] for replies in made(prompts, **how)]
    tokens = made.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    expected = made.tokenizer.batch_decode(packed.generate(**tokens, **how), skip_special_tokens=True)
    assert ["".join(text.split()) for text in texts] == ["".join(text.split()) for text in expected]
