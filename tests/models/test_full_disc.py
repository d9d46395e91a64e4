"""A disc that fills at any moment of a job: one sentence says so, and the same command ends the job later."""

import errno
import os
import re

import pytest

from tests.models import tiny
from tilepress import _files
from tilepress.models import compress_folder, disk_storage, publish
from tilepress.models.publish import OutputError

RTN = {"weights": {"format": "int4:g32"}}
SAID = re.compile(
    r"(: make room there, and the same command goes on from what is finished|: mend that, or move it away)"
)


class FillingDisc:
    """`sync` that finds no room at its call number `last`: a disc that gives room late says so there."""

    def __init__(self, last, code):
        self.calls, self.last, self.code, self.sync = 0, last, code, _files.sync

    def __call__(self, path):
        self.calls += 1
        if self.calls == self.last:
            raise OSError(self.code, os.strerror(self.code))
        self.sync(path)


def attempt(folder, out, recipe, disc, monkeypatch):
    """What is said of the disc; None where the job came to its end."""
    with monkeypatch.context() as patch:
        for module in (_files, disk_storage, publish):
            patch.setattr(module, "sync", disc)
        try:
            compress_folder(str(folder), out, recipe, announce=lambda _: None)
        except OutputError as error:
            return str(error)
    return None


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("quantize", "code"), [("rtn", errno.EDQUOT), ("gptq", errno.ENOSPC)])
def test_no_moment_is_wrong(tmp_path, monkeypatch, quantize, code):
    folder, text = tiny.save(tmp_path / "model", num_hidden_layers=2)
    calibration = {"text": str(text), "sequences": 2, "length": 16}
    recipe = {"weights": {**RTN["weights"], "quantize": quantize}, "calibration": calibration}
    compress_folder(str(folder), tmp_path / "whole", recipe, announce=lambda _: None)
    said = []
    out = tmp_path / "out"
    while (one := attempt(folder, out, recipe, FillingDisc(2 * len(said) + 1, code), monkeypatch)) is not None:
        said.append(one)  # twice, since each file's call has one for its folder after it
        assert SAID.search(one) and os.strerror(code) in one and "\n" not in one, one
        assert not list(tmp_path.rglob(".*.part")), "half a file was left"
    assert len(said) > 8 and contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not (tmp_path / "out.partial").exists()


def test_other_troubles_are_not_called_a_full_disc(tmp_path, monkeypatch):
    folder, _ = tiny.save(tmp_path / "model", num_hidden_layers=1)
    with pytest.raises(PermissionError):
        attempt(folder, tmp_path / "out", RTN, FillingDisc(1, errno.EACCES), monkeypatch)
