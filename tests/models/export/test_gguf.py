"""GGUF files: the same weights as gguf's own code has them, and the same logits once transformers has read them."""

import numpy as np
import pytest
import torch

from tests.models import tiny
from tests.models.export.models import compressed, give_byte_level_tokenizer
from tests.models.quantized import folders
from tilepress.formats import parse_weight
from tilepress.models import compress_folder, load_model
from tilepress.models.export import ExportError, export_folder
from tilepress.models.export.gguf_blocks import blocks_of
from tilepress.models.registration import packed_layers, unpack_layers
from tilepress.tiles import pack, pack_codes, unpack

gguf = pytest.importorskip("gguf")
TYPES = {"int4:g32": "Q4_0", "int3:g32": "Q4_0", "int8:g32": "Q8_0", "int6:g64": "Q8_0", "mxfp4": "MXFP4"}
TYPES |= {"bf16": "BF16", "fp16": "F16"}


def read_blocks(blocks):
    kind = gguf.GGMLQuantizationType[blocks.type]
    data = blocks.data.view(np.float16) if blocks.type == "F16" else blocks.data
    return torch.from_numpy(gguf.quants.dequantize(data, kind).astype(np.float32))


def weights(rows=48, cols=128):
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(0)) / 10


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("format", TYPES)
def test_blocks(format, sparse):
    matrix = pack(weights(), format, mask=weights() > 0 if sparse else None)
    blocks = blocks_of("layer", matrix)
    assert blocks.type == TYPES[format] and torch.equal(read_blocks(blocks), unpack(matrix))
    rows = torch.randperm(48, generator=torch.Generator().manual_seed(1))
    assert torch.equal(read_blocks(blocks_of("layer", matrix, rows)), unpack(matrix)[rows])


@pytest.mark.parametrize(("bits", "spread", "type"), [(4, 3, "Q4_0"), (4, 15, "Q4_1"), (8, 100, "Q8_0")])
def test_blocks_with_zero_points(bits, spread, type):
    """Of whole zero points: Q4_0 where codes lie around them, Q4_1 where fp16 has the least weight."""
    format = parse_weight(f"uint{bits}:g32")
    from tilepress.formats import Quantized

    random = torch.Generator().manual_seed(0)
    zero = 1 << (bits - 1) if spread != 15 else 2
    low, high = max(0, zero - spread), min((1 << bits) - 1, zero + spread)
    codes = torch.randint(low, high + 1, (16, 64), generator=random).to(torch.uint8)
    scales = torch.rand(16, 2, generator=random).half()
    zeros = torch.full((16, 2), zero * (1 << (8 - bits)), dtype=torch.uint8)
    matrix = pack_codes(Quantized(codes, scales, zeros), format)
    blocks = blocks_of("layer", matrix)
    assert blocks.type == type and torch.equal(read_blocks(blocks), unpack(matrix))


@pytest.mark.parametrize(
    ("format", "cols", "message"),
    [
        ("uint4:g32", 128, r"zero points between the codes\): compress the model with --weights int4:g32, the nearest"),
        ("int8:row", 128, r"scales that fp16 does not have\): compress the model with --weights int8:g32:fp16"),
        ("nf4:g64", 128, r"it has no blocks of nf4\): compress the model with --weights int4:g32"),
        ("int4:g16", 128, r"groups of 16 inputs, no multiple of 32"),
        ("int4:g32", 80, r"rows of 80 inputs, no multiple of 32\): compress the model with --weights bf16"),
    ],
)
def test_formats_without_a_counterpart(format, cols, message):
    with pytest.raises(ExportError, match=f"layer is {format}, and GGUF cannot hold it to the bit .*{message}"):
        blocks_of("layer", pack(weights(cols=cols), format))


def export(tmp_path, monkeypatch, small):
    """(what was exported, the model that transformers makes of the file)"""
    pytest.importorskip("accelerate")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    give_byte_level_tokenizer(small)
    done = export_folder(small, tmp_path / "out.gguf", "gguf")
    return done, load_model(str(tmp_path / "out.gguf"), dtype=torch.float32, announce=lambda _: None)


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
def test_a_model(tmp_path, monkeypatch):
    small = compressed(tmp_path, {"format": "int4:g32", "density": 0.75})
    done, back = export(tmp_path, monkeypatch, small)
    assert done.notes == [
        "how its tokenizer divides text has no name in llama.cpp: written as default",
        "21 sparse layers are written dense, their dropped weights as zeros",
    ]
    ours = load_model(str(small), dtype=torch.float32)
    expected = unpack_layers(ours.model)
    theirs = back.model.state_dict()
    for name, weight in expected.state_dict().items():
        assert torch.equal(theirs[name], weight), name
    assert torch.equal(back.model(tiny.windows()).logits, expected(tiny.windows()).logits)
    assert back.tokenizer("abc ab")["input_ids"] == ours.tokenizer("abc ab")["input_ids"]


@pytest.mark.filterwarnings("ignore")
def test_a_gptq_checkpoint_as_gguf(tmp_path, monkeypatch):
    folder, expected = folders.gptq(tmp_path / "gptq", tie_word_embeddings=False)
    compress_folder(str(folder), tmp_path / "small", {}, announce=lambda _: None)
    _, back = export(tmp_path, monkeypatch, tmp_path / "small")
    for name, weight in expected.items():
        assert torch.equal(back.model.get_submodule(name).weight, weight)


def test_a_packed_embedding(tmp_path):
    """One matrix for both ends of the model, written as float32 once."""
    small = compressed(tmp_path, {"embedding": "int8:row"})
    done = export_folder(small, tmp_path / "out", "compressed-tensors")
    assert done.notes == [
        "model.embed_tokens is written in float32: compress with --embedding keep to have it as it came"
    ]
    ours = unpack_layers(load_model(str(small), dtype=torch.float32).model)
    compress_folder(str(tmp_path / "out"), tmp_path / "again", {}, announce=lambda _: None)
    again = unpack_layers(load_model(str(tmp_path / "again"), dtype=torch.float32).model)
    assert torch.equal(again(tiny.windows()).logits, ours(tiny.windows()).logits)
    export_folder(small, tmp_path / "out.gguf", "gguf")
    names = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    assert names["token_embd.weight"] == "F32" and "output.weight" not in names


def test_a_tokenizer_that_gguf_does_not_have(tmp_path):
    small = compressed(tmp_path)
    (note,) = export_folder(small, tmp_path / "out.gguf", "gguf").notes
    assert note.startswith("the file is without a tokenizer (WordLevel, and GGUF has BPE)")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    layers = dict(packed_layers(load_model(str(small)).model))
    down = unpack(layers["model.layers.1.mlp.down_proj"].matrix)
    tensor = tensors["blk.1.ffn_down.weight"]
    assert tensor.tensor_type.name == "Q4_0"
    assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), down.numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPTNeoXForCausalLM"]}, "and this is GPTNeoXForCausalLM: take --to compressed-tensors"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rotary embeddings of type 'llama3' are not written to GGUF"),
        ({"sliding_window": 8}, "attention over a window of 8 tokens is not written to GGUF"),
    ],
)
def test_models_that_gguf_would_compute_otherwise(changes, message):
    from tilepress.models.export.gguf_model import architecture_of

    config = {"architectures": ["MistralForCausalLM"], "max_position_embeddings": 64}
    assert architecture_of(config).name == "llama"
    with pytest.raises(ExportError, match=message):
        architecture_of(config | changes)
