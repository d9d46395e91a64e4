"""Files of records: `tilepress.report.read_records`."""

import json
from pathlib import Path
from random import Random

from tests.attacks.fuzz.mutate import mutated_bytes, mutated_text, mutated_tree
from tests.attacks.fuzz.reader import Case, Files

from tilepress.records import Record, Reproduction, to_json
from tilepress.report import RecordsError, read_records

NAME = "records.json"
LABELS = {"format": "int4:g32", "density": 0.5}
PLAIN = ("pack_time", LABELS, 0.25, "s", "measured", "a machine", "tilepress bench pack")
COMPARED = ("deca/table2", "row", "column", 1.5, -0.1, "matches", "held-out", "a note")


class Reader:
    refusals = (RecordsError,)

    def __init__(self, folder: Path) -> None:
        records = [Record(*PLAIN), Reproduction(*PLAIN, *COMPARED)]
        self.samples = [{NAME: to_json(some).encode()} for some in (records[:1], records, [])]

    def mutated(self, files: Files, random: Random) -> Case:
        how = random.random()
        if how < 0.2:
            return Case({NAME: mutated_bytes(files[NAME], random)})
        text = files[NAME].decode()
        text = mutated_text(text, random) if how < 0.5 else json.dumps(mutated_tree(json.loads(text), random))
        return Case({NAME: text.encode("utf-8", "replace")})

    def read(self, folder: Path) -> None:
        to_json(read_records([folder / NAME]))
