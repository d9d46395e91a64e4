"""Area and power by hand: every structure of table 3, every event of a tile."""

import pytest

from tilepress.hardware.technology import area_scale, energy_scale
from tilepress.roofsurface import Deca
from tilepress.simulate.deca.area import (
    QUEUES,
    REST,
    TABLES,
    area,
    busiest,
    leakage,
    logic_area,
    power,
    shares,
    tile_energy,
)
from tilepress.simulate.units.deca_pe import events

SMALLER = 0.059 / area_scale(22)
FASTER = energy_scale(7, 0.7) / energy_scale(22, 0.8)
CROSSBAR = 0.5 * (32 * 16 / 1024) ** 2  # a triangle of half as many wires as 16 ports of 64 bits


def test_area_of_every_structure():
    parts = area()
    assert parts[QUEUES] == pytest.approx((4 * 0.0258651 + 2 * 0.00236328) * SMALLER)
    assert parts[TABLES] == pytest.approx(8 * 0.00419353 * SMALLER)
    assert parts[REST] == pytest.approx(6257.91096e-6)


def test_logic_is_that_of_the_element_that_was_synthesised():
    """Tables are memory: of two that are as near the one with more lookups is no other."""
    assert logic_area(32, 8) == 6257.91096 and logic_area(4, 1) == pytest.approx(2285.0, abs=0.5)
    assert logic_area(32, 7) == logic_area(32, 8) and logic_area(32, 1) == logic_area(32, 4)
    wide = logic_area(64, 8)
    assert logic_area(128, 8) == pytest.approx(3 * wide - 2 * logic_area(32, 8))


def test_energy_of_a_busy_tile():
    """Of its 8 lines, 6 are of codes; 16 vOps of 32 lookups, moves, multiplications and twice as many additions."""
    parts, counts = tile_energy(busiest()), events(busiest(), Deca())
    assert busiest().windows(32) == [32] * 16
    assert counts.requests == 8 and counts.lookups == counts.crossbar_moves == counts.float_multiplies == 512
    memories = 22 * (10.7773 + 11.3889) + 8 * (0.57311 + 1.30624 + 0.457583)
    bits = 512 + 16 * 16 + 6 * 512  # bitmask, sixteen scales, lines at the head of the SQQ
    scale = energy_scale(7, 0.7)
    assert parts[QUEUES] == pytest.approx(memories * FASTER + bits * 0.0031 * scale)
    assert parts[TABLES] == pytest.approx(512 * 0.356306 * FASTER)
    logic = (2 * 512 * 16 * 0.0031 + 1024 * 0.1 + 512 * 1.1) * scale
    crossbar = 16 * 110 * CROSSBAR * scale / energy_scale(40, 0.9)
    assert parts[REST] == pytest.approx(logic + crossbar)


def test_power_is_energy_a_cycle_and_leakage():
    dynamic, leaking, whole = tile_energy(busiest()), leakage(), power()
    for part in (QUEUES, TABLES, REST):
        assert whole[part] == pytest.approx(dynamic[part] * 1e-12 * 2.5e9 / 16 + leaking.get(part, 0))
    assert leaking[TABLES] == pytest.approx(8 * 0.44779718e-3 * SMALLER**0.5 * 0.7 / 0.8)
    assert leaking[QUEUES] == pytest.approx((4 * 1.1644931 + 2 * 0.39270971) * 1e-3 * SMALLER**0.5 * 0.7 / 0.8)
    faster = power(frequency=5e9)
    assert faster[REST] == pytest.approx(2 * whole[REST])
    slow = power(Deca(32, 4))  # two cycles a vOp
    assert slow[REST] == pytest.approx(whole[REST] / 2)


def test_beside_the_papers():
    """56 elements: 2.51 mm² and 3.1 W in the paper; our area is a tenth short, our power a quarter."""
    assert 56 * sum(area().values()) == pytest.approx(2.247, abs=0.002)
    assert 56 * sum(power().values()) == pytest.approx(2.256, abs=0.002)
    assert 56 * sum(leakage().values()) == pytest.approx(0.216, abs=0.001)  # idle: less than 0.35 W, section 7
    assert [round(100 * share) for share in shares(area()).values()] == [64, 20, 16]
    assert [round(100 * share) for share in shares(power()).values()] == [53, 21, 26]
