"""A finished model takes its place: every call that touches the disk fails in turn, and the process is killed before
each. Afterwards the old or the new model is whole in its place, with the user's files, and a second run completes."""

import builtins
import errno
import io
import os
import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tilepress.models import publish as publishing
from tilepress.models.checksums import SUMS, check_sums, digests_of, write_sums
from tilepress.models.publish import MODEL, publish, recover

CALLS = (
    "chmod", "fsync", "link", "listdir", "lstat", "mkdir", "open", "readlink", "rename", "replace", "rmdir", "scandir",
    "stat", "unlink", "utime",
)  # fmt: skip
OLD = {"config.json": "old", "model-00001-of-00002.safetensors": "1", "model-00002-of-00002.safetensors": "2"}
NEW = {"config.json": "new", "model-00001-of-00002.safetensors": "3", "tokenizer.json": "new"}
MINE = {"notes.txt": "years of work", "results/a.txt": "a", "results/more/b.txt": "b"}


class Killed(BaseException):
    """As good as SIGKILL: from then on no call touches the disk, whatever handlers try."""


KILLED, BROKEN = Killed(), OSError(errno.EIO, os.strerror(errno.EIO))


class Faults:
    """Raises `error` at the call numbered `at` of those that touch the disk; KILLED at all after that, too."""

    def __init__(self, error, at=0):
        self.error, self.at, self.count = error, at, 0

    def wrap(self, real):
        def call(*arguments, **options):
            self.count += 1
            if self.count == self.at or (self.error is KILLED and 0 < self.at < self.count):
                raise self.error
            return real(*arguments, **options)

        return call

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for name in CALLS:
            self.patch.setattr(os, name, self.wrap(getattr(os, name)))
        self.patch.setattr(builtins, "open", self.wrap(open))
        self.patch.setattr(io, "open", self.wrap(io.open))
        self.patch.setattr(publishing, "exchange", self.wrap(publishing.exchange))
        return self

    def __exit__(self, *_):
        self.patch.undo()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """To wait for the disk proves nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def in_memory(tmp_path):
    """A folder in memory where the system has one: a disk takes minutes for so many small files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder) / "place"


def make(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_model(folder, files):
    make(folder, files)
    write_sums(folder, digests_of(folder, files))


def run(root, out):
    """What `tilepress compress` does with its place, but for the compressing."""
    root.mkdir(exist_ok=True)
    recover(root, out)
    if not (root / MODEL / SUMS).exists():
        make_model(root / MODEL, NEW)
    publish(root, out)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def assert_whole(out, *models):
    """One of `models`, or the user's files are not all there."""
    check_sums(out)
    files = contents(out)
    files.pop(SUMS)
    assert files in [model | MINE for model in models]
    assert (out / "link").readlink().name == "elsewhere"


class Place:
    def __init__(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        self.out, self.root = folder / "out", folder / "out.partial"
        make_model(self.out, OLD)
        make(self.out, MINE)
        (self.out / "link").symlink_to("elsewhere")
        make_model(self.root / MODEL, NEW)

    def publish(self):
        publish(self.root, self.out)

    def run(self):
        run(self.root, self.out)

    def assert_completed(self):
        self.run()
        assert_whole(self.out, NEW)
        assert os.listdir(self.out.parent) == ["out"]


@pytest.fixture(params=["exchange", "two steps"])
def can_exchange(request, monkeypatch):
    if request.param == "two steps":

        def cannot(*_):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(publishing, "exchange", cannot)
    return request.param == "exchange"


def count_calls(folder):
    place = Place(folder)
    with Faults(BROKEN) as faults:
        place.publish()
    assert_whole(place.out, NEW)
    assert os.listdir(folder) == ["out"] and faults.count > 50
    return faults.count


def test_every_call_fails_in_turn(in_memory, can_exchange):
    for at in range(1, count_calls(in_memory) + 1):
        place = Place(in_memory)
        with Faults(BROKEN, at) as faults, suppress(OSError):
            place.publish()
        assert faults.count >= at
        assert_whole(place.out, OLD, NEW)
        place.assert_completed()


def test_killed_before_every_call(in_memory, can_exchange):
    for at in range(1, count_calls(in_memory) + 1):
        place = Place(in_memory)
        with Faults(KILLED, at), pytest.raises(Killed):
            place.publish()
        if not can_exchange and not place.out.exists():
            recover(place.root, place.out)  # between the two steps there is nothing, until the next run
        assert_whole(place.out, OLD, NEW)
        place.assert_completed()


def test_killed_and_killed_again(in_memory, can_exchange):
    """The second kill is in the run that is to complete the first."""
    calls, chance = count_calls(in_memory), random.Random(0)
    for _ in range(60):
        place = Place(in_memory)
        for action in (place.publish, place.run):
            with Faults(KILLED, chance.randrange(1, calls + 1)), suppress(Killed):
                action()
        if can_exchange or place.out.exists():
            assert_whole(place.out, OLD, NEW)
        place.assert_completed()


@pytest.mark.parametrize("before", ["nothing", "an empty folder"])
def test_killed_where_nothing_was(in_memory, before):
    def place():
        made = Place(in_memory)
        shutil.rmtree(made.out)
        if before != "nothing":
            made.out.mkdir()
        return made

    made = place()
    with Faults(BROKEN) as faults:
        made.publish()
    for at in range(1, faults.count + 1):
        made = place()
        with Faults(KILLED, at), pytest.raises(Killed):
            made.publish()
        assert not made.out.exists() or not os.listdir(made.out) or contents(made.out).keys() == {*NEW, SUMS}
        made.run()
        assert contents(made.out).keys() == {*NEW, SUMS} and os.listdir(made.out.parent) == ["out"]


def test_what_the_user_adds_in_the_last_moment_stays(tmp_path, monkeypatch):
    place, take_place = Place(tmp_path / "place"), publishing._take_place

    def late(ready, out, replaced):
        make(out, {"late.txt": "late", "results/late.txt": "late too"})
        take_place(ready, out, replaced)

    monkeypatch.setattr(publishing, "_take_place", late)
    place.publish()
    files = contents(place.out)
    assert files["late.txt"] == "late" and files["results/late.txt"] == "late too"
    assert os.listdir(place.out.parent) == ["out"]


def test_a_published_model_that_was_edited_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    """Killed after the exchange; then the user removes a line of SHA256SUMS, as an error message proposes."""
    place = Place(tmp_path / "place")

    def broken(*_):
        raise BROKEN

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_clear", broken)
        place.publish()
    lines = (place.out / SUMS).read_text().splitlines(keepends=True)
    (place.out / SUMS).write_text("".join(lines[1:]))
    recover(place.root, place.out)
    assert contents(place.out)["config.json"] == "new" and os.listdir(place.root) == []


def test_file_systems_without_links_get_copies(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    place = Place(tmp_path / "place")
    place.publish()
    assert_whole(place.out, NEW)


def test_another_file_system_inside_is_never_copied_and_emptied(tmp_path, monkeypatch):
    def elsewhere(*_, **__):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", elsewhere)
    place = Place(tmp_path / "place")
    with pytest.raises(OSError, match="cross-device"):
        place.publish()
    assert_whole(place.out, OLD)


def test_a_folder_keeps_its_mode(tmp_path):
    place = Place(tmp_path / "place")
    os.chmod(place.out, 0o750)
    place.publish()
    assert place.out.stat().st_mode & 0o777 == 0o750
