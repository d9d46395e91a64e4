from dataclasses import replace

import numpy as np
import pytest
import torch

from tilepress.formats import parse_weight
from tilepress.hardware import MachineError, read_machine
from tilepress.roofsurface import Deca, predict
from tilepress.simulate.deca import (
    Accelerated,
    Baseline,
    Software,
    engine,
    packed_workload,
    random_workload,
    simulate,
)
from tilepress.simulate.deca.closed_form import cycles_per_tile
from tilepress.simulate.deca.plan import COUNTS, TIMES, Leaves
from tilepress.simulate.deca.reference import Reference
from tilepress.simulate.deca.systems import page_triggers, page_turns
from tilepress.simulate.deca.units import UNITS
from tilepress.tiles import pack

DRAM = {"dram": None, "path_latency": None, "mesh_bandwidth": None}
HBM = read_machine("spr-hbm").changed(cores=8, memory={"bandwidth": 850e9 / 7, **DRAM})  # as fast a core
BF8, BF16, MXFP4 = map(parse_weight, ("bf8", "bf16", "mxfp4"))
SMALL = 8 * 512 * 600


def per_tile(system, format=BF8, density=1.0):
    return simulate(HBM, system, format, density, weights=SMALL).cycles_per_tile


def without_latencies(machine, deca, density, tiles):
    work = random_workload(BF8, density, tiles, machine.cores, width=min(deca.width, 32))
    nothing = {"send": 0, "hit": 1, "latency": 0, "switch": 0, "depth": 0, "back": 0}
    line_time = round(64 * machine.frequency / machine.memory.bandwidth * UNITS)
    ahead = np.broadcast_to(np.maximum(np.arange(tiles) - 16, 0), work.lines.shape)
    deep = {"line_time": line_time, "ports": 8, "misses": 1 << 12}
    early = {"trigger": ahead, "leaves": Leaves.issued, "walk": 0 * ahead}
    core = {"dispatch": 1, "queue": 64, "registers": 64, "activations": 0}
    return replace(Accelerated(deca).plan(machine, work), **nothing, **deep, **early, **core)


@pytest.mark.parametrize("density", [1.0, 0.5, 0.2, 0.05])
@pytest.mark.parametrize("deca", [Deca(8, 4), Deca(32, 8), Deca(64, 64)])
def test_without_latencies_it_is_the_analytic_model(density, deca):
    expected = predict(HBM, BF8, density, deca).surface.rate
    result = 8 * 1500 / (engine.run(without_latencies(HBM, deca, density, 1500)).cycles / HBM.frequency)
    assert result == pytest.approx(expected, rel=0.03) and result < 1.005 * expected


@pytest.mark.parametrize("density, tiles", [(1.0, 80), (0.2, 150), (0.05, 300)])
def test_so_it_is_cycle_by_cycle(density, tiles):
    pair = HBM.changed(cores=2, memory={"bandwidth": HBM.memory.bandwidth / 4})
    plan = without_latencies(pair, Deca(), density, tiles)
    rate = 2 * tiles / (Reference(plan).run().cycles / pair.frequency)
    assert rate == pytest.approx(predict(pair, BF8, density, Deca()).surface.rate, rel=0.06)


def test_a_simulation_comes_closer_to_the_analytic_model_as_latencies_fall():
    limit = predict(HBM, BF8, 0.05, Deca()).surface.rate
    work = random_workload(BF8, 0.05, 600, 8)
    plan = Accelerated().plan(HBM, work)
    shares = []
    for share in (1, 0.5, 0):
        less = {name: round(share * getattr(plan, name)) for name in ("send", "latency", "switch", "depth", "back")}
        run = engine.run(replace(plan, **less, hit=max(round(share * plan.hit), 1)))
        shares.append(8 * 600 / (run.cycles / HBM.frequency) / limit)
    assert shares == sorted(shares) and shares[0] < shares[-1] <= 1.005


def test_each_feature_of_the_integration_helps():
    steps = [
        Accelerated(l2=False, prefetcher="none", registers=False, tepl=False),
        Accelerated(prefetcher="l2", registers=False, tepl=False),
        Accelerated(registers=False, tepl=False),
        Accelerated(tepl=False),
        Accelerated(),
    ]
    times = [per_tile(step, density=0.05) for step in steps]
    assert times == sorted(times, reverse=True) and times[0] > 4 * times[-1]


@pytest.mark.parametrize(
    "system, format, density",
    [
        (Accelerated(), BF8, 0.3),
        (Accelerated(Deca(8, 4), degree=15), MXFP4, 1.0),
        (Accelerated(prefetcher="l2", registers=False, tepl=False), BF8, 1.0),
        (Accelerated(prefetcher="l2", queue=3, flush_every=7, flush_after=70), BF8, 0.05),
        (Software(), BF8, 0.5),
        (Baseline(), BF16, 1.0),
    ],
)
@pytest.mark.parametrize("memory", [HBM, read_machine("spr-hbm"), read_machine("spr-ddr")])
def test_real_systems_are_equal_to_the_cycle_in_both_engines(system, format, density, memory):
    machine = memory.changed(cores=2)
    plan = system.plan(machine, random_workload(format, density, 24, 2, width=32 if density < 1 else 512), rows=3)
    slow, fast = Reference(replace(plan, activations=9)).run(), engine.run(replace(plan, activations=9))
    for name in TIMES:
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    assert [getattr(fast, name) for name in COUNTS] == [getattr(slow, name) for name in COUNTS]


def test_squashed_calls_cost_time_and_lose_nothing():
    systems = [Accelerated(), *(Accelerated(flush_every=10, flush_after=after) for after in (20, 160))]
    calm, early, late = (simulate(HBM, system, BF8, 0.05, weights=SMALL) for system in systems)
    assert calm.seconds <= early.seconds < late.seconds and late.seconds > 1.1 * calm.seconds
    assert early.squashed["queue"] > 0 == early.squashed["finished"] and late.squashed["finished"] > 0
    for flushed in (early, late):
        lines = [one.lines["demanded"] + one.lines["prefetched"] for one in (flushed, calm)]
        assert lines[0] == lines[1] and (flushed.trace.product > 0).all()


def test_a_short_queue_of_calls_binds():
    times = [per_tile(Accelerated(queue=entries), density=0.05) for entries in (1, 2, 3, 8, 64)]
    assert times == sorted(times, reverse=True) and times[0] > 1.3 * times[1] > 1.3 * times[2] > times[3]
    assert times[3] == times[4]  # six tile registers are fewer than eight entries


def test_a_faster_clock_waits_as_many_nanoseconds():
    slow, fast = (
        Accelerated().plan(HBM.changed(frequency=clock), random_workload(BF8, 1.0, 4, 8)) for clock in (2e9, 4e9)
    )
    assert (slow.latency, fast.latency) == (round(57.2 * 2), round(57.2 * 4))
    assert fast.line_time == pytest.approx(2 * slow.line_time, abs=1) and fast.hit == slow.hit
    assert fast.llc_latency == 2 * slow.llc_latency == 112


def test_dram_is_timed_where_it_is_asked_for():
    machine = read_machine("spr-hbm")
    queue, dram = (
        simulate(machine, Accelerated(), MXFP4, weights=56 * 512 * 60, dram=timed) for timed in (False, True)
    )
    assert queue.plan.dram is None and dram.plan.dram is not None and dram.seconds > queue.seconds
    assert dram.plan.latency == round(57.2 * 2.5 - dram.plan.dram.idle / UNITS) and dram.plan.dram.path == 0
    far = machine.changed(caches={"memory_latency": 150})
    assert simulate(far, Accelerated(), MXFP4, weights=56 * 512 * 60, dram=True).seconds > dram.seconds


def test_all_rows_are_counted():
    times = {batch: simulate(HBM, Accelerated(), MXFP4, 1.0, batch, SMALL) for batch in (1, 16, 17, 32, 64)}
    assert times[17].seconds == pytest.approx(2 * times[16].seconds, rel=0.01)
    assert times[64].seconds == pytest.approx(4 * times[16].seconds) and times[1].seconds <= times[16].seconds
    assert times[64].flops == pytest.approx(times[16].flops)
    assert times[64].matrix == pytest.approx(times[16].matrix)
    plain = [simulate(HBM, Baseline(), BF16, 1.0, batch, SMALL).seconds for batch in (16, 64)]
    assert 1.5 * plain[0] < plain[1] < 3 * plain[0]


def test_activations_are_read_once_by_each_core():
    result = simulate(HBM, Accelerated(), MXFP4, 1.0, batch=4, weights=SMALL)
    tiles = round(600 * (8192 + 28672) / 2 / 32 / (8192 * 28672 / 512 / 8))
    lines = {name.partition(" ")[2]: count for name, count in result.lines.items() if name.startswith("activations")}
    assert lines["demanded"] + lines["prefetched"] == 8 * tiles * 4 and lines["from memory"] == tiles * 4
    assert result.plan.activation_lines == 4 and result.plan.llc_lines == round(112.5e6 / 64)


@pytest.mark.parametrize("density, within", [(1.0, 0.03), (0.2, 0.05), (0.05, 0.08)])
def test_the_closed_form_is_near_where_nothing_but_rates_counts(density, within):
    closed = cycles_per_tile(HBM, Accelerated(), BF8, density)
    assert closed == pytest.approx(per_tile(Accelerated(), density=density), rel=within)
    assert cycles_per_tile(HBM, Accelerated(), BF8, density, batch=64) == 4 * closed
    software = cycles_per_tile(HBM, Software(), BF8, density)
    assert software == pytest.approx(per_tile(Software(), density=density), rel=0.07)


def test_the_closed_form_of_slower_systems():
    none, fence = Accelerated(prefetcher="none"), Accelerated(tepl=False)
    for system, density in ((none, 1.0), (fence, 0.05)):
        assert cycles_per_tile(HBM, system, BF8, density) == pytest.approx(per_tile(system, density=density), rel=0.25)
    plain = cycles_per_tile(HBM, Baseline(), BF16)
    assert plain == pytest.approx(simulate(HBM, Baseline(), BF16, weights=SMALL).cycles_per_tile, rel=0.03)
    assert plain < cycles_per_tile(HBM, Baseline(), BF16, batch=64) < 4 * plain
    with pytest.raises(MachineError, match="says nothing of its caches"):
        cycles_per_tile(read_machine("h100-80gb-pcie"), Accelerated(), BF8)


def test_shares_and_lines_add_up():
    result = simulate(HBM, Accelerated(), MXFP4, weights=SMALL)
    assert result.lines["demanded"] + result.lines["prefetched"] == result.plan.lines.sum()
    assert result.plan.lines.sum() * 64 == pytest.approx(8 * 600 * 272, rel=1e-3)
    assert result.memory == pytest.approx(272 * 8 * 600 / result.seconds / HBM.memory.bandwidth)
    assert result.matrix == pytest.approx(16 / result.cycles_per_tile) and 0 < result.decompressor < 1
    idle = sum(result.stalls.values()) + 17
    assert idle == pytest.approx(result.cycles_per_tile, rel=0.05)


def test_more_and_wider_vector_units_help_less_than_deca():
    times = {vectors: per_tile(Software(vectors), density=0.05) for vectors in ("as they are", "more", "wider")}
    assert times["as they are"] > times["more"] > times["wider"] > per_tile(Accelerated(), density=0.05)


def test_a_packed_matrix_brings_its_own_bitmasks():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(512, 256, generator=generator)
    mask = torch.rand(512, 256, generator=generator) < torch.linspace(0.1, 0.9, 512)[:, None]
    work = packed_workload(pack(weight, "bf8", mask=mask), cores=8)
    assert work.nonzeros.sum() == mask.sum() and work.nonzeros.shape == (8, 32, 16)
    assert work.nonzeros[0, :8].sum() == mask[:16].sum() and work.nonzeros[1, :8].sum() == mask[16:32].sum()
    result = simulate(HBM, Accelerated(), BF8, work=work)
    assert result.plan.cycles.sum() == np.maximum(-(-work.nonzeros // 8), 1).sum()
    with pytest.raises(ValueError, match="does not give each of 64 cores"):
        packed_workload(pack(weight, "bf8"), cores=64)


def test_random_windows_follow_the_density():
    work = random_workload(BF8, 0.3, 500, 4)
    assert work.nonzeros.mean() == pytest.approx(9.6, abs=0.05)
    assert work.lines.sum() * 512 == pytest.approx(work.nonzeros.sum() * 8 + 2000 * 512, rel=0.001)
    assert work.windows(64).shape == (4, 500, 8) and random_workload(BF8, 1.0, 5, 4).windows(8).shape == (1, 1, 64)
    with pytest.raises(ValueError, match="32 weights at a time, not 8"):
        work.windows(8)


def test_which_lines_an_operation_needs():
    dense = random_workload(BF8, 1.0, 3, 1)
    assert dense.needs(32)[0, 0].tolist() == [line for line in range(1, 9) for _ in range(2)]
    assert dense.code_lines[0].tolist() == [8, 8, 8] and dense.side_lines[0].tolist() == [0, 0, 0]
    scaled = random_workload(MXFP4, 1.0, 5, 1)  # 16 scales of a byte a tile: four tiles share a line
    taken, new = scaled.side_lines
    assert taken.tolist() == [1] * 5 and new.tolist() == [1, 0, 0, 0, 1] and scaled.needs(512)[0, 0].tolist() == [4]
    sparse = replace(random_workload(BF8, 0.5, 3, 1), nonzeros=np.array([[[40, 0], [0, 30], [60, 60]]]))
    assert sparse.needs(256)[0].tolist() == [[1, 1], [0, 2], [2, 2]]  # bytes 0 to 40, 40 to 70, 70 to 130, 130 to 190
    assert sparse.code_lines[0].tolist() == [1, 1, 1] and sparse.side_lines[1].tolist() == [1, 1, 1]


def test_the_l2_prefetcher_stops_at_a_page():
    ends = np.arange(1, 41)[None] * 4  # tiles of four lines, 16 a page
    result = page_triggers(ends, 8)[0]
    assert (result[[0, 1, 16, 17, 32, 33]] == -1).all()
    assert result[2] == 1 and result[5] == 3 and result[18] == 17 and result[20] == 18


def test_each_loader_turns_its_own_pages():
    dense = random_workload(MXFP4, 1.0, 300, 1)
    assert np.flatnonzero(page_turns(dense.pages)[0])[:6].tolist() == [0, 1, 16, 17, 32, 33]
    assert page_turns(dense.pages)[0, 256:258].all()  # a page of scales, too
    sparse = random_workload(BF8, 0.05, 70, 1)
    assert sparse.pages.shape == (2, 1, 70) and page_turns(sparse.pages)[0, 64:66].all()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: simulate(HBM, Baseline(), BF8, weights=SMALL), "the baseline multiplies dense bf16"),
        (lambda: simulate(HBM, Software(), BF16, weights=SMALL), "take the baseline"),
        (lambda: simulate(HBM, Software(), parse_weight("int2:g32"), 0.5, weights=SMALL), "nobody has counted"),
        (lambda: simulate(HBM, Accelerated(), BF8, 1.5), "a density is above 0"),
        (lambda: simulate(HBM, Accelerated(), BF8, weights=0), "at least one tile"),
        (lambda: simulate(HBM, Accelerated(), BF8, 0.5, weights=10**12), "more than can be simulated"),
        (lambda: Accelerated(l2=False), "without l2 there is none"),
        (lambda: Accelerated(degree=0), "at least 1"),
        (lambda: Accelerated(queue=0), "at least 1"),
        (lambda: Accelerated(tepl=False, flush_every=3), "not speculative"),
    ],
)
def test_what_cannot_be_simulated(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(MachineError, match="says nothing of its caches"):
        simulate(read_machine("h100-80gb-pcie"), Accelerated(), BF8)
