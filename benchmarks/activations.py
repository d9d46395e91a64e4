"""What activations and caches in few bits cost smollm2-135m: benchmarks/results/activations/<date>-<processor>.json.

Perplexity on WikiText-2's test part (TILEPRESS_DATA names its folder), one format at a time; `tilepress simulate
compare --quality` joins them with what arrays take for the same formats. Every figure is kept as soon as it is there:
interrupted, the same command goes on with those that are missing.
"""

import argparse
import datetime
import tempfile

from run import RESULTS, processor, read, run, write

# Options: as they are, FIGNA's and Anda's, Tender's and M-ANT's, Harmonia's; what is between them last.
POINTS = [
    "",
    *(f"--acts bfp:g64:m{bits}" for bits in (14, 8, 6, 5, 4, 11)),
    "--acts int8",
    *(f"--acts bfp:g32:m8 --kv {kv}" for kv in ("bfp8", "bfp4", "bfp4 --smoothing online")),
    *(f"--acts bfp:g64:m{bits}" for bits in (7, 9)),
    *(f"--acts bfp:g32:m{bits} --kv bfp4" for bits in (7, 6)),
]


def command(options: str, windows: int) -> list[str]:
    return ["eval", "smollm2-135m", "--data", "wikitext2", "--windows", str(windows), *options.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=1, help="of 2048 tokens of WikiText-2")
    arguments = parser.parse_args()
    path = RESULTS / "activations" / f"{datetime.date.today()}-{processor()}.json"
    for point in POINTS:
        records = read(path)
        asked = command(point, arguments.windows)
        if " ".join(["tilepress", *asked, "--json"]) in {record.command for record in records}:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write(path, [*records, *run(asked, folder)])


if __name__ == "__main__":
    main()
