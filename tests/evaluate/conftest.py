import pytest
import torch

from tests.evaluate.tiny import FAMILIES, SIZES, tiny_model, tiny_tokenizer


@pytest.fixture(params=FAMILIES)
def any_model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="session")
def model():
    return tiny_model()


@pytest.fixture(scope="session")
def other_model():
    return tiny_model(seed=1)


@pytest.fixture(scope="session")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def tokens():
    return torch.randint(SIZES["vocab_size"], [53], generator=torch.Generator().manual_seed(2))
