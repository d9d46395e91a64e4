"""The embedded default, for real: its perplexity as it comes, and compressed. Skipped where it cannot be had."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models.texts import TextUnavailableError, read_text

pytestmark = pytest.mark.slow
WINDOW = 2048


@pytest.fixture(scope="module")
def base():
    try:
        return load_model("smollm2-135m")
    except ModelUnavailableError as error:
        pytest.skip(str(error))


def perplexity(loaded, text, windows):
    tokens = torch.tensor(loaded.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    losses = []
    with torch.no_grad():
        for window in tokens[: windows * WINDOW].view(windows, WINDOW):
            losses.append(float(cross_entropy(loaded.model(window[None]).logits[0, :-1], window[1:])))
    return math.exp(sum(losses) / windows)


def test_perplexity_as_it_comes(base):
    try:
        text = read_text("wikitext2")
    except TextUnavailableError as error:
        pytest.skip(str(error))
    assert perplexity(base, text, 4) == pytest.approx(24.52, abs=0.02)


def test_weights_of_eight_bits_lose_little(base, tmp_path):
    compress_folder("smollm2-135m", tmp_path / "small", {"weights": {"format": "int8:g32"}})
    small = load_model(str(tmp_path / "small"))
    text = read_text("pydoc")
    assert perplexity(small, text, 1) == pytest.approx(perplexity(base, text, 1), rel=0.01)
    size = sum(path.stat().st_size for path in Path(tmp_path / "small").glob("*.safetensors"))
    assert size < 0.45 * 538e6
