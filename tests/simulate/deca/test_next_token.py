import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.roofsurface import Deca
from tilepress.simulate.deca import Accelerated, Baseline
from tilepress.simulate.deca.area import area, power, shares
from tilepress.simulate.deca.next_token import LLAMA2_70B, OPT_66B, next_token, other_time

HBM = read_machine("spr-hbm")
BF16, MXFP4 = map(parse_weight, ("bf16", "mxfp4"))
SMALL = 56 * 512 * 300


def test_layer_tables_have_the_models_weights():
    assert LLAMA2_70B.weights == pytest.approx(68.7e9, rel=0.002)
    assert OPT_66B.weights == pytest.approx(65.7e9, rel=0.002)


def test_row_panels():
    few, many = (next_token(HBM, Accelerated(), LLAMA2_70B, MXFP4, 1.0, batch, weights=SMALL) for batch in (16, 64))
    assert many.gemms == pytest.approx(4 * few.gemms)
    few, many = (next_token(HBM, Baseline(), LLAMA2_70B, BF16, 1.0, batch, weights=SMALL) for batch in (16, 64))
    assert 1.5 * few.gemms < many.gemms < 3 * few.gemms
    assert many.total == many.gemms + many.other


def test_one_sequence_of_192_tokens_is_meant_where_nothing_is_said():
    said = next_token(HBM, Accelerated(), LLAMA2_70B, MXFP4, 1.0, 1, 192, SMALL)
    assert next_token(HBM, Accelerated(), LLAMA2_70B, MXFP4, weights=SMALL) == said


def test_other_time_grows_with_sequences_and_their_tokens():
    alone = other_time(LLAMA2_70B, 1, 0)
    assert other_time(LLAMA2_70B, 16, 0) > alone and other_time(LLAMA2_70B, 1, 4096) > alone
    assert other_time(OPT_66B, 1, 0) == pytest.approx(alone * 64 / 80)


def test_area_and_power_grow_with_the_engine():
    small, large = area(Deca(8, 4)), area(Deca(64, 64))
    assert large["look-up tables"] == pytest.approx(16 * small["look-up tables"])
    assert sum(large.values()) > 2 * sum(area().values()) > 2 * sum(small.values())
    still, at, twice = (sum(power(frequency=clock).values()) for clock in (0.0, 2.5e9, 5e9))
    assert 0 < still < at and twice - still == pytest.approx(2 * (at - still))  # leakage, and what the clock takes
    assert sum(shares(area()).values()) == pytest.approx(1)
