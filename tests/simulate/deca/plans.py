"""Small plans: by hand, and drawn at random with all features on."""

import numpy as np
from hypothesis import strategies as st

from tilepress.hardware import read_machine
from tilepress.simulate.deca.dram import Timing
from tilepress.simulate.deca.plan import Leaves, Plan
from tilepress.simulate.deca.units import UNITS

DRAMS = [None, *(Timing.of(read_machine(name)) for name in ("spr-ddr", "spr-hbm"))]

USUAL = {
    "line_time": UNITS,
    "ports": 2,
    "send": 0,
    "hit": 1,
    "latency": 0,
    "leaves": Leaves.issued,
    "misses": 1000,
    "waiting": 0,
    "switch": 0,
    "depth": 0,
    "back": 0,
    "matrix": 1,
    "serial": False,
    "store": 0,
    "loader_lines": 32,
    "dispatch": 1,
    "queue": 64,
    "registers": 64,
    "window": 64,
    "llc_misses": 1000,
    "llc_lines": 1000,
    "llc_latency": 5,
    "activations": 0,
    "activation_lines": 1,
}


def plan(lines, cycles, trigger=None, walk=None, activation_trigger=None, side=None, **changes):
    """Of tiles with one vOp each, which needs all its lines of codes."""
    lines, cycles = np.atleast_2d(lines), np.atleast_2d(cycles)
    side = np.zeros_like(lines) if side is None else np.atleast_2d(side)
    return vop_plan(lines[..., None], cycles[..., None], trigger, walk, activation_trigger, side, side, **changes)


def vop_plan(
    needs, occupancy, trigger=None, walk=None, activation_trigger=None, side=None, side_new=None, shared=0, **changes
):
    """Of tiles [cores, tiles, vOps] of which all but `shared` lines of codes are new."""
    needs, occupancy = np.asarray(needs), np.asarray(occupancy)
    shape = needs.shape[:2]
    none = np.full(shape, -1)
    return Plan(
        side=np.zeros(shape, int) if side is None else side,
        side_new=np.zeros(shape, int) if side_new is None else side_new,
        code_new=needs[..., -1] - shared,
        occupancy=occupancy,
        needs=needs,
        trigger=none if trigger is None else np.broadcast_to(trigger, shape),
        walk=np.zeros(shape, int) if walk is None else np.broadcast_to(walk, shape),
        activation_trigger=np.full(shape[1], -1) if activation_trigger is None else np.asarray(activation_trigger),
        **USUAL | changes,
    )


@st.composite
def plans(draw, most_tiles=12):
    cores, tiles, vops = draw(st.integers(1, 3)), draw(st.integers(1, most_tiles)), draw(st.integers(1, 4))
    shape = (cores, tiles)

    def array(low, high, *more):
        size = (*shape, *more)
        count = int(np.prod(size))
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)), int).reshape(size)

    needs = np.minimum(np.cumsum(array(0, 2, vops), axis=-1), 6)
    shared = np.where((needs[..., -1] > 0) & (np.arange(tiles) > 0), array(0, 1), 0)
    side = array(0, 2)
    side_new = np.where(np.arange(tiles) > 0, np.minimum(array(0, 2), side), side)
    ahead = draw(st.integers(1, 6))
    trigger = np.broadcast_to(np.maximum(np.arange(tiles) - ahead, 0), shape).copy()
    trigger[array(0, 4) == 0] = -1
    activation_trigger = np.maximum(np.arange(tiles) - draw(st.integers(1, 4)), -1)
    serial = draw(st.booleans())
    small, one = st.integers(0, 9), st.integers(1, 9)
    return vop_plan(
        needs,
        array(1, 5, vops),
        trigger,
        np.maximum(array(-20, 9), 0),
        activation_trigger,
        side,
        side_new,
        shared,
        line_time=draw(st.integers(1, 3 * UNITS)),
        ports=draw(st.integers(1, 4)),
        send=draw(small),
        hit=draw(one),
        latency=draw(st.integers(0, 40)),
        leaves=draw(st.sampled_from(Leaves)),
        misses=draw(st.integers(1, 20)),
        waiting=draw(st.integers(0, 20)),
        switch=draw(small),
        depth=draw(small),
        back=draw(small),
        matrix=draw(one),
        serial=serial,
        store=draw(small),
        dispatch=draw(st.integers(1, 4)),
        queue=draw(st.integers(1, 8)),
        registers=draw(st.integers(1, 8)),
        window=draw(st.integers(1, 8)),
        llc_misses=draw(st.integers(1, 12)),
        llc_lines=draw(st.integers(0, 12)),
        llc_latency=draw(one),
        activations=draw(st.integers(0, tiles)),
        activation_lines=draw(st.integers(1, 3)),
        dram=draw(st.sampled_from(DRAMS)),
        flush_every=0 if serial else draw(st.integers(0, 4)),
        flush_after=draw(st.integers(1, 60)),
        flush_time=draw(st.integers(1, 30)),
    )
