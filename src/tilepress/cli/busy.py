"""What a busy machine is told: a warning with figures, records of them, or, with --strict, a refusal."""

from typing import TYPE_CHECKING, Annotated

import typer

from .output import Recorder

if TYPE_CHECKING:
    from ..bench.idle import Idleness
    from ..records import Label

Strict = Annotated[bool, typer.Option("--strict", help="Refuse to measure a machine that others use.")]
ADVICE = "measure it when it is idle, or without --strict"


class Watch:
    """Made before anything is measured, for the load that was there before; refused at once if that is too high."""

    def __init__(self, strict: bool = False) -> None:
        from ..bench.idle import load_now

        self._strict, self._load = strict, load_now()
        if strict and self._load.is_high:
            average, cpus = f"{self._load.average:.1f}", f"{self._load.cpus:g}"
            raise ValueError(f"this machine is busy: load average {average} on {cpus} CPUs; {ADVICE}")

    def check(self, recorder: Recorder, readings: tuple[float, float], **labels: "Label") -> None:
        """Record the load and two readings of the bandwidth; warn if they say that the machine is busy, or refuse."""
        from ..bench.idle import Idleness

        idleness = Idleness(self._load, readings)
        warn_if_busy(idleness, self._strict)
        record_idleness(recorder, idleness, **labels)


def warn_if_busy(idleness: "Idleness", strict: bool = False) -> None:
    """On standard error; a ValueError if `strict`."""
    if not idleness.reasons:
        return
    why = f"this machine is busy: {' and '.join(idleness.reasons)} ({idleness.text})"
    if strict:
        raise ValueError(f"{why}; {ADVICE}")
    typer.echo(
        f"warning: {why}. What was measured, and what is predicted from it, holds for a shared machine.", err=True
    )


def record_idleness(recorder: Recorder, idleness: "Idleness", **labels: "Label") -> None:
    for name, reading in zip(("first", "second"), idleness.readings, strict=True):
        recorder.add("bandwidth_reading", reading / 1e9, "GB/s", "measured", **labels, reading=name)
    recorder.add("load_average", idleness.load.average, "threads", "measured", **labels, cpus=idleness.load.cpus)
    recorder.add("busy", " and ".join(idleness.reasons) or "no", "", "measured", **labels)
