"""What activations and caches in few bits cost smollm2-135m: benchmarks/results/activations/<date>-<processor>.json.

Nats per token of every window of WikiText-2's test part (TILEPRESS_DATA names its folder), the same windows for every
format; `tilepress simulate compare --quality` joins them with what arrays take for the same model and formats.
Scales of offline and hybrid smoothing are learned on WikiText-2's training part, 4 sequences of 256 tokens in 32 steps.
Every format is kept as soon as it is there: interrupted, the same command goes on with those that are missing.
"""

import argparse
import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from run import RESULTS, processor, read, write
from tilepress import __version__
from tilepress.paper.studies.kv_cache import KvStudy, Sizes, load_kv_study
from tilepress.paper.studies.window_losses import Formats, window_losses
from tilepress.records import Record, machine

MODEL, TEXT = "smollm2-135m", "wikitext2"
# As they are; FIGNA's and Anda's; Tender's and M-ANT's; Harmonia's. What is between them last.
POINTS = [
    Formats(),
    *(Formats(f"bfp:g64:m{bits}") for bits in (14, 8)),
    *(Formats("bfp:g32:m8", kv, smoothing) for kv, smoothing in (("bfp8", ""), ("bfp4", ""), ("bfp4", "hybrid"))),
    *(Formats(f"bfp:g64:m{bits}") for bits in (7, 6)),
    Formats("int8"),
    *(Formats("bfp:g32:m8", "bfp4", smoothing) for smoothing in ("offline", "online")),
    *(Formats(f"bfp:g64:m{bits}") for bits in (11, 5)),
    *(Formats(f"bfp:g32:m{bits}", "bfp4", "hybrid") for bits in (7, 6)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=16, help="of WikiText-2's test part")
    parser.add_argument("--tokens", type=int, default=512, help="of a window")
    arguments = parser.parse_args()
    sizes = Sizes(arguments.windows, arguments.tokens, sequences=4, length=256, steps=32)
    command = f"python benchmarks/activations.py --windows {sizes.windows} --tokens {sizes.tokens}"
    path = RESULTS / "activations" / f"{datetime.date.today()}-{processor()}.json"
    study = load_kv_study(MODEL, "", TEXT, "cpu", sizes)
    for formats in POINTS:
        records = read(path)
        if not any(one.command == command and formats_of(one) == formats for one in records):
            write(path, [*records, *measured(study, formats, command)])


def formats_of(record: Record) -> Formats:
    return Formats(*(str(record.labels.get(one.name, "")) for one in fields(Formats)))


def measured(study: KvStudy, formats: Formats, command: str) -> list[Record]:
    named = {name: format for name, format in asdict(formats).items() if format}
    of_all = {"model": MODEL, "text": TEXT, **named, "tokens": study.sizes.tokens}
    return [
        Record("loss", {**of_all, "window": number}, loss, "nat", "measured", machine(), command, version=__version__)
        for number, loss in enumerate(window_losses(study, formats, track))
    ]


def track(sequence: Sequence[Any], what: str) -> Iterable[Any]:
    def shown() -> Iterator[Any]:
        for number, one in enumerate(sequence, 1):
            print(f"\r{what}: {number} of {len(sequence)}", end="", flush=True)
            yield one
        print()

    return shown()


if __name__ == "__main__":
    main()
