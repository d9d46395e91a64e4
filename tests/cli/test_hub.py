"""`tilepress push` and `pull`, in processes of their own, with the real client library and a hub on this machine."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from tests.cli.fake_hub import READER, WRITER, FakeHub, Repository
from tests.cli.test_cli import assert_refused
from tests.figures import Figures
from tests.models import tiny

from tilepress.models import compress_folder, load_model
from tilepress.models.checksums import check_sums
from tilepress.models.kept_records import keep_records
from tilepress.records import Record

NAME = "me/small-int4"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def hub():
    hub = FakeHub()
    yield hub
    hub.close()


@pytest.fixture
def run(hub, tmp_path):
    def run(*words, token=WRITER, umask=0o022, **environment):
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": token or ""}
        # The fake hub speaks LFS, not Xet.
        own |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
        return subprocess.run(
            [sys.executable, "-m", "tilepress", *map(str, words)],
            capture_output=True, text=True, env=os.environ | own, umask=umask, cwd=tmp_path,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """(compressed in several files, dense)."""
    dense, text = tiny.save(tmp_path_factory.mktemp("hub") / "dense")
    calibration = {"text": str(text), "sequences": 2, "length": 16}
    recipe = {"weights": {"quantize": "gptq"}, "calibration": calibration}
    compress_folder(str(dense), dense.parent / "small", recipe, shard_bytes=60_000)
    return dense.parent / "small", dense


@pytest.fixture
def small(pristine, tmp_path):
    return shutil.copytree(pristine[0], tmp_path / "small")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_there_and_back(run, hub, small, pristine, tmp_path):
    (small / "notes.txt").write_text("mine")
    keep_records(
        small, [Record("perplexity", {"model": str(small)}, 12.5, "", "measured", "Xeon", "tilepress eval small")]
    )
    before = contents(small)
    pushed = run("push", small, NAME, "--private", "--json")
    assert pushed.returncode == 0, pushed.stderr
    files, figure = hub.repositories[NAME].files(), Figures(pushed.stdout)
    assert hub.repositories[NAME].private and contents(small) == before
    assert files.keys() == before.keys() - {"notes.txt"} and figure("files") == len(files)
    assert figure("commit") == hub.repositories[NAME].branches["main"]
    assert not any(str(pristine[1].parent).encode() in content for content in files.values())
    changed = {name for name in files if files[name] != before[name]}
    assert changed == {"config.json", "SHA256SUMS"}
    assert json.loads(files["config.json"])["quantization_config"]["source"] == "dense"

    pulled = run("pull", NAME, "--json")
    assert pulled.returncode == 0, pulled.stderr
    out = tmp_path / "small-int4"
    assert contents(out) == files and Figures(pulled.stdout)("commit") == figure("commit")
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644} and out.stat().st_mode & 0o777 == 0o755
    assert "tokenizer.json" in check_sums(out) and load_model(str(out)).model
    assert "12.5" in (out / "README.md").read_text() and not (tmp_path / "small-int4.pulling").exists()


def test_a_model_takes_the_place_of_another_there(run, hub, small, pristine):
    assert run("push", small, NAME).returncode == 0
    assert {*SHARDS, "model.safetensors.index.json"} < hub.repositories[NAME].files().keys()
    hub.repositories[NAME].files()["mine.txt"] = b"kept"
    compress_folder(str(pristine[1]), small, {"weights": {"format": "int8:row"}})
    hub.log.clear()
    assert run("push", small, NAME).returncode == 0
    files = hub.repositories[NAME].files()
    assert [name for name in files if "safetensors" in name] == ["model.safetensors"] and files["mine.txt"] == b"kept"
    assert sum(method == "POST" and "/commit/" in path for method, path in hub.log) == 1


def test_revisions(run, hub, small, tmp_path):
    assert run("push", small, NAME, "--revision", "int4").returncode == 0
    assert not hub.repositories[NAME].files("main")
    done = run("pull", NAME, "--revision", "int4", "-o", "there")
    assert done.returncode == 0 and "checksums hold" in done.stdout and check_sums(tmp_path / "there")
    assert_refused(run("pull", NAME, "-o", "empty"), f"{NAME} on the hub is not a model that tilepress compressed")
    assert_refused(run("pull", NAME, "--revision", "int9", "-o", "no"), "no revision int9: give a branch, a tag or")
    assert not {"empty", "no", "empty.pulling", "no.pulling"} & set(os.listdir(tmp_path))


def test_what_cannot_be_pushed(run, hub, small, pristine):
    assert_refused(run("push", small, NAME, token=None), "no token of the hub", "set HF_TOKEN, or run `hf auth login`")
    assert_refused(run("push", small, NAME, token=READER), "the hub refused", "(403", "the token may not do that")
    assert_refused(run("push", pristine[1], NAME), "is not a folder that `tilepress compress` wrote")
    assert_refused(run("push", small, "a/b/c"), "'a/b/c' is no name on the hub: give OWNER/NAME")
    assert_refused(run("push", small, NAME, HF_ENDPOINT="http://127.0.0.1:9"), "did not answer as a hub does")
    assert not hub.repositories
    hub.repositories[NAME] = Repository(private=False)
    assert_refused(run("push", small, NAME, "--private"), f"{NAME} is there and public: push without --private")
    sums = (small / "SHA256SUMS").read_text()
    (small / "SHA256SUMS").write_text("".join(line for line in sums.splitlines(True) if SHARDS[0] not in line))
    assert_refused(run("push", small, NAME), f"SHA256SUMS lists no sum of {SHARDS[0]}")
    (small / "SHA256SUMS").write_text(sums)
    content = bytearray((small / "tokenizer.json").read_bytes())
    content[5] ^= 1
    (small / "tokenizer.json").write_bytes(content)
    assert_refused(run("push", small, NAME), "tokenizer.json is damaged")
    assert not hub.repositories[NAME].files()


def test_what_cannot_be_pulled(run, hub, small, pristine, tmp_path):
    assert_refused(run("pull", "me/nothing"), "the hub has no model me/nothing, or not for you: check the name")
    assert run("push", small, NAME, "--private").returncode == 0
    assert_refused(run("pull", NAME, token=None), f"the hub has no model {NAME}, or not for you", "if it is private")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("years of work")
    assert_refused(run("pull", NAME, "-o", "full"), "full exists: choose another folder with -o, or move it away")
    hub.repositories[NAME].files()["config.json"] = (pristine[1] / "config.json").read_bytes()
    assert_refused(run("pull", NAME, "-o", "dense"), "is not a model that tilepress compressed")
    assert sorted(os.listdir(tmp_path / "full")) == ["thesis.txt"] and not (tmp_path / "dense.pulling").exists()


def test_damage_on_the_hub_leaves_nothing(run, hub, small, tmp_path):
    assert run("push", small, NAME).returncode == 0
    files = hub.repositories[NAME].files()
    weights = next(name for name in files if name.endswith(".safetensors"))
    whole = files[weights]
    files[weights] = whole[:-1] + bytes([whole[-1] ^ 1])
    assert_refused(run("pull", NAME, "-o", "out"), f"{NAME} came damaged", f"{weights} is damaged", "pull again")
    assert not {"out", "out.pulling"} & set(os.listdir(tmp_path))
    files[weights] = whole
    files["SHA256SUMS"] = b"".join(
        line for line in files["SHA256SUMS"].splitlines(True) if weights.encode() not in line
    )
    assert_refused(run("pull", NAME, "-o", "out"), f"{NAME} came damaged")
    assert not {"out", "out.pulling"} & set(os.listdir(tmp_path))


def test_an_interrupted_pull_goes_on(run, hub, small, tmp_path):
    assert run("push", small, NAME).returncode == 0
    first, second = SHARDS
    hub.broken = {second}
    assert_refused(run("pull", NAME, "-o", "out"), "the hub refused", "(403")
    assert not (tmp_path / "out").exists() and first in hub.fetched()
    hub.broken = set()
    assert run("pull", NAME, "-o", "out").returncode == 0
    assert second in (fetched := hub.fetched()) and first not in fetched
    assert check_sums(tmp_path / "out") and not (tmp_path / "out.pulling").exists()


def test_nothing_that_is_not_listed_is_fetched(run, hub, small, tmp_path):
    assert run("push", small, NAME).returncode == 0
    hub.repositories[NAME].files().update({"modeling.py": b"import os", "pytorch_model.bin": b"pickle"})
    assert run("pull", NAME, "-o", "out", umask=0o077).returncode == 0
    assert not {"modeling.py", "pytorch_model.bin"} & set(os.listdir(tmp_path / "out"))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o600}
