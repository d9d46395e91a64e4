"""What each method gives back of the quality that compression costs smollm2-135m: the table "Measured" of
docs/quality.md, as benchmarks/results/quality/trained/<date>-<machine>.json.

Perplexity on 16 windows of 2,048 tokens of WikiText-2's test part and of PTB, beside the model as it comes; calibrated
on WikiText-2's training part, which no figure is judged on. TILEPRESS_DATA names the folder with the three texts.
Meant for a GPU (--device cuda): rows that train take hours of a few cores. A row's records take the place of older ones
of it in the file. Rows may run side by side, each with a file of its own (--keep), joined by a run with --join.
"""

import argparse
import datetime
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from run import RESULTS, processor, read, run, write
from tilepress.records import Record

BASE = "smollm2-135m"
INT8 = "--acts int8"
SPARSE = "--density 0.5 --prune sparsegpt --quantize gptq"
FIRST = "--column-order input --refit off"  # what the project began with
ROWS = {
    "uint4:g32": "--weights uint4:g32",
    "uint4:g32+int8": f"--weights uint4:g32 {INT8}",
    "uint4:g32+bfp:g32:m7": "--weights uint4:g32 --acts bfp:g32:m7",
    "uint4:g32+int8, heal 400": f"--weights uint4:g32 {INT8} --heal 400",
    "int4:g32+int8, rtn": f"--weights int4:g32 {INT8}",
    "int4:g32+int8, first gptq": f"--weights int4:g32 {INT8} --quantize gptq {FIRST}",
    "int4:g32+int8, gptq": f"--weights int4:g32 {INT8} --quantize gptq",
    "int4:g32+int8, target dense": f"--weights int4:g32 {INT8} --quantize gptq --target dense",
    "int4:g32+int8, reconstruct 200": f"--weights int4:g32 {INT8} --quantize gptq --reconstruct 200",
    "int4:g32+int8, reconstruct 200, heal 200": (
        f"--weights int4:g32 {INT8} --quantize gptq --reconstruct 200 --heal 200"
    ),
    "int8:row@50%+int8, sparsegpt": f"--weights int8:row {SPARSE} {INT8}",
    "int8:row@50%+int8, reconstruct 200": f"--weights int8:row {SPARSE} {INT8} --reconstruct 200",
    "int8:row@50%+int8, reconstruct 200, heal 500": (
        f"--weights int8:row {SPARSE} {INT8} --reconstruct 200 --heal 500 --sequences 384"
    ),
    "int4:g32@50%+int8, sparsegpt": f"--weights int4:g32 {SPARSE} {INT8}",
    "int4:g32@50%+int8, reconstruct 200": f"--weights int4:g32 {SPARSE} {INT8} --reconstruct 200",
    "int4:g32@50%+int8, reconstruct 200, heal 500": (
        f"--weights int4:g32 {SPARSE} {INT8} --reconstruct 200 --heal 500 --sequences 384"
    ),
    "bf16@70%, sparsegpt": "--weights bf16 --density 0.7 --prune sparsegpt",
    "bf16@70%, reconstruct 100": "--weights bf16 --density 0.7 --prune sparsegpt --reconstruct 100",
    "uint3:g64, gptq": "--weights uint3:g64 --quantize gptq",
    "uint3:g64, target dense, reconstruct 200": (
        "--weights uint3:g64 --quantize gptq --target dense --reconstruct 200"
    ),
}  # fmt: skip
CALIBRATION = ["--calibration", "wikitext2-train", "--sequences", "128", "--length", "512"]


def main() -> None:
    arguments = parse_arguments()
    for part in arguments.join:
        _put(arguments.keep, read(part))
    for name in arguments.rows:
        _put(arguments.keep, measured(name, arguments.device))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--keep", type=Path, help="the file of records; one of today and this machine if not given")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="files of records to add")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.rows if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    name = processor() if arguments.device == "cpu" else re.sub(r"\W+", "-", torch.cuda.get_device_name().lower())
    arguments.keep = arguments.keep or RESULTS / "quality" / "trained" / f"{datetime.date.today()}-{name}.json"
    return arguments


def measured(name: str, device: str) -> list[Record]:
    options = ROWS[name].split()
    calibration = CALIBRATION if "--sequences" not in options else [*CALIBRATION[:2], *CALIBRATION[4:]]
    judge = ["eval", "out", "--against", BASE, "--windows", "16", "--device", device]
    commands = [["compress", BASE, "-o", "out", *options, *calibration, "--device", device]]
    commands += [[*judge, "--data", text] for text in ("wikitext2", "ptb")]
    with tempfile.TemporaryDirectory() as folder:
        records = [record for command in commands for record in run(command, folder)]
    place = {} if device == "cpu" else {"machine": torch.cuda.get_device_name()}
    return [replace(one, labels={**one.labels, "model": name}, **place) for one in records if _is_of_model(one)]


def _is_of_model(record: Record) -> bool:
    """No single layers, and no percentiles over tokens."""
    statistic = record.labels.get("statistic", "standard_error")
    return set(record.labels) <= {"model", "text", "statistic"} and statistic == "standard_error"


def _put(path: Path, records: Sequence[Record]) -> None:
    made = {record.labels["model"] for record in records}
    write(path, [*(record for record in read(path) if record.labels["model"] not in made), *records])


if __name__ == "__main__":
    main()
