from dataclasses import replace

import numpy as np
import pytest
import torch

from tilepress.formats import parse_weight
from tilepress.hardware import MachineError, read_machine
from tilepress.roofsurface import Deca, predict
from tilepress.simulate.deca import (
    FITTED,
    Accelerated,
    Baseline,
    Software,
    engine,
    packed_workload,
    random_workload,
    simulate,
)
from tilepress.simulate.deca.plan import UNITS, Leaves
from tilepress.simulate.deca.reference import Reference
from tilepress.simulate.deca.systems import page_triggers, page_turns
from tilepress.tiles import pack

HBM = read_machine("spr-hbm").changed(cores=8, memory={"bandwidth": 850e9 / 7})  # an eighth of it, as fast a core
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
    return replace(Accelerated(deca).plan(machine, work), **nothing, **deep, **early)


@pytest.mark.parametrize("density", [1.0, 0.5, 0.2, 0.05])
@pytest.mark.parametrize("deca", [Deca(8, 4), Deca(32, 8), Deca(64, 64)])
def test_without_latencies_it_is_the_analytic_model(density, deca):
    expected = predict(HBM, BF8, density, deca).surface.rate
    result = 8 * 1500 / (engine.run(without_latencies(HBM, deca, density, 1500)).cycles / HBM.frequency)
    assert result == pytest.approx(expected, rel=0.03) and result < 1.005 * expected


@pytest.mark.parametrize("density, tiles", [(1.0, 150), (0.2, 300), (0.05, 600)])
def test_so_it_is_cycle_by_cycle(density, tiles):
    pair = HBM.changed(cores=2, memory={"bandwidth": HBM.memory.bandwidth / 4})
    plan = without_latencies(pair, Deca(), density, tiles)
    rate = 2 * tiles / (Reference(plan).run().cycles / pair.frequency)
    assert rate == pytest.approx(predict(pair, BF8, density, Deca()).surface.rate, rel=0.05)


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
        (Accelerated(prefetcher="l2", registers=False, tepl=False, flush_every=7), BF8, 1.0),
        (Software(), BF8, 0.5),
        (Baseline(), BF16, 1.0),
    ],
)
def test_real_systems_are_equal_to_the_cycle_in_both_engines(system, format, density):
    machine = HBM.changed(cores=3)
    plan = system.plan(machine, random_workload(format, density, 30, 3, width=32 if density < 1 else 512))
    slow, fast = Reference(plan).run(), engine.run(plan)
    for name in ("issue", "arrive", "start", "done", "product"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    assert (fast.demanded, fast.prefetched, fast.dropped) == (slow.demanded, slow.prefetched, slow.dropped)


def test_squashed_calls_cost_time_and_lose_nothing():
    calm, flushed = (simulate(HBM, Accelerated(flush_every=n), BF8, 0.05, weights=SMALL) for n in (0, 10))
    assert flushed.seconds > 1.02 * calm.seconds
    assert sum(flushed.lines.values()) - flushed.lines["dropped"] == sum(calm.lines.values()) - calm.lines["dropped"]


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
    assert work.windows(64).shape == (4, 500, 8) and random_workload(BF8, 1.0, 5, 4).windows(8).shape == (4, 5, 64)
    with pytest.raises(ValueError, match="32 weights at a time, not 8"):
        work.windows(8)


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
    ],
)
def test_what_cannot_be_simulated(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(MachineError, match="says nothing of its caches"):
        simulate(read_machine("h100-80gb-pcie"), Accelerated(), BF8)


def test_every_fitted_parameter_says_by_what():
    assert all(one.cells or one.why for one in FITTED.values())
    items = {cells.item for one in FITTED.values() for cells in one.cells}
    assert items == {"deca/table1", "deca/table2", "deca/table4", "deca/table5"}
