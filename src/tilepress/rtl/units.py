"""Every unit by its name: its parameters, and the component that they make."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, get_type_hints

from amaranth.lib.wiring import Component

# Name: module, its dataclass of parameters, its component.
_UNITS = {
    "deca-pe": ("deca", "Parameters", "Pe"),
    "anda-apu": ("anda.apu", "ApuParameters", "Apu"),
    "anda-compressor": ("anda.compressor", "CompressorParameters", "Compressor"),
    "harmonia-pe": ("harmonia.pe", "PeParameters", "Pe"),
    "harmonia-converter": ("harmonia.converter", "ConverterParameters", "Converter"),
    "harmonia-offsets": ("harmonia.offsets", "OffsetParameters", "OffsetGenerator"),
    "harmonia-subtractor": ("harmonia.offsets", "OffsetParameters", "KeySubtractor"),
    "fp-fp": ("rivals.fp_fp", "FpFpParameters", "FpFp"),
    "fp-int": ("rivals.fp_int", "FpIntParameters", "FpInt"),
    "figna": ("rivals.figna", "FignaParameters", "Figna"),
    "ifpu": ("rivals.ifpu", "IfpuParameters", "Ifpu"),
    "fp16-mac": ("rivals.fp16_mac", "Fp16MacParameters", "Fp16Mac"),
    "int-mac": ("rivals.int_mac", "IntMacParameters", "IntMac"),
    "m-ant-mac": ("rivals.m_ant_mac", "MAntMacParameters", "MAntMac"),
    "m-ant-sums": ("rivals.m_ant_mac", "MAntMacParameters", "MAntSums"),
    "int8-quantiser": ("rivals.int8_quantiser", "QuantiserParameters", "Quantiser"),
}
NAMES = tuple(_UNITS)


@dataclass(frozen=True)
class Unit:
    """A unit with its `parameters`."""

    name: str
    parameters: Any

    @property
    def settings(self) -> dict[str, str]:
        """Parameters as they are typed."""
        values = {field.name: getattr(self.parameters, field.name) for field in fields(self.parameters)}
        return {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in values.items()}

    def component(self) -> Component:
        """A new one."""
        module, _, component = _UNITS[self.name]
        return getattr(import_module(f".{module}", __package__), component)(self.parameters)


def unit_of(name: str, settings: Sequence[str] = ()) -> Unit:
    """The unit called `name`; `settings` like W=8 or formats=bf8,mxfp4 in the place of parameters' defaults."""
    if name not in _UNITS:
        raise ValueError(f"there is no unit {name!r}; there are {', '.join(NAMES)}")
    module, parameters, _ = _UNITS[name]
    kind = getattr(import_module(f".{module}", __package__), parameters)
    hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or key not in hints:
            known = ", ".join(hints)
            raise ValueError(f"{setting!r} sets nothing of {name}; it has {known}: write {next(iter(hints))}=8, say")
        values[key] = _value(hints[key], key, text)
    return Unit(name, kind(**values))


def _value(hint: Any, key: str, text: str) -> Any:
    if hint is int:
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ValueError(f"{key} is a whole number, not {text!r}")
        return int(text)
    return tuple(text.split(",")) if getattr(hint, "__origin__", None) is tuple else text
