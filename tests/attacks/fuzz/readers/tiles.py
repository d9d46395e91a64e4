"""Packed-tile files: `tilepress.tiles.load`."""

from pathlib import Path
from random import Random

from tests.attacks.fuzz import sealed_file
from tests.attacks.fuzz.reader import Case, Files
from tests.tiles.cases import matrix, table_format

from tilepress import tiles
from tilepress.tiles import DamagedError

NAME = "packed.safetensors"


class Reader:
    refusals = (DamagedError,)

    def __init__(self, folder: Path) -> None:
        weight = matrix(17, 40, density=0.5)
        packed = {
            "sparse": tiles.pack(weight, "uint3:g32", sparse=True),
            "dense": tiles.pack(weight, "mxfp4"),
            "table": tiles.pack(weight, table_format(3), sparse=True),
            "bf16": tiles.pack(weight, "bf16", sparse=True),
            "int8": tiles.pack(weight, "int8:row"),
        }
        self.samples = [self._sample(folder / NAME, {name: one}) for name, one in packed.items()]
        self.samples.append(self._sample(folder / NAME, packed))

    @staticmethod
    def _sample(path: Path, matrices: dict[str, tiles.PackedMatrix]) -> Files:
        tiles.save(path, matrices)
        return {NAME: path.read_bytes()}

    def mutated(self, files: Files, random: Random) -> Case:
        if random.random() < 0.3:
            return Case({NAME: sealed_file.damaged(files[NAME], random)}, is_damage=True)
        return Case({NAME: sealed_file.forged(files[NAME], random)})

    def read(self, folder: Path) -> None:
        for one in tiles.load(folder / NAME).values():
            tiles.unpack(one)
