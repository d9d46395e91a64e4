"""Our models in the engine, timed: every loop ends."""

import pytest
import torch
from tests.engine.families import make
from tests.models import mixtures

from tilepress.bench.engine_writer import EngineWriter, writer
from tilepress.bench.model import TransformersWriter


def test_a_time_for_each_token():
    times = EngineWriter(make("llama"), "float32").write(torch.randint(3, 90, (3, 20)), 7)
    assert len(times) == 8 and times == sorted(times)


def test_answers_that_end_early_are_an_error():
    with pytest.raises(RuntimeError, match="an answer ended after 8 of 20 tokens"):
        EngineWriter(make("llama"), "float32").write(torch.randint(3, 90, (2, 120)), 20)
    with pytest.raises(RuntimeError, match="the prompt has 130 tokens, and there is room for 127"):
        EngineWriter(make("llama"), "float32").write(torch.randint(3, 90, (2, 130)), 5)


def test_what_the_engine_does_not_take_is_left_to_transformers():
    assert isinstance(writer(mixtures.make("olmoe")), TransformersWriter)
    assert isinstance(writer(make("llama"), "fp16"), TransformersWriter)
    assert isinstance(writer(make("llama"), "bfp8"), EngineWriter)
