"""What each constant is and where it acts, by the paper's words or a case worked by hand: a changed one fails here."""

import numpy as np
import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.simulate.deca import CHOICES, FITTED, Accelerated, Baseline, Software, band, engine, parameters
from tilepress.simulate.deca.next_token import LLAMA2_70B, other_time
from tilepress.simulate.deca.plan import Leaves
from tilepress.simulate.deca.systems import page_triggers
from tilepress.simulate.deca.units import PAGE_LINES, UNITS
from tilepress.simulate.deca.workload import LINE_BITS, layer_first_pass, random_workload

HBM, DDR = read_machine("spr-hbm"), read_machine("spr-ddr")
QUEUE = HBM.changed(memory={"dram": None, "path_latency": None, "mesh_bandwidth": None})
BF8, BF16, MXFP4 = map(parse_weight, ("bf8", "bf16", "mxfp4"))


def plan(system=None, format=BF8, density=1.0, machine=QUEUE, tiles=200, rows=1):
    return (system or Accelerated()).plan(machine, random_workload(format, density, tiles, 2), rows)


def test_sizes_that_the_paper_prints():
    made = plan()
    assert made.ports == 2  # section 5.2: two loaders
    assert made.queue == 8  # section 7: an 8-entry TEPL queue
    assert (
        made.needs.shape[-1] == 16 and made.occupancy.sum() == 64
    )  # section 6.1: 512 / 32 operations, W/L cycles each
    assert made.loader_lines == 2048 // 64 == 256 // 8  # table 3: SQQ of 2 KB by 64 bytes, LDU of 256 by 8
    assert made.matrix == 16  # section 2.3: launched every 16 cycles
    assert parameters.TILE_REGISTERS == 8 and made.registers == 6  # section 2.3; one of activations, one of sums
    assert plan(Accelerated(degree=1)).trigger[0, 50] == 48 and made.trigger[0, 50] == 40  # section 8.3: degree 5


def test_a_tile_leaves_the_pipeline_two_cycles_after_the_first_stage():
    """Section 6.1: three stages; the last operation leaves the first, then expand and scale take a cycle each."""
    made = plan()
    trace = engine.run(made)
    assert made.depth == 2 and made.back == 3 and made.send == 3
    assert (trace.done - trace.end == 2 + 3).all()
    assert plan(Accelerated(registers=False)).depth == 2 + 14  # through the L2 cache
    assert plan(Accelerated(registers=False)).back == 14


def test_a_call_by_fences_waits_for_all_rows():
    """Section 5.2: TLoad reads 16 rows after asking; the store of the next tile's metadata goes one way."""
    made = plan(Accelerated(tepl=False))
    assert made.serial and made.back == 16 + 2 * 3 and made.store == 3
    assert plan(Accelerated(tepl=False, registers=False)).back == 16 + 14


def test_the_core_takes_in_calls():
    """Six instructions a cycle (issue), eight a tile; 512 in the reorder buffer."""
    made = plan(Accelerated(flush_every=5))
    assert made.dispatch == 2 and made.window == 64
    assert parameters.REORDER_BUFFER == 512 and parameters.TILE_INSTRUCTIONS == 8  # LLVM's MicroOpBufferSize; assumed
    assert made.flush_time == 14 and made.flush_after == 20  # LLVM's penalty; assumed
    assert plan(machine=QUEUE.changed(issue=3)).dispatch == 3


def test_the_latency_of_memory_is_57_ns_at_any_clock():
    assert FITTED["memory_latency"].unit == "ns" and plan().latency == 143
    assert plan(machine=QUEUE.changed(frequency=5e9)).latency == 286
    assert plan(machine=QUEUE.changed(caches={"memory_latency": 130})).latency == 325
    assert plan(machine=HBM).latency + plan(machine=HBM).dram.idle / UNITS == pytest.approx(143, abs=0.5)


def test_the_bandwidth_that_is_reached():
    line = 64 * 2.5e9 / 850e9 * UNITS
    assert plan().line_time == round(line / 0.94) == plan(Baseline(), BF16).line_time
    assert plan(Software()).line_time == round(line / 0.76)
    assert plan(machine=HBM).dram.mesh == round(line) and plan(machine=DDR).dram.mesh == round(line)
    assert plan(Software(), machine=HBM).dram.mesh == round(line / 0.76 * 0.94)


def test_caches():
    made = plan()
    assert made.hit == 14 and made.misses == 48 and made.waiting == 32  # Sniper's queue of prefetches
    assert made.llc_latency == 70 and made.llc_misses == 48 * 56 and made.llc_lines == round(112.5e6 / 64)
    assert plan(machine=DDR).llc_lines == round(105e6 / 64)
    assert plan(Baseline(), BF16).ports == 48 // 16 + 2
    assert plan(Software()).trigger[0, 100] == 52 and plan(Software()).waiting == 0


def test_prefetches():
    assert plan().leaves == Leaves.loaded and plan(Accelerated(prefetcher="l2")).leaves == Leaves.arrived
    assert PAGE_LINES == 4096 // 64 and LINE_BITS == 512
    walks = plan(format=MXFP4).walk[0]
    assert sorted(set(walks.tolist())) == [0, 50] and walks[:20].nonzero()[0].tolist() == [0, 1, 16, 17]
    lines = page_triggers(np.arange(1, 131)[None], 8)[0]
    assert lines[:2].tolist() == [-1, -1] and lines[2] == 1 and lines[20] == 12 and (lines[64:66] == -1).all()
    ahead = plan(Accelerated(prefetcher="l2"), MXFP4).trigger[0]  # four lines a tile: two tiles ahead
    assert ahead[10] == 8 and ahead[16] == -1


def test_software_is_bound_by_vector_units_or_by_what_a_core_takes_in():
    """142 operations of sparse 8-bit codes on two units, at 91 %; 2.7 instructions each, six a cycle."""
    as_it_is, more, wider = (plan(Software(kind), density=0.5) for kind in ("as they are", "more", "wider"))
    assert as_it_is.occupancy.max() == round(142 / 2 / 0.91)
    assert more.occupancy.max() == round(2.7 * 142 / 6 / 0.91)
    memory = 3 * 16  # operations on memory of a tile's rows do not get fewer
    assert wider.occupancy.max() == round((memory + (2.7 * 142 - memory) / 4) / 6 / 0.91)


def test_a_tile_switch_takes_a_cycle():
    made = plan()
    trace = engine.run(made)
    assert made.switch == 1 and (trace.start[:, 1:] - trace.end[:, :-1]).min() == 1
    work = random_workload(BF8, 1.0, 200, 2)
    assert Accelerated().busy(QUEUE, work) == 200 * 65


def test_activations_of_the_layers_of_llama():
    share = (8192 + 28672) / 2 / 32 / (8192 * 28672 / 512 / 56)
    assert layer_first_pass(56) == pytest.approx(share) and share == pytest.approx(0.0703, abs=1e-4)
    made = plan(machine=QUEUE, rows=7)
    assert made.activation_lines == 7 and made.activations == round(200 * layer_first_pass(2))
    assert made.activation_trigger[20] == 12  # the L2 prefetcher's, eight lines ahead


def test_what_a_token_takes_beside_gemms():
    cache = 80 * 2 * 8192 * 2 * 192 / 730e9
    assert other_time(LLAMA2_70B, 1, 192) == pytest.approx(80 * (0.236e-3 + 1.4e-6) + cache)
    assert other_time(LLAMA2_70B, 16, 192) == pytest.approx(80 * (0.236e-3 + 16 * 1.4e-6) + 16 * cache)


def test_the_band():
    assert band.LATENCIES == (57, 150) and band.DEGREES == (5, 15)
    systems = list(band.band(Accelerated()))
    assert len(systems) == 8 and {system.degree for _, system in systems} == {5, 15}
    assert {(memory.latency, memory.dram) for memory, _ in systems} == {
        (57, False),
        (57, True),
        (150, False),
        (150, True),
    }
    assert len(list(band.band(Software()))) == 4 and len(list(band.band(Accelerated(prefetcher="l2")))) == 4
    assert systems[0][0].of(HBM).caches.memory_latency == 57


def test_every_fitted_constant_and_choice_says_by_what():
    assert all(one.cells or one.why for one in FITTED.values())
    items = {cells.item for one in FITTED.values() for cells in one.cells}
    assert items == {"deca/table1", "deca/table2", "deca/table4", "deca/table5"}
    assert all(one.cells for one in CHOICES.values())


def test_a_core_reads_15_bytes_a_cycle_from_the_last_level():
    """Skylake Server's, 15 bytes: what uncompressed tiles of further rows come at."""
    assert read_machine("spr-hbm").caches.llc_rate == 15
