"""No reader of ours: it does everything that the driver must notice, so that a test can see it noticed."""

import os
import signal
from pathlib import Path
from random import Random

from tests.attacks.fuzz.reader import Case, Files

KINDS = ("refused", "accepted", "error", "unseen", "bomb", "crash", "hang", "wait")


class Refusal(ValueError):
    """What this reader is documented to raise."""


class Reader:
    refusals = (Refusal,)

    def __init__(self, folder: Path) -> None:
        self.samples: list[Files] = [{"kind": b"accepted"}]

    def mutated(self, files: Files, random: Random) -> Case:
        kind = random.choice(KINDS)
        return Case({"kind": kind.encode()}, is_damage=kind == "unseen")

    def read(self, folder: Path) -> None:
        kind = (folder / "kind").read_text()
        if kind == "refused":
            raise Refusal(kind)
        if kind == "error":
            b"\xff".decode()  # a ValueError, but not the documented one
        if kind == "bomb":
            len(b"x" * (100 << 20))
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "wait":
            signal.pause()
        while kind == "hang":
            pass
