"""docs/models.md is what the script makes of small random models."""

import pytest

from tests.scripts import load_script

SCRIPT = load_script("benchmarks/supported_models.py")


@pytest.mark.parametrize("family", ["Llama", "Qwen3-MoE", "GPT-2", "LFM2", "T5"])
def test_rows_are_what_models_give(family):
    assert SCRIPT.row(family) in SCRIPT.PAGE.read_text("utf-8"), "run `python benchmarks/supported_models.py`"


def test_every_family_has_its_row():
    page = SCRIPT.PAGE.read_text("utf-8")
    assert page.startswith(SCRIPT.HEAD)
    rows = page.removeprefix(SCRIPT.HEAD).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows] == list(SCRIPT.FAMILIES)
