import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.roofsurface import (
    POWERS_OF_TWO,
    Bound,
    Deca,
    Libxsmm,
    Space,
    designs,
    expected_time,
    predict,
    smallest,
    sweep,
)
from tilepress.roofsurface.search import NEGLIGIBLE

HBM, DDR = read_machine("spr-hbm"), read_machine("spr-ddr")
BF8, BF16, MXFP4 = map(parse_weight, ("bf8", "bf16", "mxfp4"))
DENSITIES = (0.5, 0.3, 0.2, 0.1, 0.05)
KERNELS = [(MXFP4, 1.0), (BF8, 1.0), *((BF8, d) for d in DENSITIES), *((BF16, d) for d in DENSITIES)]


def binding(machine, format, density, decompressor):
    return predict(machine, format, density, decompressor).surface.binding


def test_the_papers_regions():
    """Figures 5a to 5c as the text tells them."""
    assert [binding(HBM, *kernel, Libxsmm()) for kernel in KERNELS].count("vector") == 9
    of_ddr = {kernel: binding(DDR, *kernel, Libxsmm()) for kernel in KERNELS}
    assert [kernel for kernel, bound_by in of_ddr.items() if bound_by != "memory"] == [(BF8, 0.1), (BF8, 0.05)]
    faster = [binding(HBM, *kernel, Libxsmm(faster=4)) for kernel in KERNELS]
    assert 0 < faster.count("vector") < 9


def test_rows_beyond_one_matrix_operation():
    """Section 12.2: intensities grow fourfold at 64 rows, unless each sixteen rows decompress anew."""
    few, many = (predict(HBM, BF8, 0.2, Libxsmm(), batch) for batch in (16, 64))
    assert many.demands["memory"] == few.demands["memory"] / 4 and many.demands["matrix"] == 1
    assert many.rows == few.rows == 16
    again = predict(HBM, BF8, 0.2, Libxsmm(), 64, reuse=False)
    assert again.demands == few.demands and again.flops == few.flops
    assert predict(HBM, BF8, 0.2, Libxsmm(), 1).flops * 16 == pytest.approx(few.flops)
    with pytest.raises(ValueError, match="at least one row"):
        predict(HBM, BF8, 0.2, Libxsmm(), 0)


def test_following_the_advice_leaves_the_region():
    result = predict(HBM, MXFP4, 1.0, Libxsmm(), 16)
    assert result.surface.binding == "vector" and "2.18× the vector rate or 89.6 vector operations" in result.advice
    assert binding(HBM, MXFP4, 1.0, Libxsmm(faster=2.19)) == "memory"
    assert binding(HBM, MXFP4, 1.0, Libxsmm(faster=2.17)) == "vector"


def test_times_hide_behind_each_other_as_far_as_they_do():
    surface = Bound({"memory": 1 / 10, "vector": 1 / 6, "front end": 1 / 8})
    assert expected_time(surface, 1) == 1 / surface.rate == 10
    assert expected_time(surface, 0) == 18 and expected_time(surface, 0.75) == 12
    assert expected_time(Bound({"memory": 1 / 10}), 0) == 10


@pytest.mark.parametrize("density", [0, -1, 1.5])
def test_densities_that_are_none(density):
    with pytest.raises(ValueError, match="a density is above 0"):
        predict(HBM, BF8, density, Libxsmm())


def test_the_search_tries_every_number_of_tables():
    """The paper's engine is the smallest of those whose tables are a power of two."""
    assert smallest(HBM, KERNELS) == Deca(32, 7)
    assert smallest(HBM, KERNELS, Space(tables=POWERS_OF_TWO)) == Deca(32, 8)
    enough = {engine for engine in ENGINES if is_enough(HBM, engine)}
    assert min(enough, key=lambda one: (one.tables, one.width)) == Deca(32, 7)
    assert set(Space().engines) == ENGINES and NEGLIGIBLE == 0.01


ENGINES = {Deca(width, tables) for width in (1, 2, 4, 8, 16, 32, 64) for tables in range(1, width + 1)}


def is_enough(machine, engine):
    """Each kernel loses 1 % at most to the engine: alone, by `predict`."""
    limits = [predict(machine, *kernel, engine).surface.limits for kernel in KERNELS]
    return all(1.01 * one["vector"] >= min(one["memory"], one["matrix"]) for one in limits)


def test_searches_of_other_spaces():
    assert smallest(DDR, KERNELS) == Deca(16, 2)
    assert smallest(HBM, KERNELS, Space(widths=(8,))) is None
    with pytest.raises(ValueError, match="at least one kernel"):
        sweep(HBM, [], Space())


def test_each_variant_of_a_machine_has_its_smallest_engine():
    space = Space(bandwidths=(0.25, 1, 4), cores=(1, 2))
    result = {(one.bandwidth, one.cores): one.engine for one in designs(HBM, KERNELS, space)}
    assert len(result) == 6 and result[1, 1] == Deca(32, 7)
    slow, fast = result[0.25, 1], result[4, 1]
    assert slow.width * slow.tables < 32 * 7 and (fast is None or fast.width * fast.tables > 32 * 7)
    for (bandwidth, cores), engine in result.items():
        machine = HBM.changed(cores=56 * cores, memory={"bandwidth": 850e9 * bandwidth})
        assert engine == smallest(machine, KERNELS)


def test_a_sweep_is_each_point_alone():
    space = Space(widths=(8, 32), tables=(4, 8), bandwidths=(0.5, 1, 2), cores=(0.5, 1), frequencies=(1, 1.5))
    swept = sweep(HBM, KERNELS, space)
    assert swept.rates.shape == (4, 3, 2, 2, len(KERNELS))
    machine = HBM.changed(cores=28, frequency=3.75e9, memory={"bandwidth": 1700e9})
    engine = swept.engines.index(Deca(32, 4))
    for index, kernel in enumerate(KERNELS):
        alone = predict(machine, *kernel, Deca(32, 4)).surface
        assert swept.rates[engine, 2, 0, 1, index] == pytest.approx(alone.rate)
        assert swept.domains[swept.binding[engine, 2, 0, 1, index]] == alone.binding
