"""What the reproduction of Harmonia's hardware must keep."""

import pytest

from tests.paper.reproducing import reproduced
from tilepress.hardware import read_accelerator
from tilepress.paper.harmonia.experiments.rivals import rivals
from tilepress.simulate.arrays.costs import ARRAY, area


def test_averages_of_harmonia_are_within_ten_per_cent():
    cells = reproduced("harmonia/fig16-joint")
    for column in ("speed-up", "area efficiency", "energy efficiency"):
        assert abs(cells["average of all", column].deviation) < 0.1
    assert reproduced("harmonia/fig16-linear")["largest of a model", "speed-up"].state == "matches"


def test_rivals_have_the_area_of_harmonia():
    room = area(read_accelerator("harmonia"))[ARRAY]
    for rival in rivals():
        assert 0.9 * room < area(rival.machine)[ARRAY] <= room and rival.machine.node == 28


def test_the_synthesis_of_harmonia():
    cells = reproduced("harmonia/synthesis")
    assert all(one.state == "matches" for one in cells.values() if one.paper is not None)
    assert cells["Harmonia", "M8W4 and M8M4"].value == pytest.approx(2 * cells["Harmonia", "M8M8"].value)


def test_longer_texts_favour_harmonia():
    cells = reproduced("harmonia/fig19")
    speeds = [cells[f"{tokens} tokens over anda-m4", "speed-up"].value for tokens in (2048, 4096, 8192, 16384)]
    assert speeds == sorted(speeds) and cells["2K to 16K", "least speed-up"].state == "matches"


def test_shares_by_length():
    assert reproduced("harmonia/fig1")["Llama2-7B, 131072 tokens", "KV cache"].state == "matches"


def test_units_and_converter():
    assert reproduced("harmonia/converter")["online quantiser over BFP converter", "area"].value > 3
    assert reproduced("harmonia/fig17")["M8W4", "largest area efficiency"].state == "matches"
