"""Row limits that `doctor --tune` has stored: read once, checked, and never in the way."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from tilepress import _native, kernels, tiles
from tilepress.kernels import tuning

LIMIT = ("linear_f32_f32_any", "dense other", "float32", 3)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, tuning read from it anew, and built-in limits at the end."""
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    monkeypatch.delenv("TILEPRESS_TUNING")
    tuning.load.cache_clear()
    yield tmp_path
    tuning.reset()
    tuning.load.cache_clear()


def restart():
    """As a new process finds it."""
    for isa in kernels.supported_isas():
        _native.set_row_limits(isa, [])
    tuning._files.clear()
    tuning.load.cache_clear()


def is_built_in():
    isa = kernels.active_isa()
    return _native.row_limits(isa, False) == _native.row_limits(isa, True)


def stored():
    return tuning.tuning_file(kernels.active_isa(), torch.get_num_threads())


def store(content=None, **changes):
    path = tuning.save([LIMIT], kernels.active_isa(), torch.get_num_threads())
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) if content is None else content)
    restart()


def test_without_a_file_limits_are_built_in(cache):
    kernels.linear(torch.ones(1, 64), tiles.pack(torch.ones(16, 64), "bf16"))
    assert tuning.source() == "built-in" and is_built_in()
    assert list(cache.iterdir()) == []


def test_stored_limits_are_in_force_at_once_and_in_the_next_process(cache):
    packed = tiles.pack(torch.ones(16, 64), "bf16")
    path = tuning.save([LIMIT], kernels.active_isa(), torch.get_num_threads())
    assert path == stored() and path.parent == cache / "tuning"
    assert kernels.linear_kernel(packed, 4).startswith("matmul_f32_f32_f32/")
    restart()
    assert kernels.linear_kernel(packed, 3).startswith("linear_f32_f32_any/")
    assert kernels.linear_kernel(packed, 4).startswith("matmul_f32_f32_f32/")
    assert tuning.source() == str(path)


def test_the_first_layer_of_a_process_reads_them(cache):
    tuning.save([LIMIT], kernels.active_isa(), torch.get_num_threads())
    code = (
        "import torch; from tilepress import _native, kernels, tiles\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        "kernels.linear(torch.ones(1, 64), tiles.pack(torch.ones(16, 64), 'bf16'))\n"
        f"print({LIMIT!r} in _native.row_limits({kernels.active_isa()!r}, False))"
    )
    for value, expected in (("", "True"), ("off", "False")):
        environment = os.environ | {"TILEPRESS_TUNING": value, "TILEPRESS_ISA": kernels.active_isa()}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr


def test_the_variable_turns_them_off(cache, monkeypatch):
    store()
    monkeypatch.setenv("TILEPRESS_TUNING", "off")
    assert tuning.source() == "built-in" and is_built_in()


def test_those_of_another_number_of_threads_are_not_taken(cache):
    tuning.save([LIMIT], kernels.active_isa(), torch.get_num_threads() + 1)
    restart()
    assert tuning.source() == "built-in" and is_built_in()


def test_reset_removes_them(cache):
    tuning.save([LIMIT], kernels.active_isa(), torch.get_num_threads())
    assert tuning.reset() == [stored()] and tuning.reset() == []
    assert tuning.source() == "built-in" and is_built_in() and not stored().exists()


def test_limits_out_of_range_are_not_stored(cache):
    with pytest.raises(ValueError, match="a row limit is 0 to 1024, not 2000"):
        tuning.save([(*LIMIT[:3], 2000)], kernels.active_isa(), 1)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "changes", "reason"),
    [
        ("", {}, "Expecting value"),
        ("{", {}, "Expecting property name"),
        ("[]", {}, "it is no table of row limits"),
        ("[" * 100_000, {}, "recursion"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), {}, "Expecting value"),
        (None, {"cpu": "80486"}, "it is of another machine or version"),
        (None, {"threads": True, "isa": "mmx"}, "it is of another machine or version"),
        (None, {"more": 1}, "it is no table of row limits"),
        (None, {"limits": {}}, "it is no table of row limits"),
        (None, {"limits": [1]}, "1 is no row limit"),
        (None, {"limits": [[*LIMIT[:3], True]]}, "is no row limit"),
        (None, {"limits": [[*LIMIT[:3], 3.0]]}, "is no row limit"),
        (None, {"limits": [[*LIMIT[:3], -1]]}, "a row limit is 0 to 1024, not -1"),
        (None, {"limits": [[*LIMIT[:3], 2**70]]}, "incompatible function arguments"),
        (None, {"limits": [["system", *LIMIT[1:]]]}, "no operation with a row limit: system"),
        (None, {"limits": [[LIMIT[0], "\0" * 10_000, *LIMIT[2:]]]}, "no weights with a row limit"),
        (" " * (1 << 20) + "{}", {}, "it is larger than 1 MB"),
    ],
)
def test_damaged_files_are_ignored_with_one_warning_that_says_what_to_do(cache, content, changes, reason):
    store(content, **changes)
    with pytest.warns(RuntimeWarning, match="is ignored, built-in row limits are used") as warned:
        kernels.linear(torch.ones(1, 64), tiles.pack(torch.ones(16, 64), "bf16"))
    (message,) = (str(one.message) for one in warned)
    assert reason in message and message.endswith("remove it by: tilepress doctor --reset-tuning")
    assert str(stored()) in message
    assert is_built_in() and tuning.source() == "built-in"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels.linear(torch.ones(1, 64), tiles.pack(torch.ones(16, 64), "bf16"))


def test_a_pipe_in_the_place_of_the_file_blocks_nobody(cache):
    stored().parent.mkdir()
    os.mkfifo(stored())
    with pytest.warns(RuntimeWarning, match="it is not an ordinary file"):
        tuning.load()
    assert is_built_in()
