"""GGUF files with a tensor dropped, renamed or added, or with another number of blocks: none becomes a model."""

import random
import string
from contextlib import nullcontext

import pytest
from tests.models.gguf_files import write_gguf

from tilepress.models import ModelUnavailableError, model_folder
from tilepress.models.gguf.check import check_blocks, check_gguf, check_tensors, described_by, needed_tensors

pytest.importorskip("gguf")
pytest.importorskip("accelerate")

MUTANTS = 1000


class Contents:
    """What a file holds and what its model needs."""

    def __init__(self, path, architecture):
        from transformers.integrations.gguf import read_gguf_metadata

        self.metadata, self.tensors = read_gguf_metadata(str(path))
        self.needed = needed_tensors(*described_by(path), architecture)

    def judge(self, tensors=None, **metadata):
        """What `check_gguf` does, without reading the file again."""
        tensors = self.tensors if tensors is None else tensors
        check_blocks("x.gguf", tensors, self.metadata | metadata)
        check_tensors("x.gguf", tensors, self.needed)


@pytest.fixture(scope="module", params=["llama", "qwen3moe"])
def contents(request, tmp_path_factory):
    """Of a model without an output layer: a file that has lost it is a whole file of such a model."""
    path = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    write_gguf(path, request.param, blocks=2, tied=True)
    return Contents(path, request.param)


def renamed(name, numbers):
    """`name` as it could be in a damaged file, or in one for another program."""
    at, other = numbers.randrange(len(name)), numbers.choice(string.ascii_lowercase + "._0123456789")
    names = [name + other, name[:at] + name[at + 1 :], name[:at] + other + name[at + 1 :], name.removesuffix(".weight")]
    names += ["rope_freqs.weight", "output.weight", name.replace("blk.0", "blk.1"), name.replace("weight", "bias")]
    return numbers.choice([changed for changed in names if changed != name])


def mutants(names, count):
    """(tensors, metadata) of so many files, each with one thing wrong."""
    numbers = random.Random(0)
    for _ in range(count):
        at, kind = numbers.randrange(len(names)), numbers.choice(["drop", "rename", "rename", "add", "blocks"])
        before, name, after = names[:at], names[at], names[at + 1 :]
        changes = {
            "drop": ([*before, *after], {}),
            "rename": ([*before, renamed(name, numbers), *after], {}),
            "add": ([*names, name.replace("blk.", "blk.2") if "blk" in name else f"{name}.{at}"], {}),
            "blocks": (names, {"blocks": numbers.choice([0, 1, 3, 4, 29, 2**32 - 1, "2", None])}),
        }
        yield changes[kind]


def test_no_mutant_is_accepted(contents):
    contents.judge()
    architecture, accepted = contents.metadata["general.architecture"], []
    for tensors, stated in mutants(list(contents.tensors), MUTANTS):
        metadata = {f"{architecture}.block_count": stated["blocks"]} if stated else {}
        try:
            contents.judge(tensors, **metadata)
        except ModelUnavailableError as error:
            assert str(error).startswith("x.gguf ") and "\n" not in str(error)
        else:
            accepted.append((set(contents.tensors) ^ set(tensors), stated))
    assert not accepted


def test_experts_need_both_halves_of_what_is_joined(contents):
    """transformers would leave zeros in the place of the other half."""
    for half in ("blk.1.ffn_up_exps.weight", "blk.0.ffn_gate_exps.weight"):
        if half in contents.tensors:
            with pytest.raises(ModelUnavailableError, match=f"lacks 1 of its tensors, {half} among them"):
                contents.judge([name for name in contents.tensors if name != half])


@pytest.mark.parametrize(("blocks", "whole"), [(4, False), (3, True), (2, True), (1, False)])
def test_blocks_that_guess_further_tokens_may_be_left_out(blocks, whole):
    metadata = {"general.architecture": "glm", "glm.block_count": 3, "glm.nextn_predict_layers": 1}
    tensors = [f"blk.{number}.attn_q.weight" for number in range(blocks)]
    with nullcontext() if whole else pytest.raises(ModelUnavailableError, match=f"has {blocks} blocks, and its metad"):
        check_blocks("x.gguf", tensors, metadata)


def test_two_tensors_of_one_name(tmp_path):
    write_gguf(tmp_path / "toy.gguf", blocks=2)
    whole = (tmp_path / "toy.gguf").read_bytes()
    (tmp_path / "toy.gguf").write_bytes(whole.replace(b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight"))
    with pytest.raises(ModelUnavailableError, match=r"^toy.gguf has two tensors of one name: fetch the file again"):
        check_gguf("toy.gguf", tmp_path / "toy.gguf", print)


LOST, WRONG = "blk.1.attn_k.weight", "blk.1.attn_kay.weight"
FILES = {
    "dropped": ({"rename": lambda name: name if name != LOST else None}, f"lacks 1 of its tensors, {LOST} among them:"),
    "renamed": (
        {"rename": lambda name: name.replace(LOST, WRONG)},
        f"lacks 1 of its tensors, {LOST} among them and has 1 that are not of its model, {WRONG} among them: fetch",
    ),
    "added": (
        {"rename": lambda name: name.replace("output.weight", "extra.weight") if name[0] == "o" else name},
        "has 1 that are not of its model, extra.weight among them",
    ),
    "one block more": ({"stated": 3}, "has 2 blocks, and its metadata says 3: fetch the file again"),
    "one block less": ({"stated": 1}, "has 2 blocks, and its metadata says 1"),
    "blocks without end": ({"stated": 2**32 - 1}, "has 2 blocks, and its metadata says 4294967295"),
    "no blocks": ({"stated": 0}, "has 2 blocks, and its metadata says 0"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_leaves_nothing_in_the_cache(tmp_path, monkeypatch, kind):
    options, text = FILES[kind]
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "toy.gguf", blocks=2, **options)
    for _ in range(2):  # the second time nothing must be left of the first
        with pytest.raises(ModelUnavailableError, match=f"toy.gguf {text}"):
            model_folder(str(tmp_path / "toy.gguf"), announce=lambda _: None)
        assert not list((tmp_path / "cache").iterdir())
