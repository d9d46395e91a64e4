"""Parameters of tests whose whole product would take long."""


def in_turn(first, second, third):
    """Every pair of the first two, each with the next of `third`: pairs of any two are all there."""
    return [(a, b, third[(i + j) % len(third)]) for i, a in enumerate(first) for j, b in enumerate(second)]
