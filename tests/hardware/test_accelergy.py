"""Reference tables of Accelergy: what is in them, and that what is not known is not."""

import yaml

from tilepress.hardware.accelergy import tables
from tilepress.hardware.synthesised import Cost


def test_area_and_energies():
    """In µm² and pJ, as Accelergy counts."""
    energy = {"group": 1.5, "idle": 0.25}
    text = tables(Cost("anda-apu", {"lanes": "64"}, 1400.5, 900.0, 0, energy), "system.pe[0..255].mac")
    read = yaml.safe_load(text)
    assert read["ART"] == {"version": 0.4, "tables": [{"name": "system.pe[0..255].mac", "area": 1400.5}]}
    (table,) = read["ERT"]["tables"]
    assert table == {
        "name": "system.pe[0..255].mac",
        "actions": [
            {"name": "group", "arguments": {}, "energy": 1.5},
            {"name": "idle", "arguments": {}, "energy": 0.25},
        ],
    }
    assert "anda-apu lanes=64" in text and "900 ps" in text and "It has no memories." in text


def test_what_is_not_known_is_said():
    text = tables(Cost("deca-pe", {"W": "8"}, 2700.0, 1400.0, 53248), "deca")
    assert "ERT" not in yaml.safe_load(text)
    assert "not known, so there is no ERT. Leakage: not known." in text and "53248 bits, are components" in text
