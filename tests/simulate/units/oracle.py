"""Oracles: events of each unit in closed form, which the counts of stepped units are compared with; and what Harmonia's
formulas say is read from memory."""

from dataclasses import astuple

from tilepress.simulate.units import anda_apu as apu
from tilepress.simulate.units import anda_compressor as compressor
from tilepress.simulate.units import harmonia_converter as converter
from tilepress.simulate.units import harmonia_pe as pe
from tilepress.simulate.units.events import Events
from tilepress.simulate.units.halves import EXPONENT_BITS, SIGNIFICAND_BITS
from tilepress.simulate.units.harmonia_converter import COLUMNS, ROWS, Path
from tilepress.simulate.units.harmonia_pe import Mode
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


def apu_events(groups, mantissa):
    lanes = apu.LANES
    registers = lanes + EXPONENT_BITS + lanes * apu.WEIGHT_BITS + mantissa * apu.SUM_BITS + apu.TAIL * apu.FLOAT_BITS
    group = Events(
        plane_adds=mantissa * (lanes - 1),
        adds=mantissa,
        shifts=mantissa,
        register_bits=registers,
        converts=1,
        float_multiplies=1,
        float_adds=1,
    )
    return total((group, groups))


def compressor_events(groups, mantissa):
    """Lanes without a group rest."""
    size = compressor.GROUP
    loaded = size * (SIGNIFICAND_BITS + EXPONENT_BITS) + EXPONENT_BITS
    group = Events(
        compares=size - 1 + mantissa * size,
        adds=size,
        shifts=mantissa * size,
        register_bits=loaded + (1 + mantissa) * size,
    )
    return total((group, groups))


def converter_events(tokens, channels, path):
    """Lanes past the edge work too."""
    width = converter.GROUP if path is Path.channels else COLUMNS
    steps = -(-tokens // ROWS) * -(-channels // width) * width
    exponents = ROWS if path is Path.channels else 1  # written a step
    return Events(
        compares=ROWS * steps,
        adds=ROWS * steps,
        shifts=ROWS * steps,
        register_bits=steps * (exponents * EXPONENT_BITS + ROWS * (1 + converter.WIDEST)),
    )


def offset_events(tokens, channels, top):
    """Columns past the edge work too. Every entry compares with every channel; those that move write."""
    columns = -(-tokens // ROWS) * -(-channels // COLUMNS) * COLUMNS
    return Events(compares=columns * ROWS + channels * top, register_bits=columns * HALF_BITS)


def rival_events(unit, inputs, group):
    """With `group` weights to a scale (FIGNA: or values to an exponent)."""
    return total((PAIR[unit], inputs), (GROUP[unit], -(-inputs // group)))


def pe_events(modes):
    """Of one group in each of `modes`."""
    return total(*((_pe_group(mode), 1) for mode in modes))


def _pe_group(mode):
    halves, fused = pe.sums_per_group(mode), mode is Mode.m8m8
    operands = pe.PAIRS * (1 + pe.WHOLE_BITS) + EXPONENT_BITS + pe._OPERAND_BITS[mode]
    registers = operands + halves * pe.ROUND * pe.SUM_BITS
    return Events(
        multiplies=halves * pe.PAIRS,
        adds=halves * pe.PAIRS + fused,
        shifts=int(fused),
        register_bits=registers + fused * pe.FUSED_BITS + 3 * pe.FLOAT_BITS,
        converts=1,
        float_multiplies=int(mode is Mode.m8w4),
        float_adds=1,
    )


def external_reads(order, rows, inner, columns, tile_rows, tile_columns):
    """Values of A [rows, inner] and B [inner, columns] read from memory for A · B (section IV-D). Column-major: columns
    of B stay on the chip until all of A has passed, and A is read for each tile of them; row-major: the other way
    round. Parts of a tile count as whole ones."""
    a, b = rows * inner, inner * columns
    if order == "column-major":
        return -(-columns // tile_columns) * a + b
    return -(-rows // tile_rows) * b + a
