"""Binary trees of adders and of comparators."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Module, Mux, Signal, Value


def tree(values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    """`join` over neighbours, then over the results, and so on; one that has no neighbour waits."""
    while len(values) > 1:
        pairs = [join(*values[at : at + 2]) for at in range(0, len(values) - 1, 2)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]


def total(values: Sequence[Value]) -> Value:
    """Their sum, with as many bits as it can have."""
    return tree(values, lambda a, b: a + b)


def count_ones(bits: Value) -> Value:
    return total(list(bits))


def largest(m: Module, values: Sequence[Value]) -> Value:
    """Of unsigned values of one width."""

    def larger(a: Value, b: Value) -> Value:
        result = Signal(len(a))
        m.d.comb += result.eq(Mux(a > b, a, b))
        return result

    return tree(values, larger)
