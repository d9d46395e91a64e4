"""The first tiles of a core, step by step."""

from .simulation import Result

STEPS = {  # step: colour, of Okabe and Ito's
    "waiting for memory": "#009E73",
    "on its way from the cache": "#56B4E9",
    "in the decompressor": "#E69F00",
    "on its way to the core": "#CC79A7",
    "multiplied": "#0072B2",
}


def steps(result: Result, core: int, tile: int) -> dict[str, tuple[int, int]]:
    """Step → first cycle and length."""
    trace, plan = result.trace, result.plan
    issue, arrive, start, out, done, end = (
        int(one[core, tile]) for one in (trace.issue, trace.arrive, trace.start, trace.end, trace.done, trace.product)
    )
    there = min(max(issue, arrive), start)
    spans = ((issue, there), (there, start), (start, out), (out, done), (end - plan.matrix, end))
    return {name: (first, last - first) for name, (first, last) in zip(STEPS, spans, strict=True)}
