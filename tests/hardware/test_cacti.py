"""Memories by CACTI: what is kept, where it came from, and how it scales."""

import json
from math import sqrt

import pytest

from tests.scripts import ROOT, load_script
from tilepress.hardware.technology import CACTI, Memory, cacti

SCRIPT = "benchmarks/cacti/run.py"
OUTPUT = """\
    Access time (ns): 0.140042
    Total dynamic read energy per access (nJ): 0.0107773
    Total dynamic write energy per access (nJ): 0.0113889
    Total leakage power of a bank (mW): 1.16121
    Total gate leakage power of a bank (mW): 0.0032831
    Cache height x width (mm): 0.122765 x 0.210688
"""


def test_every_configuration_is_kept():
    configurations = load_script(SCRIPT).configurations()
    kept = json.loads(CACTI.read_text("utf-8"))
    assert sorted(configurations) == sorted(kept["memories"]) == ["load_unit", "queue", "table"]
    assert (kept["node"], kept["voltage"], kept["temperature"]) == (22, 0.8, 360)
    for text in configurations.values():
        assert "-technology (u) 0.022\n" in text and "-operating temperature (K) 360\n" in text


@pytest.mark.parametrize(
    "name, lines",
    [
        ("queue", ["size (bytes) 2048", "block size (bytes) 64", "exclusive read port 1", "exclusive write port 1"]),
        ("table", ["size (bytes) 512", "block size (bytes) 2", "exclusive read port 4", "exclusive write port 1"]),
        ("load_unit", ["size (bytes) 256", "block size (bytes) 8", "search port 1", 'cache type "cam"']),
    ],
)
def test_configurations_are_table_3s_structures(name, lines):
    text = load_script(SCRIPT).configurations()[name]
    for line in lines:
        option = line.rsplit(" ", 1)[0]
        assert [one for one in text.splitlines() if one.startswith(f"-{option}")][-1] == f"-{line}"


def test_what_is_kept():
    """Literally, so that no figure changes unseen; areas are those that were once called CACTI's kind."""
    assert cacti("queue") == Memory(22, 0.8, 0.0258651, 10.7773, 11.3889, 1.16121, 0.0032831, 0.140042)
    assert cacti("table") == Memory(22, 0.8, 0.00419353, 0.356306, 0.379987, 0.446269, 0.00152818, 0.0999164)
    assert cacti("load_unit") == Memory(
        22, 0.8, 0.00236328, 0.457583, 0.57311, 0.390828, 0.00188171, 0.0604461, 1.30624
    )
    assert all(cacti(name).access_time < 0.4 for name in ("queue", "table", "load_unit"))  # a cycle at 2.5 GHz


def test_scaling_to_7_nm():
    memory = cacti("queue")
    area_22 = 0.059 / 0.28 * (0.46 / (0.059 / 0.28)) ** 0.2027857  # 22 nm lies a fifth of the way from 20 to 32
    assert memory.area_at(7) / memory.area == pytest.approx(0.059 / area_22, rel=1e-4)
    assert memory.leakage_at(7, 0.7) == pytest.approx(1.1644931 * sqrt(0.059 / area_22) * 0.7 / 0.8, rel=1e-4)
    assert memory.energy_at(10.0, 22, 0.8) == 10 and memory.area_at(22) == memory.area
    at_7, at_16, at_32 = 0.047815, 0.120272, 0.358308  # a·V² + b·V + c
    at_22 = at_16 * (at_32 / at_16) ** 0.4594316
    assert memory.energy_at(10.0, 7, 0.7) == pytest.approx(10 * at_7 / at_22, rel=1e-4)


def test_a_run_is_read(tmp_path):
    """A program that prints what CACTI does."""
    program = tmp_path / "cacti"
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{OUTPUT}EOF\n")
    program.chmod(0o755)
    script = load_script(SCRIPT)
    found = script.run(program, script.configurations()["queue"])
    kept = json.loads(CACTI.read_text("utf-8"))["memories"]["queue"]
    assert found == kept and script.KEPT == CACTI == ROOT / "src/tilepress/hardware/cacti.json"
    program.write_text("#!/bin/sh\necho ERROR: no valid data array organizations found\n")
    with pytest.raises(SystemExit, match="gave no area: ERROR: no valid"):
        script.run(program, "")
