import re

import pytest

from tilepress.hardware import MachineError, accelerator_names, read_accelerator
from tilepress.hardware.technology import area_scale, energy_scale, sram_energy

GIVEN = "given: {node: 7, voltage: 0.7, area: 900, energy: {fixed: 0.01, per_bit: 0.02}}"


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return read_accelerator(path)

    return read_text


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator_is_whole(name):
    machine = read_accelerator(name)
    assert machine.name == name and machine.memory.bandwidth == 256e9 and machine.memory.energy == 3.9
    assert all(source.strip() for source in machine.sources.values())


def test_the_papers_machines_are_all_there():
    rivals = {"fp-fp", "fp-int", "ifpu", "figna", "figna-m11", "figna-m8", "figna-c", "tender", "m-ant"}
    assert rivals | {"anda", "harmonia"} <= set(accelerator_names())


def test_a_users_file_may_change_one_of_ours(read):
    machine = read("like: anda\nname: wide\narray: {rows: 32, columns: 16, group: 64}\nsources: {array: mine}")
    assert machine.units == 512 and machine.sources["array"] == "mine" and machine.frequency == 285e6


def test_a_unit_s_costs_may_be_given(read):
    """µm² and pJ at a node and a voltage of their own, scaled to the machine's."""
    machine = read(f"like: anda\nname: mine\nunit: {{{GIVEN}}}\nsources: {{unit: my own synthesis}}")
    larger, more = area_scale(16) / area_scale(7), energy_scale(16, 0.8) / energy_scale(7, 0.7)
    assert machine.unit.costs.area_at(16) == pytest.approx(900e-6 * larger)
    assert machine.unit.costs.energy_at(5, 16, 0.8) == pytest.approx((0.01 + 5 * 0.02) * more)


def test_peak_rates_are_equal_in_anda_and_as_printed_in_harmonia():
    def rate(name, mantissa=0):
        machine = read_accelerator(name)
        mode = machine.modes[0]
        cycles = mode.cycles.fixed + mode.cycles.per_bit * mantissa
        return machine.units * machine.array.group / cycles * machine.frequency

    assert rate("fp-fp") == rate("fp-int") == rate("ifpu") == rate("figna") == pytest.approx(rate("anda", 15))
    assert 2 * rate("harmonia") == pytest.approx(4534e9 * 0.542, rel=0.001)


@pytest.mark.parametrize(
    "text, message",
    [
        ("like: andy\nname: x", "like: there is no 'andy'; there are anda"),
        ("like: anda\nname: x\nnode: -5", "node: .*greater than 0"),
        ("like: anda\nname: x\nrows: 5", "rows: there is no such field"),
        ("like: anda\nname: x\nunit: {cycle: {add: 3}}", r"unit\.cycle: there is no such field"),
        (
            "like: anda\nname: x\nunit: {rtl: null}",
            "area and energy come from rtl or are given: write one",
        ),
        (f"like: anda\nname: x\nunit: {{{GIVEN}, rtl: {{unit: fp-fp}}}}", "or are given: write one of the two"),
        ("like: anda\nname: x\nunit: {rtl: {unit: tpu}}", "no unit 'tpu' was synthesised"),
        ("like: anda\nname: x\noffsets: {generator: {unit: fp-fp}}", "offsets.subtractor: is missing"),
        ("like: anda\nname: x\nmodes: []", "modes: .*at least 1 item"),
        ("like: anda\nname: x\nmodes: [{activations: bfp, other: int4, cycles: {fixed: 1}}]", "mantissas, from and to"),
        ("like: anda\nname: x\nmodes: [{activations: fp16, other: int4, cycles: {}}]", "give fixed, per_bit or both"),
        ("like: anda\nname: x\nsources: me", "sources: .*valid dictionary"),
        ("like: [anda]\nname: x", "like: there is no"),
        ("name: x", "title: is missing"),
    ],
)
def test_errors_name_the_field(read, text, message):
    with pytest.raises(MachineError, match=message):
        read(text)


def test_every_constant_needs_a_source(read, tmp_path):
    whole = read_accelerator("anda").model_dump(exclude_unset=True)
    del whole["sources"]["converter"]
    import yaml

    with pytest.raises(MachineError, match=r"nothing says where converter\.rtl\.unit comes from"):
        read(yaml.safe_dump(whole))


@pytest.mark.parametrize(
    "changed, name",
    [
        ("node: 7", "node"),
        ("memory: {bandwidth: 1.0e+12, energy: 3.9}\nsources: {memory.energy: mine}", "memory.bandwidth"),
        ("modes: [{activations: fp16, other: int4, cycles: {fixed: 3}}]", "modes"),
        ("unit: {rtl: {unit: fp-fp}}", "unit.rtl.unit"),
    ],
)
def test_a_changed_constant_does_not_keep_the_source_of_another_s(read, changed, name):
    message = f"{re.escape(name)} is not as in anda, whose source does not hold for it: add it to sources"
    with pytest.raises(MachineError, match=message):
        read(f"like: anda\nname: x\n{changed}")


def test_a_constant_that_is_as_it_was_keeps_its_source(read):
    machine = read(
        "like: anda\nname: x\nnode: 16\nmemory: {bandwidth: 1.0e+12, energy: 3.9}\nsources: {memory.bandwidth: m}"
    )
    assert machine.sources["node"] == "Anda, section V-A" and machine.sources["memory.bandwidth"] == "m"
    assert read("like: anda\nname: x\nconverter: null").converter is None


def test_unknown_accelerators():
    with pytest.raises(MachineError, match=r"no accelerator 'harmony'; did you mean 'harmonia'\?"):
        read_accelerator("harmony")
    with pytest.raises(MachineError, match="no accelerator 'tpu-v4i'"):
        read_accelerator("tpu-v4i")


def test_scaling_goes_through_the_published_nodes():
    assert area_scale(45) == 1 and area_scale(16) == pytest.approx(0.19) and area_scale(7) == pytest.approx(0.059)
    assert area_scale(32) < 1 and area_scale(20) < area_scale(28) < area_scale(32)
    assert energy_scale(45, 0.9) == pytest.approx(1) and energy_scale(16, 0.8) == pytest.approx(0.172, rel=0.01)
    assert 0.05 < energy_scale(7, 0.7) < 0.1
    assert energy_scale(16, 0.9) < energy_scale(28, 0.9) < energy_scale(32, 0.9)
    assert sram_energy(4 * 8192) == pytest.approx(2 * sram_energy(8192))
    with pytest.raises(ValueError, match="technologies are from 7 to 45 nm, not 90 nm"):
        area_scale(90)
