"""Which CPUs a rank has: those of its NUMA nodes, or its part of one node's."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
NODES = Path("/sys/devices/system/node")


def nodes(folder: Path = NODES) -> list[list[int]]:
    """CPUs of each NUMA node, by its number; none where the system does not say."""
    files = sorted(folder.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name.removeprefix("node")))
    return [_cpus(path.read_text("ascii")) for path in files]


def places(ranks: int, own: Sequence[int], nodes: Sequence[Sequence[int]]) -> list[list[int]]:
    """CPUs of each rank, of those that this process may use: whole nodes, or as many of one node's as the others there;
    all of these, where there are fewer than ranks."""
    allowed = [cpus for node in nodes if (cpus := sorted(set(node) & set(own)))]
    known = {cpu for node in allowed for cpu in node}
    given = allowed if known == set(own) and allowed else [sorted(own)]
    if ranks <= len(given):
        parts = _split(given, ranks)
        return [[cpu for node in part for cpu in node] for part in parts]
    on_node = _split(range(ranks), len(given))
    return [cpus for node, here in zip(given, on_node, strict=True) for cpus in _divided(node, len(here))]


def _divided(cpus: list[int], ranks: int) -> list[list[int]]:
    return [cpus] * ranks if len(cpus) < ranks else _split(cpus, ranks)


def _split(items: Sequence[T], parts: int) -> list[list[T]]:
    """One after the other, as even as can be."""
    return [list(items[len(items) * i // parts : len(items) * (i + 1) // parts]) for i in range(parts)]


def _cpus(text: str) -> list[int]:
    """Of a list like 0-3,8,10-11."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]
