"""Small files that would take gigabytes or for ever: each is refused, within twice its size + 64 MB."""

import json
import os
import struct
from dataclasses import asdict

import pytest
import torch
from tests.attacks.measuring import MB, bounded
from tests.models import tiny
from transformers import LlamaConfig, LlamaForCausalLM

import tilepress
from tilepress import tiles
from tilepress.bench import bandwidth
from tilepress.bench.linear import Contestant, Settings, measure
from tilepress.bench.shapes import Shape
from tilepress.formats import parse_weight, read_table
from tilepress.hardware import read_machine
from tilepress.models import chat
from tilepress.models.recipe import RecipeError, read_recipe
from tilepress.nn import model_kv_cache as kv_caches
from tilepress.report.reading import RecordsError, read_records
from tilepress.simulate.layers import find_transformer
from tilepress.tiles import DamagedError, sealed

NESTED = "[" + "[]," * 100_000 + "0]"  # 27 times its bytes as objects


# Headers of packed tiles


def file_with_header(path, text, arrays=b"\0" * 4):
    """A safetensors file whose entry of ours is `text`, sealed."""
    array = {"dtype": "U8", "shape": [len(arrays)], "data_offsets": [0, len(arrays)]}
    header = json.dumps({"__metadata__": {"tilepress": text}, "a": array}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + arrays)
    raw = path.read_bytes()
    at = raw.index(b"0" * 64)
    digest = sealed.hashlib.sha256(raw[: 8 + len(header)]).hexdigest().encode()
    path.write_bytes(raw[:at] + digest + raw[at + 64 :])


def nested_header(size):
    lists = ", ".join([NESTED] * (size // len(NESTED)))
    return f'{{"digest": "{"0" * 64}", "version": 2, "matrices": [{lists}]}}'


@pytest.mark.parametrize(
    ("size", "message"), [(30 * MB, r"has a header of \d\d\.\d MB for 0\.0 MB of arrays, more than is read"),
                          (1_800_000, "the header cannot be understood")],
)  # fmt: skip
def test_a_long_header(tmp_path, size, message):
    file_with_header(tmp_path / "x", nested_header(size))
    with bounded(size), pytest.raises(DamagedError, match=message):
        tiles.load(tmp_path / "x")


def test_a_header_is_parsed_only_if_its_digest_is_right(tmp_path, monkeypatch):
    file_with_header(tmp_path / "x", nested_header(600_000))
    raw = bytearray((tmp_path / "x").read_bytes())
    raw[1000] ^= 1
    (tmp_path / "x").write_bytes(raw)
    monkeypatch.setattr(sealed, "safe_open", lambda *_: pytest.fail("it was parsed"))
    with pytest.raises(DamagedError, match="the header is damaged: its checksum does not match"):
        tiles.load(tmp_path / "x")


def test_a_header_that_would_not_be_read_is_not_written(tmp_path):
    with pytest.raises(DamagedError, match="save fewer arrays in it"):
        sealed.write_sealed(tmp_path / "x", {"a": torch.zeros(1)}, {"version": 2, "text": "x" * 3 * MB})
    assert not list(tmp_path.iterdir())


# KV caches


def llama():
    sizes = {**tiny.GATED, "head_dim": 32, "num_hidden_layers": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("bfp:m4:hi8:initial1048576:local1048576", "write initial and local of 4096 tokens or fewer"),
        ("bfp:m4:hi8:initial2000:local2000", "layer 0 is damaged: it holds no tokens, and .* asks for many"),
    ],
)
def test_a_cache_file_without_tokens(tmp_path, format, message):
    model, path = llama(), tmp_path / "talk.safetensors"
    layer = {"columns": 0, "lengths": [], "heads": 2, "channels": 32, "window": None, "sha256": {}}
    fingerprint = asdict(tilepress.kv_cache(model, "bfp4").fingerprint)
    header = {"kv_cache": format, "smoothing": "none", "model": fingerprint, "tokens": [[5]], "layers": [layer] * 2}
    sealed.write_sealed(path, {"nothing": torch.zeros(1)}, {"version": kv_caches.VERSION, **header})
    with bounded(path.stat().st_size), torch.no_grad(), pytest.raises(ValueError, match=message):
        model(torch.tensor([[5, 6]]), past_key_values=tilepress.load_kv_cache(model, path))


# Tables of values


def pipe(folder):
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize("place", [lambda _: "/dev/zero", pipe], ids=["endless", "pipe"])
def test_a_table_that_is_no_ordinary_file(tmp_path, place):
    path = place(tmp_path)
    with bounded(0), pytest.raises(ValueError, match=f"cannot read the table {path}: it is not an ordinary file"):
        parse_weight(f"lut4:{path}")


def test_a_table_without_end(tmp_path):
    (tmp_path / "zeros").write_text("0 " * 20 * MB)
    with bounded(0), pytest.raises(ValueError, match=r"cannot read the table .*: it is larger than 0\.064 MB"):
        read_table(tmp_path / "zeros", 4)


@pytest.mark.parametrize("secret", ["hunter2 is my password", "1e39 2", "\udcff\udcfehunter2"])
def test_errors_do_not_quote_a_table(tmp_path, secret):
    (tmp_path / "secret").write_text(secret, errors="surrogateescape")
    with pytest.raises(ValueError, match="table") as error:
        parse_weight(f"lut4:{tmp_path}/secret")
    assert "hunter2" not in str(error.value) and "1e+39" not in str(error.value)


# Recipes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".".join(["a"] * 100_000) + " = 1", "line 1 has more than 32 dots"),
        ("[" + ".".join(["a"] * 100_000) + "]\n" + "b = 1\n" * 9000, "line 1 has more than 32 dots"),
        ("a = " + "[" * 100_000, "is not TOML: maximum recursion depth"),
        ("# " + "x" * 300_000, r"it is larger than 0\.256 MB"),
    ],
)
def test_a_recipe(tmp_path, text, message):
    (tmp_path / "r.toml").write_text(text)
    with bounded(len(text)), pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / "r.toml")


def test_a_recipe_may_have_dots_in_comments_and_an_override_for_each_layer(tmp_path):
    override = '[[weights.override]]\nmatch = "model.language_model.layers.17.mlp.experts.down_proj"\ndensity = 0.5\n'
    (tmp_path / "r.toml").write_text("# " + "." * 90 + "\n" + override * 1000)
    assert len(read_recipe(tmp_path / "r.toml").weights.override) == 1000


# Machines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x]\n" + "".join(f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
         "aliases .* are not read"),
        ("[" * 30_000, "cannot be read: it has more than 500 brackets"),
        ("a: " + "x" * 70_000, r"cannot be read: it is larger than 0\.064 MB"),
        ("a: " + "1" * 5000, "is not YAML"),
    ],
)  # fmt: skip
def test_a_machine(tmp_path, text, message):
    (tmp_path / "m.yaml").write_text(text)
    with bounded(len(text)), pytest.raises(ValueError, match=message):
        read_machine(tmp_path / "m.yaml")


# Records and configurations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[{','.join([NESTED] * 12)}]", "it has more lists and objects than records could have"),
        (f"[{'257,' * 990_000}0]", "record 1: is no object"),
        (f"[{'257,' * 1_100_000}0]", "it is larger than 4 MB"),
    ],
)
def test_a_file_of_records(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with bounded(len(text)), pytest.raises(RecordsError, match=message):
        read_records([tmp_path / "a.json"])


def test_a_layer_table(tmp_path):
    (tmp_path / "config.json").write_text(f"[{','.join([NESTED] * 20)}]")
    with bounded(6 * MB), pytest.raises(ValueError, match="it is larger than 2 MB"):
        find_transformer(str(tmp_path))


# Chat templates


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it takes more than 1 s"),
        ("{{ 'a' * 9999999999 }}", "it takes too much memory"),
        ("{% for a in range(99999) %}{{ 'a' * 100 }}{% endfor %}", "it takes too much memory, or writes too much"),
        ("{{ raise_exception('no system role\nhere') }}", "no system role here"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_chat_template(monkeypatch, template, message):
    monkeypatch.setattr(chat, "SECONDS", 1.0)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    with bounded(0), pytest.raises(chat.ChatTemplateError, match=f"chat template cannot be used: {message}"):
        chat.render_chat(tokenizer, [{"role": "user", "content": "w5"}])


def test_a_chat_template_that_does_no_harm():
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}»"
    turns = [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w6"}]
    expected = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert chat.render_chat(tokenizer, turns) == expected == "<bos>user: w5\nassistant: w6\n»"


# The race at the end of a sparse compression


@pytest.fixture
def large_cache(tmp_path, monkeypatch):
    """A processor with a last-level cache of 260 MB, as servers have."""
    (tmp_path / "caches/index0").mkdir(parents=True)
    (tmp_path / "caches/index0/size").write_text("260M")
    monkeypatch.setattr(bandwidth, "_CACHES", tmp_path / "caches")
    monkeypatch.setattr(bandwidth, "_SMALLEST_BUFFER", 256 << 20)


def test_a_race_takes_the_memory_that_it_is_given(large_cache):
    contestants = [Contestant(parse_weight("int4:g32"), density) for density in (1.0, 0.5)]
    with bounded(4 * MB):
        next(measure(Shape(1024, 1024), contestants, Settings(peers=False, repeats=1, memory=4 * MB)))


def test_a_sparse_compression(large_cache, tmp_path, call):
    folder, _ = tiny.save(tmp_path / "model")
    with bounded(sum(path.stat().st_size for path in folder.iterdir())):
        done = call("compress", folder, "-o", tmp_path / "out", "--density", 0.5, "--json")
    assert done.returncode == 0 and "sparse_pays" in done.stdout
