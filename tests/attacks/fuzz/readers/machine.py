"""Machines and accelerators: `tilepress.hardware.read_machine` and `read_accelerator` of YAML files."""

from pathlib import Path
from random import Random

from tests.attacks.fuzz.mutate import mutated_bytes, mutated_text
from tests.attacks.fuzz.reader import Case, Files

from tilepress.hardware import MachineError, read_accelerator, read_machine

READERS = {"machine.yaml": read_machine, "accelerator.yaml": read_accelerator}
SAMPLES = (
    ("machine.yaml", "like: spr-ddr\nname: mine\ntitle: Mine\ncores: 8\nsources: {cores: lscpu}\n"),
    (
        "machine.yaml",
        "name: x\ntitle: X\ncores: 2\nfrequency: 2.5e+9\nissue: 6\nmemory: {bandwidth: 2.6e+11}\n"
        "vector: {units: 2, bits: 512}\nmatrix: {cycles: 16}\ncaches:\n  l2_latency: 14\n  l2_misses: 48\n"
        "  llc_rate: 15\nsources:\n  cores: a\n  frequency: a\n  issue: a\n  memory: a\n  vector: a\n  matrix: a\n"
        "  caches: a\n",
    ),
    (
        "accelerator.yaml",
        "like: fp-fp\nname: mine\ntitle: Mine\nmodes:\n"
        "  - {activations: bfp, mantissas: [1, 16], other: int4, cycles: {fixed: 1, per_bit: 1}}\n"
        "unit:\n  given: {node: 7, voltage: 0.7, area: 900, energy: {fixed: 0.01, per_bit: 0.02}}\nstores: bfp\n"
        "sources: {modes: a, unit: a, stores: a}\n",
    ),
)
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{f'*a{i}, ' * 9}]\n" for i in range(9))
WORDS = (
    "like", "name", "memory", "bandwidth", "sources", "matrix", "flops", "modes", "unit", "spr-hbm", "anda", "1e999",
    ".nan", ".inf", "-.inf", "0b11", "0o7", "1:30:00", "2001-12-14t21:59:43.10-05:00", "? ", "? [a]\n: b\n", "- ",
    "!!set {a, b}", "!!binary ", "!!timestamp ", "!!int ", "!!float ", "---\n", "...\n", "&a [*a, *a]", "<<: *a", "'",
    "~", "yes", BOMB,
)  # fmt: skip


class Reader:
    refusals = (MachineError,)

    def __init__(self, folder: Path) -> None:
        self.samples = [{name: text.encode()} for name, text in SAMPLES]

    def mutated(self, files: Files, random: Random) -> Case:
        ((name, content),) = files.items()
        if random.random() < 0.2:
            return Case({name: mutated_bytes(content, random)})
        return Case({name: mutated_text(content.decode(), random, WORDS).encode("utf-8", "replace")})

    def read(self, folder: Path) -> None:
        (path,) = folder.iterdir()
        READERS[path.name](path)
