"""A short, seeded run of every fuzz target (`make fuzz` runs a million cases), and what the driver must notice."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.attacks.fuzz import sealed_file
from tests.attacks.fuzz.reader import TARGETS
from tests.tiles.cases import matrix

from tilepress import tiles

ROOT = Path(__file__).parents[2]
CASES = 3000  # in all: a few hundred for each reader but those that go through transformers
CONVERTS_GGUF = all(importlib.util.find_spec(package) for package in ("gguf", "accelerate"))
READERS = [name for name in TARGETS if name != "gguf" or CONVERTS_GGUF]
FINDINGS = ("errors", "unseen", "bombs", "crashes", "hangs")
FAULTY = """
import json, sys
from pathlib import Path
from tests.attacks.fuzz import driver, reader
driver.FOUND, driver.WALL_CLOCK = Path(sys.argv[1]), 2
reader.TARGETS["faulty"] = reader.Target("faulty", 1, batch=16, seconds=0.1)
print(json.dumps(driver.fuzz("faulty", 40, seed=0).as_dict()))
"""


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def counts():
    """Of a process of its own, since workers are forked from it."""
    done = run("-m", "tests.attacks.fuzz", *READERS, "--cases", str(CASES), "--seed", "0", "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("reader", READERS)
def test_hostile_files_are_refused_or_do_no_harm(counts, reader):
    tally = counts[reader]
    assert {kind: tally[kind] for kind in FINDINGS} == dict.fromkeys(FINDINGS, 0), f"see build/fuzz/{reader}"
    assert tally["refused"] >= 3 and tally["refused"] + tally["accepted"] == tally["cases"] >= 8


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("found")
    done = run("-c", FAULTY, str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder / "faulty"


def test_the_driver_counts_every_kind_of_harm(faulty):
    counts, _ = faulty
    assert all(counts[kind] for kind in (*FINDINGS, "refused", "accepted")), counts
    assert counts["largest"] >= 100 << 20
    # A case counts once, but what took too much memory or went unseen was accepted as well.
    assert sum(counts[kind] for kind in ("refused", "accepted", "errors", "crashes", "hangs")) == 40


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("error", "UnicodeDecodeError: 'utf-8' codec can't decode"),
        ("unseen", "damage that has a checksum was accepted"),
        ("bomb", "took 1"),
        ("crash", "killed by SIGSEGV"),
        ("hang", "killed by SIG"),  # PROF after CPU time, ALRM after time: on a busy machine that may come first
    ],
)
def test_what_is_found_is_kept_with_the_command_that_repeats_it(faulty, kind, words):
    _, folder = faulty
    texts = [(one / "finding.txt").read_text() for one in folder.glob(f"{kind}-*")]
    (text, *_) = [text for text in texts if words in text]
    assert text.startswith("python -m tests.attacks.fuzz faulty --seed 0 --first ")
    assert all((one / "kind").read_text() in (kind, "wait") for one in folder.glob(f"{kind}-*"))


def test_errors_of_one_place_are_kept_once(faulty):
    counts, folder = faulty
    assert counts["errors"] > 1 and len(list(folder.glob("error-*"))) == 1


def test_an_unknown_reader_is_refused():
    done = run("-m", "tests.attacks.fuzz", "tile")
    assert done.returncode == 2 and "there is no reader tile; there are tiles, kv, recipe," in done.stderr


def test_files_are_sealed_as_the_library_seals_them(tmp_path):
    """Otherwise every forged file would end at its checksum, and nothing behind it be tested."""
    path = tmp_path / "packed.safetensors"
    tiles.save(path, {"a": tiles.pack(matrix(17, 40), "int4:g32")})
    table, arrays = sealed_file.split(path.read_bytes())
    header = json.loads(table["__metadata__"]["tilepress"])
    header["extra"] = 1
    table["__metadata__"]["tilepress"] = json.dumps(header)
    path.write_bytes(sealed_file.joined(table, arrays))
    assert list(tiles.load(path)) == ["a"]
