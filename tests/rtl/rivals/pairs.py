"""Units that take a pair a cycle and mark where a dot product begins and ends."""

from tests.rtl.rivals.dots import run


def marked(pairs):
    """Cycles of one dot product: each pair a dict of inputs."""
    last = len(pairs) - 1
    return [
        {"valid": 1, **pair, "first": int(index == 0), "last": int(index == last)} for index, pair in enumerate(pairs)
    ]


def results(unit, dots, pauses=None):
    """Total and cycles of each dot product; after each pair so many cycles without one."""
    inputs = []
    for dot in dots:
        for given in marked(dot):
            inputs += [given, *[{"valid": 0}] * (pauses() if pauses else 0)]
    return run(unit, inputs, [len(dot) for dot in dots])
