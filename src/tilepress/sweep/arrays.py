"""Accelerators for block floating point, and a CPU with DECA, on one task: time, energy and area."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from ..formats import parse_activations, parse_weight
from ..hardware import read_accelerator
from ..simulate.arrays import Mapper, Task
from ..simulate.arrays.compare import DECA, Setting, compare
from ..simulate.arrays.mapping import Objective
from ..simulate.layers import find_transformer
from .studies import Figure, StudyPoint

SETTING = Setting()


class Point(StudyPoint):
    """As of `tilepress simulate compare`: `design` is an accelerator or deca, `frequency` in MHz, `bandwidth` in GB/s,
    `area` in mm²."""

    design: str
    model: str = "llama3.2-3b"
    stage: Literal["prefill", "decode"] = "prefill"
    tokens: int = Field(default=2048, ge=1)
    batch: int = Field(default=1, ge=1)
    acts: str = "anda:8,8,8,8"
    weights: str = "int4:g128"
    node: float = SETTING.node
    voltage: float = SETTING.voltage
    frequency: float = SETTING.frequency / 1e6
    bandwidth: float = SETTING.bandwidth / 1e9
    area: float = SETTING.area
    mapping: Literal["pinned", "best"] = "best"
    objective: Objective = "edp"

    @model_validator(mode="after")
    def _is_possible(self) -> "Point":
        assert self.setting and self.task and parse_activations(self.acts) and parse_weight(self.weights)
        if self.design != DECA:
            read_accelerator(self.design)
        return self

    @property
    def setting(self) -> Setting:
        return Setting(self.node, self.voltage, 1e6 * self.frequency, 1e9 * self.bandwidth, area=self.area)

    @property
    def task(self) -> Task:
        model = find_transformer(self.model)
        return Task(model, self.stage, self.tokens, self.batch, self.acts, self.weights)

    def figures(self) -> Iterator[Figure]:
        mapper = Mapper(self.objective if self.mapping == "best" else None)
        [one] = compare([self.design], [self.task], self.setting, [mapper])
        yield Figure("time", 1e3 * one.seconds, "ms", "simulated")
        yield Figure("energy", 1e3 * one.joules, "mJ", "simulated")
        yield Figure("energy", 1e3 * one.dram_joules, "mJ", "simulated", {"part": "DRAM"})
        yield Figure("area", one.mm2, "mm2", "simulated")
