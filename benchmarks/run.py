"""`make bench`: measure this machine and keep the records as benchmarks/results/<date>-<processor>.json.

Sections may be named to run only those; --quick measures less, to see that everything works, and keeps nothing. Where a
command fails, what the other commands measured is kept, and its records are those of before.
"""

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilepress._files import write_text
from tilepress.cli.bench import DEFAULT_CONTESTANTS
from tilepress.records import Record, cpu_model, from_json, to_json

RESULTS = Path(__file__).parent / "results"
CONTESTANTS = [*DEFAULT_CONTESTANTS, "int4:g32+bfp:g32:m7", "int4:g32+bfp:g32:m8"]
SWEPT = ["int8:row+int8", "int4:g32+int8"]
FAMILIES = ["bf16", "fp16", "e4m3", "bf8", "mxfp4", "nf4", "int4:g32"]  # and these with integer activations:
INTEGERS = ["int8:row+int8", "int4:g32+int8", "uint4:g32+int8", "int4:g32+bfp:g32:m8"]
CACHES = ["bfp4", "bfp8", "sparse:k30,v50", "bf16+sparse:k30,v50"]
FEW = ["--tokens=32", "--repeats=2"]  # prompts of peers take long
MANY_ROWS = ["int8:row+int8", "int4:g32+int8", "bf16", "bf16@50%"]
WRITERS = ["int4:g32+int8", "int8:row@50%+int8"]  # smollm2-135m compressed to these, in folders of these names


def linear(shape: str, *batches: int) -> list[str]:
    return ["bench", "linear", *CONTESTANTS, "--shape", shape, *(f"--batch={batch}" for batch in batches)]


def many_rows(shape: str, *batches: int) -> list[str]:
    return ["bench", "linear", *MANY_ROWS, "--shape", shape, *(f"--batch={batch}" for batch in batches)]


def families(*shapes: str) -> list[list[str]]:
    """One row of activations times every family of weights, dense and sparse."""
    every = [name.partition("+") for name in (*FAMILIES, *INTEGERS)]
    at = ["--batch=1", *(word for shape in shapes for word in ("--shape", shape))]
    return [["bench", "linear", *(a + density + b + c for a, b, c in every), *at] for density in ("", "@50%", "@20%")]


def models(*options: str) -> list[list[str]]:
    """Compress the model, and time it in all these forms."""
    whole = ["compress", "smollm2-135m", "--lm-head", "compress", "--acts", "int8"]
    int4, int8 = ["--weights", "int4:g32"], ["--weights", "int8:row", "--density", "0.5"]
    compressing = [[*whole, *how, "-o", name] for how, name in zip((int4, int8), WRITERS, strict=True)]
    return [*compressing, ["bench", "model", *WRITERS, "--base", "smollm2-135m", *options]]


def caches(*names: str) -> list[str]:
    return [word for name in names for word in ("--kv", name)]


def deep(*depths: int) -> list[list[str]]:
    """Compress the model, and time it with small caches after many tokens."""
    int4, both = models()[0], ["bench", "model", WRITERS[0], "--base", "smollm2-135m"]
    return [int4, [*both, "--depth", ",".join(map(str, depths)), *caches("bfp4", "bfp8"), *FEW]]


def served(*loads: str) -> list[list[str]]:
    """Compress the model, and serve many requests with it: once for each load, its options in one text."""
    return [models()[0], *(["bench", "serve", WRITERS[0], *load.split()] for load in loads)]


SECTIONS = {
    "doctor": [["doctor"]],
    "pack": [["bench", "pack", "--density", "0.5"], ["bench", "pack", "--density", "1"]],
    "llama3-8b": [linear("llama3-8b", 1, 4, 16, 32, 512)],
    "families": families("4096x4096", "14336x4096"),
    "many-rows": [many_rows("14336x4096", 512, 2048, 8192), many_rows("smollm2", 128, 512, 2048, 4096)],
    "smollm2": [linear("smollm2", 1, 16)],
    "llama2-70b-fc": [linear("llama2-70b-fc", 1, 16)],
    "sweep": [["bench", "linear", *SWEPT, "--sweep", "--shape", "4096x4096"]],
    "model": models(),
    "attention": [
        ["bench", "attention", *caches(*CACHES)],
        ["bench", "attention", *caches("bfp4", "bfp8"), "--prompt", "--repeats=9"],
    ],
    "depth": deep(1024),
    "serve": served(
        "--concurrency=1 --requests=16",
        "--concurrency=8",
        "--concurrency=32 --requests=128",
        "--concurrency=8 --prompt=128-512 --tokens=16-128",
        "--concurrency=8 --prompt=512 --prefix=448",
        "--rate=1 --prompt=32-256 --tokens=16-64",
    ),
}
QUICK = {
    "doctor": [["doctor"]],
    "pack": [["bench", "pack", "--neurons", "1024", "--repeats", "1"]],
    "llama3-8b": [[*linear("1024x4096", 1, 16), "--seconds", "0.05"]],
    "families": [[*command, "--seconds", "0.05"] for command in families("256x512")],
    "many-rows": [[*many_rows("576x1536", 128), "--seconds", "0.05"]],
    "smollm2": [[*linear("576x1536", 1, 16), "--seconds", "0.05"]],
    "llama2-70b-fc": [[*linear("4096x4096", 1), "--seconds", "0.05"]],
    "sweep": [["bench", "linear", *SWEPT, "--sweep", "--shape", "1024x4096", "--seconds", "0.05"]],
    "model": models("--tokens=4", "--repeats=1"),
    "attention": [
        ["bench", "attention", "smollm2", *caches("bfp4"), "--depth", "1024", "--repeats=2"],
        ["bench", "attention", "smollm2", *caches("bfp4"), "--prompt", "--depth", "256", "--repeats=2"],
    ],
    "depth": deep(256),
    "serve": served(
        "--concurrency=2 --requests=4 --prompt=16 --tokens=4",
        "--rate=20 --requests=4 --prompt=48 --tokens=2-4 --prefix=32",
    ),
}


def main() -> None:
    arguments = parse_arguments()
    sections = QUICK if arguments.quick else SECTIONS
    commands = [command for name in arguments.sections or sections for command in sections[name]]
    results, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            try:
                results[tuple(command)] = run(command, folder)
            except subprocess.CalledProcessError:
                failed.append(" ".join(command))
    records = [record for command, given in results.items() if command[0] != "compress" for record in given]
    for record in records:
        print(f"  {record.metric:24} {record.labels!s:60} {record.value} {record.unit}")
    if arguments.quick:
        print(f"measured {len(records)} records; --quick keeps none")
    else:
        keep(records, whole=not arguments.sections and not failed)
    if failed:
        sys.exit(f"{len(failed)} of {len(commands)} commands failed: {'; '.join(failed)}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="small shapes and little time, nothing kept")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return arguments


def keep(records: Sequence[Record], whole: bool) -> None:
    """Write the records to today's file; where only some sections ran, it takes the place of the latest one, and has
    the rest from there."""
    path = RESULTS / f"{datetime.date.today()}-{processor()}.json"
    latest = [] if whole else sorted(RESULTS.glob(f"*-{processor()}.json"))[-1:]
    before = [record for file in latest for record in read(file)]
    anew = {record.command for record in records}
    write(path, [*(record for record in before if record.command not in anew), *records])
    for file in latest:
        if file != path:
            file.unlink()


def processor() -> str:
    """The processor's name, as part of a file's."""
    return re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")


def read(path: Path) -> list[Record]:
    """None where there is no such file yet."""
    return from_json(path.read_text("utf-8"), path) if path.exists() else []


def write(path: Path, records: Sequence[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, to_json(records) + "\n")
    print(f"kept {len(records)} records in {path}")


def run(command: list[str], folder: str) -> list[Record]:
    """Run a command, in `folder`, and return its records."""
    print(f"tilepress {' '.join(command)} …", flush=True)
    tilepress = [sys.executable, "-m", "tilepress", *command, "--json"]
    printed = subprocess.run(tilepress, check=True, stdout=subprocess.PIPE, cwd=folder).stdout
    return from_json(printed.decode(), "what it printed")


if __name__ == "__main__":
    main()
