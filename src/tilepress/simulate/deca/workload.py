"""What there is to do: for each core its tiles, with the lines that each takes and the codes that each window holds."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ...formats import WeightFormat
from ...hardware.machine import TILE_WEIGHTS
from ...tiles import PackedMatrix, unpack_codes
from ...tiles.layout import BLOCK_NEURONS, element_order
from ..layers import TRANSFORMERS
from .units import PAGE_LINES

LINE_BITS = 512
MOST_TILES = 5_000_000
TILE_INPUTS = 32
Ints = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Workload:
    """`nonzeros` [cores, tiles, parts]: codes in each of the equal parts that a tile is cut into, the whole tile if it
    is dense. Every core has as many tiles. `first_pass`: share of a core's tiles that are of its first 16 neurons, and
    read activations that it has not read before."""

    format: WeightFormat
    density: float
    nonzeros: Ints
    first_pass: float = 0.0

    @property
    def cores(self) -> int:
        return int(self.nonzeros.shape[0])

    @property
    def tiles(self) -> int:
        """Of each core."""
        return int(self.nonzeros.shape[1])

    @property
    def sparse(self) -> bool:
        return self.density < 1

    def windows(self, width: int) -> Ints:
        """[cores, tiles, operations], [1, 1, operations] if dense: codes that each vector operation of `width` weights
        takes in."""
        parts = self.nonzeros.shape[2]
        if not self.sparse:
            return np.full((1, 1, TILE_WEIGHTS // width), width)
        if TILE_WEIGHTS // width == parts:
            return self.nonzeros
        if TILE_WEIGHTS // width < parts:
            return np.asarray(self.nonzeros.reshape(self.cores, self.tiles, TILE_WEIGHTS // width, -1).sum(-1))
        raise ValueError(f"bitmasks were counted {TILE_WEIGHTS // parts} weights at a time, not {width}")

    def needs(self, width: int) -> Ints:
        """As `windows`: lines of codes from the first that its tile touches to the last that an operation reads."""
        windows = self.windows(width)
        bits = self.format.element.bits
        if not self.sparse:  # whole lines a tile
            return -(-np.cumsum(windows, axis=-1) * bits // LINE_BITS)
        ends = np.cumsum(windows.reshape(len(windows), -1), axis=1, dtype=np.int32).reshape(windows.shape) * bits
        starts = np.concatenate([np.zeros_like(ends[:, :1, -1:]), ends[:, :-1, -1:]], axis=1)
        return np.where(ends > starts, -(-ends // LINE_BITS) - starts // LINE_BITS, 0)

    @cached_property
    def code_ends(self) -> Ints:
        """[cores, tiles]: lines of codes that a core has begun when a tile is done."""
        bits = np.cumsum(self.nonzeros.sum(-1) * self.format.element.bits, axis=1)
        return -(-bits // LINE_BITS)

    @cached_property
    def pages(self) -> Ints:
        """[arrays, cores, tiles]: the page in which a tile's codes end, its bitmask lies and its scales end."""
        tiles = np.arange(1, self.tiles + 1)
        each = [TILE_WEIGHTS * self.sparse, self._group_bits]
        ends = [np.broadcast_to(np.ceil(tiles * bits / LINE_BITS), self.code_ends.shape) for bits in each if bits]
        return np.stack([np.maximum(one - 1, 0) // PAGE_LINES for one in (self.code_ends, *ends)]).astype(np.int64)

    @cached_property
    def code_lines(self) -> Ints:
        """[cores, tiles]: of codes, that no earlier tile has brought."""
        return np.diff(self.code_ends, axis=1, prepend=0)

    @cached_property
    def side_lines(self) -> tuple[Ints, Ints]:
        """[tiles] each: lines of bitmask and scales that a tile takes, and those of them that no earlier one has."""
        ends = np.arange(self.tiles + 1) * self._group_bits / LINE_BITS
        taken, new = np.ceil(ends[1:]) - np.floor(ends[:-1]), np.diff(np.ceil(ends))
        mask = TILE_WEIGHTS // LINE_BITS * self.sparse
        return mask + taken.astype(np.int64), mask + new.astype(np.int64)

    @property
    def lines(self) -> Ints:
        """[cores, tiles]: of codes, bitmask and scales, that no earlier tile has brought."""
        return self.code_lines + self.side_lines[1]

    @property
    def activation_tiles(self) -> int:
        """Tiles of a core that read activations first."""
        return min(round(self.first_pass * self.tiles), self.tiles)

    @property
    def bits(self) -> float:
        """All that is stored."""
        return float(self.nonzeros.sum()) * self.format.element.bits + self.cores * self.tiles * (
            TILE_WEIGHTS * self.sparse + self._group_bits
        )

    @property
    def _group_bits(self) -> float:
        """Bits of scales and zero points a tile; a whole row's are read once and cost nothing."""
        scaling = self.format.scaling
        if scaling is None or scaling.group is None:
            return 0.0
        return TILE_WEIGHTS / scaling.group * self.format.group_bits


@lru_cache(maxsize=24)
def random_workload(
    format: WeightFormat, density: float, tiles: int, cores: int, width: int = 32, seed: int = 0
) -> Workload:
    """`tiles` tiles for each of `cores`, with the windows that bits set at random, independently, would have."""
    if tiles < 1 or cores < 1:
        raise ValueError(f"at least one tile and one core are needed, not {tiles} and {cores}")
    if not 0 < density <= 1:
        raise ValueError(f"a density is above 0 and at most 1, not {density:g}")
    if tiles * cores > MOST_TILES:
        raise ValueError(f"{tiles} tiles for each of {cores} cores are more than can be simulated: {MOST_TILES} in all")
    first_pass = layer_first_pass(cores)
    if density == 1:
        return Workload(format, density, np.full((cores, tiles, 1), TILE_WEIGHTS), first_pass)
    generator, shape = np.random.default_rng(seed), (tiles, TILE_WEIGHTS // width)
    nonzeros = np.stack([generator.binomial(width, density, shape).astype(np.int16) for _ in range(cores)])
    return Workload(format, density, nonzeros, first_pass)


def layer_first_pass(cores: int) -> float:
    """Of the large layers of Llama-2-70B (DECA, section 7), each fed by the one before: they go up and down in turn."""
    model = TRANSFORMERS["llama2-70b"]
    inputs = (model.hidden + model.feed_forward) / 2
    tiles = model.hidden * model.feed_forward / TILE_WEIGHTS / cores
    return min(inputs / TILE_INPUTS / tiles, 1.0)


def packed_workload(matrix: PackedMatrix, cores: int, width: int = 32) -> Workload:
    """The tiles of a packed matrix, its own bitmasks counted; blocks of 16 neurons go to the cores in turn, and those
    that do not fill all cores are left out."""
    blocks = matrix.rows // BLOCK_NEURONS // cores * cores
    if not blocks or matrix.cols % TILE_INPUTS:
        raise ValueError(f"{matrix.rows}×{matrix.cols} does not give each of {cores} cores a block of 16 × 32 tiles")
    first_pass = cores / blocks
    if matrix.mask is None:
        dense = random_workload(matrix.format, 1.0, blocks // cores * matrix.cols // TILE_INPUTS, cores)
        return replace(dense, first_pass=first_pass)
    keep = unpack_codes(matrix)[1]
    assert keep is not None
    tiles = keep.numpy()[: blocks * BLOCK_NEURONS].reshape(blocks, BLOCK_NEURONS, -1, 32).transpose(0, 2, 1, 3)
    ordered = np.empty((*tiles.shape[:2], TILE_WEIGHTS), bool)
    ordered[..., element_order(16).ravel()] = tiles.reshape(*tiles.shape[:2], -1)
    nonzeros = ordered.reshape(*tiles.shape[:2], -1, width).sum(-1)
    shared = nonzeros.reshape(blocks // cores, cores, *nonzeros.shape[1:]).swapaxes(0, 1)
    whole = shared.reshape(cores, -1, nonzeros.shape[-1]).astype(np.int64)
    return Workload(matrix.format, matrix.density, whole, first_pass)
