import pytest
from transformers.utils import logging

from tests.models import tiny


@pytest.fixture(autouse=True, scope="session")
def _no_bars():
    logging.disable_progress_bar()


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory):
    """(folder with a tiny Llama and its tokenizer, text file)."""
    return tiny.save(tmp_path_factory.mktemp("llama") / "model")


@pytest.fixture(scope="session")
def recipe(llama_folder):
    """A recipe that needs calibration, with the tiny text."""
    calibration = {"text": str(llama_folder[1]), "sequences": 4, "length": 16}
    weights = {"format": "int4:g32", "density": 0.5, "prune": "wanda", "lm_head": "compress"}
    return {"weights": weights, "calibration": calibration}
