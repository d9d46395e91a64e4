"""Proofs of units, and that units which are broken are caught."""

import inspect
import types

import pytest

from tilepress.rtl.anda import apu, compressor
from tilepress.rtl.checking import Broken, Monitor, prove
from tilepress.rtl.deca import expand, loader, pe, tile_register
from tilepress.rtl.harmonia import converter
from tilepress.rtl.monitors import MONITORS, anda, deca, monitors_of

QUICK = [("deca-pe", "rows"), ("deca-pe", "requests"), ("anda-apu", "groups"), ("anda-compressor", "rounds")]
SLOW = [(unit, name) for unit, monitors in MONITORS.items() for name in monitors if (unit, name) not in QUICK]


def assert_proved(unit, name):
    monitor = monitors_of(unit)[name]()
    proof = prove(name, monitor)
    assert proof.properties == monitor.properties
    assert proof.frames > 1 and proof.reached > 1 and proof.gates > proof.flip_flops > 0


@pytest.mark.parametrize("unit, name", QUICK)
def test_every_state(unit, name):
    assert_proved(unit, name)


@pytest.mark.slow
@pytest.mark.parametrize("unit, name", SLOW)
def test_every_state_of_larger_circuits(unit, name):
    assert_proved(unit, name)


def altered(module, name, old, new):
    """A component of a module whose source has `new` in the place of `old`; the rest is the module's."""
    source, original = inspect.getsource(module), getattr(module, name)
    assert source.count(old) == 1
    other = types.ModuleType(module.__name__)
    other.__package__ = module.__package__
    exec(source.replace(old, new), vars(other))
    functions = {key: one for key, one in vars(getattr(other, name)).items() if isinstance(one, types.FunctionType)}
    above = (types.CellType(original),)  # what `super()` begins at
    methods = {
        key: types.FunctionType(one.__code__, vars(module), key, one.__defaults__, above if one.__closure__ else None)
        for key, one in functions.items()
    }
    return type(original)(name, (original,), methods)


# Monitor, where a component is used, its module and name; what is altered in it.
MUTANTS = {
    "a row goes on without the core": (
        ("deca-pe", "rows", deca, tile_register, "TileRegister"),
        ("passes = self.row.valid & self.row.ready", "passes = self.row.valid"),
    ),
    "a squash keeps what was written": (
        ("deca-pe", "rows", deca, tile_register, "TileRegister"),
        ("with m.If(self.start | self.finish):", "with m.If(self.finish):"),
    ),
    "a request goes on without memory": (
        ("deca-pe", "requests", deca, loader, "Loader"),
        ("with m.If(self.request.valid & self.request.ready):", "with m.If(self.request.valid):"),
    ),
    "a line of a squashed tile enters": (
        ("deca-pe", "requests", deca, loader, "Loader"),
        ("(tag.epoch == self.epoch) & ", ""),
    ),
    "weights are loaded too late": (
        ("anda-apu", "groups", anda, apu, "Apu"),
        ("weights.eq(waiting)", "weights.eq(self.weights)"),
    ),
    "a round is taken before the last is out": (
        ("anda-compressor", "rounds", anda, compressor, "Compressor"),
        ("load.eq(self.valid & self.ready)", "load.eq(self.valid)"),
    ),
}
SLOW_MUTANTS = {
    "a squash leaves an operation in a stage": (
        ("deca-pe", "pipeline", pe, expand, "Expand"),
        ("self.valid & ~self.squash", "self.valid"),
    ),
    "blocks share half of the memory": (
        ("harmonia-converter", "blocks", converter, converter, "Steps"),
        ("self.address = self._half * parameters.places + self.place", "self.address = self.place"),
    ),
}


def assert_caught(mutant, monkeypatch):
    (unit, name, user, module, component), change = mutant
    monkeypatch.setattr(user, component, altered(module, component, *change))
    with pytest.raises(Broken, match=rf"{name}: .* does not hold in cycle \d+"):
        prove(name, monitors_of(unit)[name]())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_unit_is_caught(mutant, monkeypatch):
    assert_caught(MUTANTS[mutant], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SLOW_MUTANTS)
def test_a_larger_broken_unit_is_caught(mutant, monkeypatch):
    assert_caught(SLOW_MUTANTS[mutant], monkeypatch)


class Idle(Monitor):
    """Of a unit to which nothing ever happens."""

    properties = ("no total is marked",)

    def holds(self, m):
        return {self.properties[0]: ~self.unit.done}

    def assumed(self, m):
        return ~self.unit.valid

    def reached(self, m):
        return self.unit.done


def test_a_proof_of_nothing_is_refused():
    unit = apu.Apu(apu.ApuParameters(lanes=2, weight_bits=2, mantissa=1))
    with pytest.raises(RuntimeError, match="idle: what is proved says nothing, for in 5 cycles nothing happens"):
        prove("idle", Idle(unit), cycles=5)


def test_units_without_a_monitor_are_named():
    with pytest.raises(ValueError, match="there is no monitor of 'ifpu'; there are monitors of deca-pe, anda-apu, "):
        monitors_of("ifpu")
