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
    logic_energy,
    memory_energy,
    power,
    shares,
)
from tilepress.simulate.units.deca_pe import events

SMALLER = 0.059 / area_scale(22)
FASTER = energy_scale(7, 0.7) / energy_scale(22, 0.8)


def test_area_of_every_structure():
    parts = area()
    assert parts[QUEUES] == pytest.approx((4 * 0.0258651 + 2 * 0.00236328) * SMALLER)
    assert parts[TABLES] == pytest.approx(8 * 0.00419353 * SMALLER)
    assert parts[REST] == pytest.approx(5709.61548e-6)


def test_logic_is_that_of_the_element_that_was_synthesised():
    """With as many tables, or the nearest number; of two that are as near the one with more lookups is no other."""
    assert logic_area(Deca(32, 8)) == 5709.61548 and logic_area(Deca(4, 1)) == 1898.85546
    assert logic_area(Deca(32, 7)) == logic_area(Deca(32, 8)) and logic_area(Deca(32, 1)) == logic_area(Deca(32, 4))
    assert logic_energy(Deca(32, 8)) == 73.11188947275812 and logic_energy(Deca(32, 2)) == 158.2563545472919
    for figure in (logic_area, logic_energy):
        assert figure(Deca(128, 8)) == pytest.approx(3 * figure(Deca(64, 8)) - 2 * figure(Deca(32, 8)))


def test_energy_of_memories_for_a_busy_tile():
    """Of its 8 lines, 6 are of codes; 16 vOps of 32 lookups."""
    parts, counts = memory_energy(busiest()), events(busiest(), Deca())
    assert busiest().windows(32) == [32] * 16 and counts.requests == 8 and counts.lookups == 512
    queues = 22 * (10.7773 + 11.3889) + 8 * (0.57311 + 1.30624 + 0.457583)
    assert parts == pytest.approx({QUEUES: queues * FASTER, TABLES: 512 * 0.356306 * FASTER})


def test_power_is_energy_a_cycle_and_leakage():
    leaking, whole = leakage(), power()
    dynamic = memory_energy(busiest()) | {REST: logic_energy(Deca())}
    for part in (QUEUES, TABLES, REST):
        assert whole[part] == pytest.approx(dynamic[part] * 1e-12 * 2.5e9 / 16 + leaking.get(part, 0))
    assert leaking[TABLES] == pytest.approx(8 * 0.44779718e-3 * SMALLER**0.5 * 0.7 / 0.8)
    assert leaking[QUEUES] == pytest.approx((4 * 1.1644931 + 2 * 0.39270971) * 1e-3 * SMALLER**0.5 * 0.7 / 0.8)
    faster = power(frequency=5e9)
    assert faster[REST] == pytest.approx(2 * whole[REST])
    slow = power(Deca(32, 4))  # two cycles a vOp
    assert slow[TABLES] - leakage(Deca(32, 4))[TABLES] == pytest.approx((whole[TABLES] - leaking[TABLES]) / 2)
    assert slow[REST] == pytest.approx(logic_energy(Deca(32, 4)) * 1e-12 * 2.5e9 / 32)


def test_beside_the_papers():
    """56 elements: 2.51 mm² and 3.1 W in the paper; our area is a tenth short, our power a quarter."""
    assert 56 * sum(area().values()) == pytest.approx(2.217, abs=0.002)
    assert 56 * sum(power().values()) == pytest.approx(2.307, abs=0.002)
    assert 56 * sum(leakage().values()) == pytest.approx(0.216, abs=0.001)  # idle: less than 0.35 W, section 7
    assert [round(100 * share) for share in shares(area()).values()] == [65, 20, 14]
    assert [round(100 * share) for share in shares(power()).values()] == [52, 20, 28]
