"""Families of figures: that they have what commands give."""

from dataclasses import fields

from tilepress.report.catalogue import ENERGIES, SETTINGS, SYNTHESIS
from tilepress.rtl.energy.operation import Energy
from tilepress.rtl.synthesis import Options, Synthesis
from tilepress.rtl.units import NAMES, unit_of


def test_every_parameter_and_figure_of_a_unit_has_its_place():
    parameters = {name for unit in NAMES for name in unit_of(unit).settings}
    assert parameters | Options(size=True, gate_clocks=False).labels.keys() == set(SETTINGS)
    assert {one.name for one in fields(Synthesis)} == set(SYNTHESIS.metrics)
    assert {f"energy_{one.name}" for one in fields(Energy)} < set(ENERGIES.metrics)
