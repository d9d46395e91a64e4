"""`tilepress rtl`."""

import re

import pytest
import yaml

from tilepress.hardware.synthesised import cost

SMALLEST = ["--set", "W=1", "--set", "L=1", "--set", "formats=mxfp4"]


@pytest.mark.slow
def test_emit(call_for_records, tmp_path):
    figure = call_for_records("rtl", "emit", "deca-pe", "-o", tmp_path / "deca.v", *SMALLEST)
    text = (tmp_path / "deca.v").read_text()
    assert "module deca_pe(" in text
    assert figure("lines", unit="deca-pe", W="1", formats="mxfp4") == text.count("\n") and figure("modules") > 5


@pytest.mark.slow
def test_synth(call_for_records):
    figure = call_for_records("rtl", "synth", "fp-int")
    assert figure("cells") > figure("flip_flops") > 0 and figure("levels") > 10 and figure("memory_bits") == 0


def test_what_is_wrong_is_said(call):
    done = call("rtl", "emit", "deca-pe", "-o", "deca.v", "--set", "W=24")
    assert done.returncode == 1 and "a width divides 512" in done.stderr


def test_energy_wants_cells(call):
    done = call("rtl", "synth", "fp-int", "--energy", "--random")
    assert done.returncode == 1 and "energy needs a library of cells: give its files with --liberty" in done.stderr


def test_export(call_for_records, tmp_path):
    path = tmp_path / "apu.yaml"
    figure = call_for_records("rtl", "export", "anda-apu", "-o", path, "--set", "mantissa=8", "--as", "system.mac")
    expected = cost("anda-apu", {"mantissa": 8}).area
    tables = {"version": 0.4, "tables": [{"name": "system.mac", "area": expected}]}
    actions = [{"name": "m=8", "arguments": {}, "energy": cost("anda-apu", {"mantissa": 8}).energy["m=8"]}]
    energies = {"version": 0.4, "tables": [{"name": "system.mac", "actions": actions}]}
    assert yaml.safe_load(path.read_text()) == {"ART": tables, "ERT": energies}
    assert figure("area", unit="anda-apu", mantissa="8", lanes="64") == expected


def test_export_says_which_designs_there_are(call):
    done = call("rtl", "export", "figna", "-o", "figna.yaml", "--set", "mantissa=9")
    assert done.returncode == 1 and "figna: no design has mantissa=9; there are mantissa=8 lanes=1" in done.stderr
    assert "'mantissa' sets nothing" in call("rtl", "export", "figna", "-o", "f.yaml", "--set", "mantissa").stderr


def test_draw(call_for_records, tmp_path):
    figure = call_for_records("rtl", "draw", "fp-fp", "-o", tmp_path / "a.dot", "--depth", "1")
    text = (tmp_path / "a.dot").read_text()
    assert text.startswith('digraph "fp_fp" {') and 'label="multiply_add"' in text
    assert figure("boxes", unit="fp-fp") == len(set(re.findall(r"^ +(n\d+) \[", text, re.M)))
    assert figure("arrows", unit="fp-fp") == text.count(" -> ")
    figure = call_for_records("rtl", "draw", "fp-fp", "-o", tmp_path / "b.dot", "--part", "multiply_add.multiply")
    assert figure("boxes", unit="fp-fp", part="multiply_add.multiply") >= 4


def test_what_cannot_be_drawn_is_said(call):
    done = call("rtl", "draw", "fp-fp", "-o", "a.jpg")
    assert done.returncode == 1 and "a.jpg: a diagram is a file that ends with .dot, .svg" in done.stderr
    done = call("rtl", "draw", "fp-fp", "-o", "a.dot", "--part", "none")
    assert done.returncode == 1 and "has no part 'none'; it has multiply_add, scale_weight" in done.stderr
    done = call("rtl", "draw", "fp-fp", "-o", "a.svg", PATH="")
    assert done.returncode == 1 and "a.svg needs Graphviz: apt-get install graphviz, or write a.dot" in done.stderr
