"""Roof-Surfaces that records hold: rates are limits times demands, points are kernels."""

from collections.abc import Sequence

from ..records import Record, Value
from ..roofsurface import MATRIX, MEMORY, VECTOR
from .blocks import Section, Sources, Surface, number
from .catalogue import ROOFS
from .families import Figure, read, table

DOMAINS = (MEMORY, VECTOR, MATRIX)
Values = dict[tuple[str, str], Value]  # by metric and domain, "" of none


def surface_section(records: Sequence[Record]) -> Section | None:
    figures = read(ROOFS, records)
    kernels = table(ROOFS, figures)
    if kernels is None:
        return None
    surfaces = []
    keys = dict.fromkeys(_key(one) for one in figures)
    for target, command in keys:
        here = [one for one in figures if _key(one) == (target, command)]
        title = target if len(keys) == 1 else f"{target}, by {command}"
        surface = _surface(title, here)
        surfaces += [surface] if surface else []
    about = "The slowest of memory, vector and matrix units binds a kernel. TFLOPS count a multiply-add as one."
    return Section("surface", "Roof-Surface", about, [*surfaces, kernels])


def _key(figure: Figure) -> tuple[str, str]:
    return figure.words["target"], figure.words["command"]


def _surface(title: str, figures: Sequence[Figure]) -> Surface | None:
    """None where no kernel asks all three domains."""
    kernels: dict[str, Values] = {}
    for one in figures:
        kernels.setdefault(one.words["kernel"], {})[one.metric, one.label("domain")] = one.record.value
    whole = {name: values for name, values in kernels.items() if _is_whole(values)}
    if not whole:
        return None
    first = next(iter(whole.values()))
    rates = {domain: _figure(first, "limit", domain) * _figure(first, "demand", domain) for domain in DOMAINS}
    flops = 1e12 * _figure(first, "rate") / min(_figure(first, "limit", domain) for domain in DOMAINS)
    points = [
        {
            "name": name,
            "x": 1 / _figure(values, "demand", MEMORY),
            "y": 1 / _figure(values, "demand", VECTOR),
            "z": values["rate", ""],
            "bound": values["bound_by", ""],
        }
        for name, values in whole.items()
    ]
    return Surface(title, rates, flops, points, Sources.of(one.record for one in figures))


def _is_whole(values: Values) -> bool:
    needed = [("rate", ""), *((metric, domain) for domain in DOMAINS for metric in ("limit", "demand"))]
    return all((number(values.get(one)) or 0) > 0 for one in needed) and ("bound_by", "") in values


def _figure(values: Values, metric: str, domain: str = "") -> float:
    value = number(values[metric, domain])
    assert value is not None
    return value
