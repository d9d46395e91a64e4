"""Oracles: events of units whose files have no formula for them, in closed form; and what Harmonia's formulas say is
read from memory."""

from dataclasses import astuple

from tilepress.simulate.units.events import Events
from tilepress.simulate.units.halves import EXPONENT_BITS
from tilepress.simulate.units.harmonia_converter import COLUMNS, ROWS
from tilepress.simulate.units.rivals import FLOAT_BITS, HALF_BITS, SUM_BITS, Rival

PAIR = {
    Rival.fp_fp: Events(float_multiplies=2, converts=1, float_adds=1, register_bits=HALF_BITS + FLOAT_BITS),
    Rival.fp_int: Events(float_multiplies=1, float_adds=1, register_bits=FLOAT_BITS),
    Rival.figna: Events(compares=1, adds=2, shifts=1, multiplies=1, register_bits=SUM_BITS),
}
GROUP = {
    Rival.fp_fp: Events(),
    Rival.fp_int: Events(float_multiplies=1, float_adds=1, register_bits=FLOAT_BITS),
    Rival.figna: Events(converts=1, float_multiplies=1, float_adds=1, register_bits=EXPONENT_BITS + 2 * FLOAT_BITS),
}


def total(*terms):
    """Σ times · events, of (events, times)."""
    counts = [[times * count for count in astuple(events)] for events, times in terms]
    return Events(*map(sum, zip(*counts, strict=True)))


def offset_events(tokens, channels, top):
    """Columns past the edge work too. Every entry compares with every channel; those that move write."""
    columns = -(-tokens // ROWS) * -(-channels // COLUMNS) * COLUMNS
    return Events(compares=columns * ROWS + channels * top, register_bits=columns * HALF_BITS)


def rival_events(unit, inputs, group):
    """With `group` weights to a scale (FIGNA: or values to an exponent)."""
    return total((PAIR[unit], inputs), (GROUP[unit], -(-inputs // group)))


def external_reads(order, rows, inner, columns, tile_rows, tile_columns):
    """Values of A [rows, inner] and B [inner, columns] read from memory for A · B (section IV-D). Column-major: columns
    of B stay on the chip until all of A has passed, and A is read for each tile of them; row-major: the other way
    round. Parts of a tile count as whole ones."""
    a, b = rows * inner, inner * columns
    if order == "column-major":
        return -(-columns // tile_columns) * a + b
    return -(-rows // tile_rows) * b + a
