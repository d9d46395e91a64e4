"""Roof-Surfaces that records hold: rates are limits times demands, points are kernels."""

from collections.abc import Mapping, Sequence

from ..records import Record, Value
from ..roofsurface import MATRIX, MEMORY, VECTOR
from .blocks import Section, Sources, Surface, number
from .families import ROOFS, Figure, read, table

DOMAINS = (MEMORY, VECTOR, MATRIX)


def surface_section(records: Sequence[Record]) -> Section | None:
    figures = read(ROOFS, records)
    found = table(ROOFS, figures)
    if found is None:
        return None
    surfaces = []
    for key in dict.fromkeys(_key(one) for one in figures):
        surface = _surface(key, [one for one in figures if _key(one) == key])
        surfaces += [surface] if surface else []
    about = "The slowest of memory, vector and matrix units binds a kernel. TFLOPS count a multiply-add as one."
    return Section("surface", "Roof-Surface", about, [*surfaces, found])


def _key(figure: Figure) -> tuple[str, str]:
    return figure.words["command"], figure.words["machine_name"]


def _surface(key: tuple[str, str], figures: Sequence[Figure]) -> Surface | None:
    """None where no kernel asks all three domains."""
    kernels: dict[str, dict[str, Value]] = {}
    for one in figures:
        kernels.setdefault(one.words["kernel"], {})[one.what] = one.record.value
    whole = {name: found for name, found in kernels.items() if _is_whole(found)}
    if not whole:
        return None
    first = next(iter(whole.values()))
    rates = {domain: _figure(first, f"{domain}.limit") * _figure(first, f"{domain}.demand") for domain in DOMAINS}
    flops = 1e12 * _figure(first, "rate") / min(_figure(first, f"{domain}.limit") for domain in DOMAINS)
    points = [
        {
            "name": name,
            "x": 1 / _figure(found, "memory.demand"),
            "y": 1 / _figure(found, "vector.demand"),
            "z": found["rate"],
            "bound": found["bound_by"],
        }
        for name, found in whole.items()
    ]
    return Surface(f"{key[1]}, by {key[0]}", rates, flops, points, Sources.of(one.record for one in figures))


def _is_whole(found: Mapping[str, Value]) -> bool:
    wanted = [f"{domain}.{what}" for domain in DOMAINS for what in ("limit", "demand")]
    return all((number(found.get(name)) or 0) > 0 for name in (*wanted, "rate")) and "bound_by" in found


def _figure(found: Mapping[str, Value], name: str) -> float:
    value = number(found[name])
    assert value is not None
    return value
