"""Costs of synthesised units: what is kept, from which records, in which unit, and how it scales."""

import math
import re

import pytest

from tests.scripts import load_script
from tilepress.hardware.synthesised import SYNTHESIS, cost, costs
from tilepress.hardware.technology import area_scale, energy_scale
from tilepress.records import from_json

SCRIPT = load_script("benchmarks/synth.py")
RECORDS = SCRIPT.RESULTS / "asap7.json"


def records():
    return from_json(RECORDS.read_text("utf-8"), RECORDS)


def test_what_is_kept_is_what_the_records_say():
    assert SYNTHESIS.read_text("utf-8") == SCRIPT.costs_text(records())
    for one in records():
        if one.metric == "area":
            settings = {name: label for name, label in one.labels.items() if name not in ("unit", "library")}
            assert cost(one.labels["unit"], settings).area == one.value


def test_every_design_of_the_script_is_there():
    for name, *settings in SCRIPT.DESIGNS:
        asked = dict(one.split("=") for one in settings)
        assert any(one.has(asked) for one in costs(name)), (name, asked)


def test_a_cost():
    """Literally, so that no figure changes unseen."""
    apu = cost("anda-apu", {"mantissa": 16})
    assert (apu.area, apu.delay, apu.memory_bits, apu.settings["lanes"]) == (1267.68726, 4748.14, 0, "64")
    element = cost("deca-pe", {"W": 32, "L": 8})
    assert element.area == 5709.61548 and element.memory_bits == 81920
    assert cost("fp-fp").area == 358.28892


def test_areas_are_of_the_process_itself():
    """The library's smallest inverter, 0.04374 µm²: three gate pitches and 7.5 wire pitches; cells are so many gate
    pitches wide, all as high."""
    inverter = 3 * 0.054 * 7.5 * 0.036
    assert inverter == pytest.approx(0.04374)
    for one in records():
        if one.metric == "area":
            steps = one.value / (inverter / 3)
            assert steps == pytest.approx(round(steps), abs=1e-3), one.labels


def test_scaling_to_other_nodes():
    apu = cost("anda-apu", {"mantissa": 16})
    assert apu.area_at(7) == pytest.approx(1267.68726e-6) and apu.area_at(16) == pytest.approx(
        1267.68726e-6 * 0.19 / 0.059
    )
    assert apu.area_at(28) == pytest.approx(1267.68726e-6 * area_scale(28) / 0.059)


def test_energies_are_those_of_records():
    """pJ of an operation, as many items as the two records of it say."""
    for one in records():
        if one.metric in ("energy", "energy_per_item"):
            design = cost(one.labels["unit"], {name: one.labels[name] for name in settings_of(one)})
            case, items = one.labels["case"], design_items(one)
            assert design.items[case] == items
            whole = one.value * (items if one.metric == "energy_per_item" else 1)
            assert design.energy[case] + memories(one) == pytest.approx(whole)


def memories(record):
    """pJ that memories take in the same case, which are not logic."""
    same = {name: label for name, label in record.labels.items() if name != "item"}
    found = [one.value for one in records() if one.metric == "energy_memories" and one.labels == same]
    assert len(found) == (record.labels["unit"] == "deca-pe")
    return sum(found)


def settings_of(record):
    return [name for name in record.labels if name not in SCRIPT.OTHER_LABELS]


def design_items(record):
    """Of the operation's own words: a group of 64 products, a round of 4 · 32 products."""
    words = [int(word) for word in re.findall(r"\d+", record.labels["operation"])]
    return math.prod(words) or 1


def test_every_measured_design_of_the_script_has_energies():
    for name, *settings in SCRIPT.MEASURED:
        design = cost(name, SCRIPT.unit_of(name, settings).settings)
        assert design.energy and design.energy.keys() == design.items.keys()
    assert list(cost("anda-apu", {"mantissa": 16}).energy) == [f"m={bits}" for bits in range(1, 17)]
    assert list(cost("anda-compressor").energy) == [f"m={bits}" for bits in range(1, 17)]


def test_an_energy_at_other_nodes_and_voltages():
    apu = cost("anda-apu", {"mantissa": 16})
    assert apu.energy["m=8"] == 7.020089655429394 and apu.energy_at("m=8", 7, 0.7) == pytest.approx(7.020089655429394)
    ratio = energy_scale(16, 0.8) / energy_scale(7, 0.7)
    assert apu.energy_at("m=8", 16, 0.8) == pytest.approx(7.020089655429394 * ratio)
    assert apu.item_energy_at("m=8", 16, 0.8) == pytest.approx(7.020089655429394 * ratio / 64)
    with pytest.raises(ValueError, match="anda-apu: the energy of 'm=17' is not known; known are m=1, m=2"):
        apu.energy_at("m=17", 7, 0.7)
    with pytest.raises(ValueError, match="anda-apu: the energy of 'm=5' is not known; known are none"):
        cost("anda-apu", {"mantissa": 5}).energy_at("m=5", 7, 0.7)


@pytest.mark.parametrize(
    "unit, settings, message",
    [
        ("tpu", {}, "no unit 'tpu' was synthesised; there are anda-apu, anda-compressor"),
        ("anda-apu", {"mantissa": 3}, "anda-apu: no design has mantissa=3; there are mantissa=4; mantissa=5"),
        ("figna", {"mantissa": 14}, "figna: several designs have mantissa=14; there are mantissa=8 lanes=1"),
        ("deca-pe", {}, "deca-pe: several designs have no settings; there are W=1 L=1"),
        ("fp-fp", {"lanes": 4}, "fp-fp: no design has lanes=4; there are one design"),
    ],
)
def test_what_was_not_synthesised(unit, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        cost(unit, settings)
