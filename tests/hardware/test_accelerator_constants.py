"""Constants of the papers' accelerators, each as its text or structure gives it."""

import pytest

from tilepress.hardware import accelerator_names, read_accelerator
from tilepress.hardware.accelerator import Rtl
from tilepress.hardware.synthesised import cost

KIB = 1024
ANDA_TECHNOLOGY = {"node": 16, "voltage": 0.8, "frequency": 285e6}
HARMONIA_TECHNOLOGY = {"node": 28, "voltage": 0.9, "frequency": 300e6}
OF_HARMONIA = {"harmonia", "fp16-fp16", "fp16-int4", "tender", "m-ant"}

# Synthesised units, and how many one unit of the array is.
RTL = {
    "fp-fp": ("fp-fp", {}, 4),
    "fp-int": ("fp-int", {}, 4),
    "ifpu": ("ifpu", {"mantissa": 24, "lanes": 16}, 1),
    "figna": ("figna", {"mantissa": 14, "lanes": 4}, 1),
    "figna-m11": ("figna", {"mantissa": 11, "lanes": 6}, 0.97),  # 64/11 lanes of six
    "figna-m8": ("figna", {"mantissa": 8, "lanes": 8}, 1),
    "figna-c": ("figna", {"mantissa": 8, "lanes": 8}, 1),
    "anda": ("anda-apu", {"mantissa": 16}, 1),
    "harmonia": ("harmonia-pe", {}, 0.5),
    "fp16-fp16": ("fp16-mac", {"weight_format": "fp16"}, 1),
    "fp16-int4": ("fp16-mac", {"weight_format": "int4"}, 1),
    "tender": ("int-mac", {}, 1),
    "m-ant": ("m-ant-mac", {}, 0.45),  # one of eight joins sums
}
# Activations, weights or other activations, cycles of a group: fixed, and per bit of the mantissa.
MODES = {
    "fp-fp": [("fp16", "int4", 16, 0), ("fp16", "fp16", 16, 0)],
    "fp-int": [("fp16", "int4", 16, 0)],
    "ifpu": [("fp16", "int4", 16, 0)],
    "figna": [("fp16", "int4", 16, 0)],
    "figna-m11": [("fp16", "int4", 11, 0)],
    "figna-m8": [("fp16", "int4", 8, 0)],
    "figna-c": [("fp16", "int4", 8, 0)],
    "anda": [("bfp", "int4", 1, 1)],
    "harmonia": [("bfp", "int4", 2, 0), ("bfp", "bfp", 2, 0), ("bfp", "bfp", 4, 0)],
    "fp16-fp16": [("fp16", "int4", 1, 0), ("fp16", "fp16", 1, 0)],
    "fp16-int4": [("fp16", "int4", 1, 0)],
    "tender": [("int8", "int8", 1, 0)],
    "m-ant": [("int8", "int4", 1, 0)],
}
# Values at once, cycles fixed and per bit, synthesised unit and how many.
CONVERTERS = {
    "anda": (16 * 64, 1, 1, Rtl(unit="anda-compressor", settings={"lanes": 1}, count=16)),
    "harmonia": (8, 1, 0, Rtl(unit="harmonia-converter")),
    "tender": (8, 1, 0, Rtl(unit="int8-quantiser", settings={"scale": "offline"})),
    "m-ant": (8, 1, 0, Rtl(unit="int8-quantiser", settings={"scale": "online"})),
}
ATTENDING = {"fp-fp", "fp16-fp16", "harmonia"}


@pytest.mark.parametrize("name", accelerator_names())
def test_technology_memory_and_buffers(name):
    machine, is_harmonia = read_accelerator(name), name in OF_HARMONIA
    technology = HARMONIA_TECHNOLOGY if is_harmonia else ANDA_TECHNOLOGY
    assert {field: getattr(machine, field) for field in technology} == technology
    assert machine.memory.model_dump() == {"bandwidth": 256e9, "energy": 3.9}
    activations = 1024 * KIB if is_harmonia else 1152 * KIB  # Anda, table III: 1.125 MB and 1 MB
    assert machine.buffers.model_dump() == {"activations": activations, "weights": 1024 * KIB}
    assert machine.tile.model_dump() == {"rows": 64, "columns": 64} and machine.vector == 64
    assert machine.dataflow == ("best" if name == "harmonia" else "column-major")
    assert machine.auxiliary == (None if name in ATTENDING else 1.0) and machine.attends == (name in ATTENDING)


@pytest.mark.parametrize("name", accelerator_names())
def test_arrays(name):
    array = read_accelerator(name).array
    one_product = {"rows": 8, "columns": 16, "group": 1}
    of_harmonia = {"rows": 8, "columns": 2 * 16, "group": 32} if name == "harmonia" else one_product
    assert array.model_dump() == (of_harmonia if name in OF_HARMONIA else {"rows": 16, "columns": 16, "group": 64})


@pytest.mark.parametrize("name", accelerator_names())
def test_units(name):
    unit = read_accelerator(name).unit
    assert (unit.rtl.unit, unit.rtl.settings, unit.rtl.count) == RTL[name] and unit.given is None


def test_m_ant_s_units_share_what_joins_their_sums():
    """A column of eight units has seven that only sum."""
    whole, sums = cost("m-ant-mac").area, cost("m-ant-sums").area
    assert RTL["m-ant"][2] == pytest.approx((7 * sums + whole) / 8 / whole, abs=0.005)


@pytest.mark.parametrize("name", accelerator_names())
def test_offsets_of_keys(name):
    offsets = read_accelerator(name).offsets
    units = (Rtl(unit="harmonia-offsets"), Rtl(unit="harmonia-subtractor"))
    assert (offsets and (offsets.generator, offsets.subtractor)) == (units if name == "harmonia" else None)


@pytest.mark.parametrize("name", accelerator_names())
def test_modes(name):
    modes = read_accelerator(name).modes
    found = [(one.activations, one.other, one.cycles.fixed, one.cycles.per_bit) for one in modes]
    assert found == MODES[name]
    assert {one.mantissas for one in modes} == {{"anda": (1, 16), "harmonia": (1, 8)}.get(name)}
    assert [one.other_mantissa for one in modes if one.other == "bfp"] == ([4, 8] if name == "harmonia" else [])


@pytest.mark.parametrize("name", accelerator_names())
def test_converters(name):
    converter = read_accelerator(name).converter
    if name not in CONVERTERS:
        assert converter is None
        return
    cycles = converter.cycles
    assert (converter.values, cycles.fixed, cycles.per_bit, converter.rtl) == CONVERTERS[name]
    assert converter.overlapped and converter.given is None
