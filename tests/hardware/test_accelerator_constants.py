"""Constants of the papers' accelerators, each as its text or structure gives it."""

import pytest

from tilepress.hardware import accelerator_names, read_accelerator
from tilepress.hardware.accelerator import Rtl

KIB = 1024
HARMONIAS = "harmonia-converter"
ANDA_TECHNOLOGY = {"node": 16, "voltage": 0.8, "frequency": 285e6}
HARMONIA_TECHNOLOGY = {"node": 28, "voltage": 0.9, "frequency": 300e6}
OF_HARMONIA = {"harmonia", "fp16-fp16", "fp16-int4", "tender", "m-ant"}
FLOAT_SUM = {"fp16_multiply": 1, "fp32_add": 1, "multiplexer": 5 * 32}  # of a group: scaled, normalised, added

# Parts that switch every cycle, and once a group.
UNITS = {
    "fp-fp": ({"fp16_multiply": 4, "fp32_add": 4, "flip_flop": 4 * 40, "multiplexer": 4 * 16}, {}),
    "fp-int": (
        {"multiply": 4 * 11 * 4, "add": 4 * 5, "multiplexer": 4 * 64, "fp32_add": 4, "flip_flop": 4 * 28},
        {},
    ),
    "ifpu": ({"gate": 16 * 24, "add": 420, "flip_flop": 224}, {"flip_flop": 672, **FLOAT_SUM}),
    "figna": ({"multiply": 4 * 14 * 4, "add": 89, "multiplexer": 4 * 14 * 4, "flip_flop": 4 * 46}, FLOAT_SUM),
    "figna-m11": ({"multiply": 64 * 4, "add": 114, "multiplexer": 64 * 4, "flip_flop": 218}, FLOAT_SUM),
    "figna-m8": ({"multiply": 8 * 8 * 4, "add": 123, "multiplexer": 8 * 8 * 4, "flip_flop": 8 * 30}, FLOAT_SUM),
    "figna-c": ({"multiply": 8 * 8 * 4, "add": 123, "multiplexer": 8 * 8 * 4, "flip_flop": 8 * 30}, FLOAT_SUM),
    "anda": ({}, {}),
    "harmonia": ({}, {}),
    "fp16-fp16": ({"fp16_multiply": 1, "fp16_add": 1, "flip_flop": 3 * 16}, {}),
    "fp16-int4": ({"multiply": 11 * 4, "add": 5, "multiplexer": 64, "fp16_add": 1, "flip_flop": 2 * 16 + 4}, {}),
    "tender": ({"multiply": 8 * 8, "add": 32, "multiplexer": 32, "flip_flop": 2 * 8 + 32}, {}),
    "m-ant": ({"multiply": 2 * 8 * 4, "add": 44, "flip_flop": 8 + 4 + 32}, {}),
}
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
# Values at once, cycles fixed and per bit, parts of each value.
CONVERTERS = {
    "anda": (16 * 64, 1, 1, {}),
    "harmonia": (8, 1, 0, {}),
    "tender": (8, 1, 0, {"flip_flop": 16 + 8, "fp16_multiply": 1, "add": 8}),
    "m-ant": (8, 1, 0, {"flip_flop": 58, "fp16_multiply": 1, "add": 16}),
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
    assert (unit.cycle, unit.group) == UNITS[name]
    assert unit.simulation == {"anda": "anda-apu", "harmonia": "harmonia-pe"}.get(name)
    assert (unit.rtl and (unit.rtl.unit, unit.rtl.settings, unit.rtl.count)) == RTL.get(name)


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
    assert (converter.values, cycles.fixed, cycles.per_bit, converter.parts) == CONVERTERS[name]
    assert converter.overlapped
    simulation = {"anda": "anda-compressor", "harmonia": "harmonia-converter"}.get(name)
    assert converter.simulation == simulation
    rtl = {"anda": Rtl(unit="anda-compressor", settings={"lanes": 1}, count=16), "harmonia": Rtl(unit=HARMONIAS)}
    assert converter.rtl == rtl.get(name)
