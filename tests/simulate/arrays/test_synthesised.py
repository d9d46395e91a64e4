"""Energies of groups and of values, from what was measured of the synthesised units, by hand: pJ at 7 nm and 0.7 V."""

import pytest

from tilepress.hardware import read_accelerator
from tilepress.hardware.technology import energy_scale
from tilepress.simulate.arrays.costs import group_energy
from tilepress.simulate.arrays.synthesised import value_energy

# Machine, mode, mantissa: pJ of how many products or values.
GROUPS = [
    ("anda", 0, 1, 3.258658662819141, 64),
    ("anda", 0, 8, 7.020089655429394, 64),
    ("anda", 0, 16, 11.823922476031402, 64),
    ("harmonia", 0, 8, 9.229015198279557, 4 * 32),
    ("harmonia", 1, 3, 7.941878324757319, 4 * 32),
    ("harmonia", 2, 8, 8.155742292536928, 2 * 32),
    ("figna", 0, 0, 15.027811743362644, 64),
    ("figna-m11", 0, 0, 11.046970441958685, 64),
    ("figna-m8", 0, 0, 7.915808162291246, 64),
    ("ifpu", 0, 0, 3.88745978648064, 16),
    ("fp-int", 0, 0, 0.5850305337928247, 1),
    ("fp-fp", 0, 0, 0.5004990155093552, 1),
    ("fp-fp", 1, 0, 0.5231837259305375, 1),
    ("fp16-fp16", 0, 0, 0.3358079292873006, 1),
    ("fp16-fp16", 1, 0, 0.37280775113445835, 1),
    ("fp16-int4", 0, 0, 0.21443830027894945, 1),
    ("tender", 0, 0, 0.19782172096719344, 1),
    ("m-ant", 0, 0, 0.14974558336416455, 1),
]


@pytest.mark.parametrize("name, mode, mantissa, energy, products", GROUPS)
def test_energy_of_a_group_by_hand(name, mode, mantissa, energy, products):
    machine = read_accelerator(name)
    scale = energy_scale(machine.node, machine.voltage) / energy_scale(7, 0.7)
    expected = machine.array.group * energy / products * scale
    assert group_energy(machine, machine.modes[mode], mantissa) == pytest.approx(expected)


def test_energy_of_a_converted_value_by_hand():
    anda, harmonia = read_accelerator("anda"), read_accelerator("harmonia")
    base = energy_scale(7, 0.7)
    seven = value_energy(anda, anda.converter, 7) * base / energy_scale(16, 0.8)
    assert 64 * seven == pytest.approx(9.055703201257495)
    value = value_energy(harmonia, harmonia.converter, 8) * base / energy_scale(28, 0.9)
    assert 32 * value == pytest.approx(1.657987968987705)
