"""Jobs for DECA's element, and what must come out: the bits of `tiles.unpack`, in the cycles of the clocked model."""

import numpy as np

from tests.simulate.units.matrices import FORMATS, is_equal, packed
from tilepress.roofsurface import Deca
from tilepress.rtl.deca import Parameters
from tilepress.rtl.deca.testbench import Job, run
from tilepress.simulate.units.deca_pe import Pe as Model
from tilepress.simulate.units.deca_tile import compressed_tiles

SIZES = ((8, 4), (16, 4), (32, 8), (64, 5))  # W, L
DENSITIES = (1.0, 0.9, 0.5, 0.2, 0.02, 0.0)


def random_latency(seed, most):
    choice = np.random.default_rng(seed).integers(1, most + 1, (64, 64))
    return lambda tile, line: int(choice[tile, line])


def random_jobs(operations, width, formats=FORMATS, seed=0):
    """As many as have so many vector operations: any format, density, shape, latencies, and some squashes."""
    generator = np.random.default_rng(seed)
    while operations > 0:
        name, density = str(generator.choice(formats)), float(generator.choice(DENSITIES))
        rows, cols = (int(size) for size in generator.integers(1, (33, 129)))
        matrix = packed(name, density, rows, cols, int(generator.integers(1 << 30)))
        latency = random_latency(int(generator.integers(1 << 30)), int(generator.choice([1, 4, 40])))
        squashes = generator.integers(1, 300, int(generator.integers(0, 3))).tolist()
        operations -= matrix.layout.blocks * matrix.layout.block_tiles * (512 // width)
        yield Job(matrix, latency, squashes)


def assert_as_modelled(parameters, jobs):
    """Runs them one after another on one element."""
    for job, result in zip(jobs, run(parameters, jobs), strict=True):
        name = f"{job.matrix.format}, {job.matrix.shape}"
        tiles = list(compressed_tiles(job.matrix))
        engine = Deca(parameters.W, parameters.L)
        model = Model(job.matrix.format.element, engine).decompress(tiles, job.latency, job.squash_at)
        assert is_equal(job.matrix, result.values), name
        assert result.finished == model.finished, name
        assert job.squash_at or (result.bubbles, result.starved) == (model.bubbles, model.starved), name


def check(seed, operations):
    """Vector operations of random jobs, at least so many; how many. Elements of several sizes in turn."""
    parameters = Parameters(*SIZES[seed % len(SIZES)], tuple(FORMATS))
    jobs = list(random_jobs(operations, parameters.W, seed=seed))
    assert_as_modelled(parameters, jobs)
    return sum(job.matrix.layout.blocks * job.matrix.layout.block_tiles for job in jobs) * parameters.operations
