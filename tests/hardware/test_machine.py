import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import MachineError, here, machine_names, read_machine, write_machine
from tilepress.hardware.here import machine_here, measure_frequency, physical_cores
from tilepress.roofsurface import Nothing, predict
from tilepress.roofsurface.decompressors import Operations

MINIMAL = """
name: mine
title: a machine
cores: 4
frequency: 2.0e+9
memory: {bandwidth: 50.0e+9}
vector: {units: 2, bits: 128}
sources: {cores: data sheet, frequency: data sheet, memory: measured, vector: data sheet}
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return read_machine(path)

    return read_text


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_is_whole(name):
    machine = read_machine(name)
    assert machine.name == name and machine.memory.bandwidth > 1e11 and machine.matrix_rate > 0
    assert all(source.strip() for source in machine.sources.values())


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_has_a_surface(name):
    machine, format = read_machine(name), parse_weight("mxfp4")
    by = Operations(10) if machine.vector else Nothing()
    prediction = predict(machine, format, 1.0, by)
    assert prediction.surface.binding == "memory" and prediction.bandwidth == pytest.approx(machine.memory.bandwidth)


def test_gpus_of_today_and_processors_without_a_matrix_unit():
    h100, mi300a, srf = map(read_machine, ("h100-sxm", "mi300a", "srf"))
    assert 2 * h100.vector_rate * h100.vector.bits / 32 == pytest.approx(66.9e12, rel=0.08)  # at another clock
    assert mi300a.matrix_rate * 512 * 16 == pytest.approx(228 * 2.1e9 * 1024, rel=1e-3)
    assert srf.vector_rate == 144 * 3e9 * 1.5 and srf.matrix.rows == 1


def test_the_papers_machines_have_its_rates():
    hbm, ddr = read_machine("spr-hbm"), read_machine("spr-ddr")
    assert hbm.memory.bandwidth == 850e9 and ddr.memory.bandwidth == 260e9
    assert hbm.vector_rate == 56 * 2.5e9 * 2
    assert hbm.matrix_rate == 56 * 2.5e9 / 16
    assert 512 * 16 * hbm.matrix_rate == pytest.approx(71.68e12)
    assert 512 * 16 * read_machine("h100-80gb-pcie").matrix_rate == pytest.approx(989e12 / 2)


def test_a_users_file(read):
    machine = read(MINIMAL)
    assert machine.vector_rate == 16e9
    with pytest.raises(MachineError, match="mine has no matrix unit"):
        _ = machine.matrix_rate


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("bandwidth: 50.0e+9", "bandwidth: -1", r"memory\.bandwidth: .*greater than 0"),
        ("cores: 4", "cores: few", r"cores: .*valid integer"),
        ("cores: 4", "cores: 4\ncoers: 5", "coers: there is no such field"),
        ("memory: {bandwidth: 50.0e+9}\n", "", "memory: is missing"),
        ("memory: measured", "memories: measured", r"nothing says where memory\.bandwidth comes from"),
        ("vector: {units: 2, bits: 128}", "vector: {units: 2}", r"vector\.bits: is missing"),
        ("title: a machine", "title: a machine\nmatrix: {}", "matrix: give either cycles or flops"),
        ("name: mine", "- name", "is not YAML"),
        ("cores: 4", "cores: !!int ''", "has a YAML tag whose value does not fit it: IndexError"),
        ("cores: 4", "cores: !!bool 4", "has a YAML tag whose value does not fit it: KeyError"),
        ("cores: 4", "cores: !!timestamp 4", "has a YAML tag whose value does not fit it: AttributeError"),
    ],
)
def test_errors_name_the_field(read, old, new, message):
    with pytest.raises(MachineError, match=message):
        read(MINIMAL.replace(old, new, 1))


DRAM = """
memory:
  bandwidth: 260.0e+9
  path_latency: 70.0e-9
  dram: {channels: 16, width: 32, rate: 4.8e+9, burst: 16, bank_groups: 8, banks: 4, row: 8192, interleave: 256,
    queue: 64, rcd: 16.0e-9, cl: 16.666e-9, rp: 16.0e-9, ras: 32.0e-9, rc: 48.0e-9, rtp: 7.5e-9, ccd_s: 3.333e-9,
    ccd_l: 5.0e-9, rrd_s: 3.333e-9, rrd_l: 5.0e-9, faw: 13.333e-9, refresh: all-bank, rfc: 295.0e-9, refi: 3.9e-6}
"""


def test_dram_in_a_users_file(read):
    machine = read(MINIMAL.replace("memory: {bandwidth: 50.0e+9}\n", DRAM))
    assert machine.memory.dram.burst_bytes == 64
    assert machine.memory.dram.bandwidth == pytest.approx(307.2e9)
    assert read(MINIMAL).memory.dram is None


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("channels: 16", "channels: 12", r"memory\.dram\.channels: is a power of two, not 12"),
        ("rcd: 16.0e-9", "rcd: 0", r"memory\.dram\.rcd: .*greater than 0"),
        ("rcd: 16.0e-9, ", "", r"memory\.dram\.rcd: is missing"),
        ("rcd: 16.0e-9", "trcd: 16.0e-9", r"memory\.dram\.trcd: there is no such field"),
        ("queue: 64", "queue: 3", r"memory\.dram\.queue: .*greater than or equal to 4"),
        ("all-bank", "never", r"memory\.dram\.refresh: .*'all-bank', 'same-bank' or 'single-bank'"),
        ("row: 8192", "row: 32", r"memory\.dram: row is at least a burst of 64 bytes"),
        ("interleave: 256", "interleave: 32", r"memory\.dram: interleave is at least a burst of 64 bytes"),
        ("bank_groups: 8, banks: 4", "bank_groups: 1, banks: 1", r"memory\.dram: there are at least two banks"),
        ("rc: 48.0e-9", "rc: 31.0e-9", r"memory\.dram: rc is at least ras"),
        ("ccd_l: 5.0e-9", "ccd_l: 3.0e-9", r"memory\.dram: ccd_l is at least ccd_s"),
        ("ccd_l: 5.0e-9", "ccd_l: 20.1e-9", r"memory\.dram: ccd_l is at most cl and the time of a burst"),
        ("rrd_l: 5.0e-9", "rrd_l: 3.0e-9", r"memory\.dram: rrd_l is at least rrd_s"),
        ("rrd_l: 5.0e-9", "rrd_l: 14.0e-9", r"memory\.dram: rrd_l is at most faw"),
        ("faw: 13.333e-9", "faw: 37.0e-9", r"memory\.dram: faw is at most rcd, cl and the time of a burst"),
        ("refi: 3.9e-6", "refi: 0.36e-6", r"memory\.dram: refi is more than rfc, rp, ras, rcd and rtp together"),
        ("  path_latency: 70.0e-9\n", "", r"memory: dram needs path_latency"),
    ],
)
def test_errors_of_dram_name_the_field(read, old, new, message):
    assert old in DRAM
    with pytest.raises(MachineError, match=message):
        read(MINIMAL.replace("memory: {bandwidth: 50.0e+9}\n", DRAM.replace(old, new, 1)))


SOCKETS = "sockets: {count: 2, bandwidth: 20.0e+9, latency: 1.0e-7}\n"


def test_sockets_in_a_users_file(read):
    sourced = MINIMAL.replace("sources: {", f"{SOCKETS}sources: {{sockets: measured, ")
    assert read(sourced).sockets.count == 2 and read(MINIMAL).sockets is None
    for old, new, message in (
        ("count: 2", "count: 1", r"sockets\.count: .*greater than or equal to 2"),
        ("bandwidth: 20.0e+9, ", "", r"sockets\.bandwidth: is missing"),
        ("latency: 1.0e-7", "latency: 0", r"sockets\.latency: .*greater than 0"),
        ("sockets: measured, ", "", r"nothing says where sockets\.count comes from"),
    ):
        assert old in sourced
        with pytest.raises(MachineError, match=message):
            read(sourced.replace(old, new, 1))


def test_machines_that_are_not_there(tmp_path):
    with pytest.raises(MachineError, match="did you mean 'spr-hbm'"):
        read_machine("spr-hb")
    with pytest.raises(MachineError, match="cannot be read"):
        read_machine(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(MachineError, match="holds no mapping"):
        read_machine(tmp_path / "list.yaml")


def test_a_changed_machine_says_that_it_was_changed():
    changed = read_machine("spr-hbm").changed(cores=16, memory={"bandwidth": 1e12})
    assert (changed.cores, changed.memory.bandwidth, changed.frequency) == (16, 1e12, 2.5e9)
    assert changed.sources["cores"] == changed.sources["memory"] == "given"


@pytest.mark.parametrize("feature, units, bits", [("amx_tile", 2, 512), ("avx2", 2, 256), ("asimddp", 2, 128)])
def test_the_machine_at_hand(feature, units, bits):
    machine = machine_here("this one", {"fpu", feature}, 36e9, threads=1, frequency=2.5e9)
    assert (machine.cores, machine.memory.bandwidth) == (1, 36e9)
    assert (machine.vector.units, machine.vector.bits) == (units, bits)
    assert machine.sources["memory"] == "measured, 1 threads"
    with pytest.raises(MachineError, match="describe it in a YAML file"):
        machine_here("this one", {"fpu"}, 36e9, threads=1, frequency=2.5e9)


@pytest.mark.parametrize("name", machine_names())
def test_a_written_machine_is_read_back(name, tmp_path):
    write_machine(tmp_path / "m.yaml", read_machine(name))
    assert read_machine(tmp_path / "m.yaml") == read_machine(name)
    assert [path.name for path in tmp_path.iterdir()] == ["m.yaml"]


def test_the_frequency_is_one_that_processors_have():
    assert 0.3e9 < measure_frequency(repeats=3) < 8e9
    assert physical_cores() >= 0


def test_threads_that_share_cores(monkeypatch):
    """A virtual machine that calls 16 threads of 8 cores cores is seen through by their rates."""
    seconds = {1: 1.0, 16: 1.9}
    monkeypatch.setattr(here, "_wide_time", seconds.__getitem__)
    assert here.cores_are_shared(16) and not here.cores_are_shared(1)
    seconds[16] = 1.2
    assert not here.cores_are_shared(16)
    monkeypatch.setattr(here, "physical_cores", lambda: 16)
    machine = machine_here("this one", {"amx_tile"}, 36e9, threads=16, frequency=2.5e9, shared=True)
    assert machine.cores == 8 and machine.sources["cores"] == "measured: threads share cores"


def test_the_rate_of_threads_is_measured():
    assert 0 < here._wide_time(2) < 60


def test_both_sapphire_rapids_are_one_processor_with_two_memories():
    ddr, hbm = (read_machine(name).model_dump() for name in ("spr-ddr", "spr-hbm"))
    for own in ("name", "title", "memory", "sources"):
        assert ddr.pop(own) != hbm.pop(own)
    assert (ddr["caches"].pop("llc_capacity"), hbm["caches"].pop("llc_capacity")) == (105e6, 112.5e6)
    assert ddr == hbm
    assert (hbm["cores"], hbm["frequency"], hbm["issue"], hbm["matrix"]["cycles"]) == (56, 2.5e9, 6, 16)
