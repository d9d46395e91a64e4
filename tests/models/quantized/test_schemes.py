"""Layers of every scheme: held to the bit, by the scheme's own formula in float32, or said not to be."""

import json

import pytest
import torch
from ml_dtypes import float4_e2m1fn, float8_e8m0fnu
from safetensors.torch import save_file

from tests.models.quantized import writers
from tilepress.formats import NF4
from tilepress.models import ModelUnavailableError
from tilepress.models.quantized import Held, Unheld, open_checkpoint
from tilepress.tiles import pack_codes, unpack

NEURONS, INPUTS = 48, 128
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.fixture
def layer(tmp_path):
    """(parts, config) to the weight of the layer that they are of."""

    def read(parts, config):
        return checkpoint(tmp_path, parts, config).source_weight("q_proj.weight")

    return read


def checkpoint(folder, parts, config):
    save_file({f"q_proj.{name}": part.contiguous() for name, part in parts.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return open_checkpoint(folder)


def assert_held(weight, format, expected):
    assert isinstance(weight, Held) and str(weight.format) == format
    assert torch.equal(weight.dense(), expected)
    assert torch.equal(unpack(pack_codes(weight.quantized, weight.format)), expected)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def codes_of(bits, shape=(NEURONS, INPUTS)):
    return torch.randint(0, 1 << bits, shape, generator=random(1))


def scales_of(groups, dtype=torch.float16, rows=NEURONS):
    return (torch.rand(rows, groups, generator=random(2)) / 50 + 1e-4).to(dtype)


def spread(values, inputs=INPUTS):
    return values.float().repeat_interleave(-(-inputs // values.shape[1]), 1)[:, :inputs]


def affine(codes, zeros, scales):
    return (codes - spread(zeros, codes.shape[1])) * spread(scales, codes.shape[1])


GPTQ = {"quant_method": "gptq", "group_size": 32}


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_gptq(layer, bits, version):
    codes, scales, zeros = codes_of(bits), scales_of(4), codes_of(bits, (NEURONS, 4))
    config = {**GPTQ, "bits": bits} | ({"checkpoint_format": "gptq_v2"} if version == 2 else {})
    weight = layer(writers.gptq(codes, zeros, scales, bits, version=version), config)
    assert_held(weight, f"uint{bits}:g32", affine(codes, zeros, scales))
    half = torch.full_like(zeros, 1 << (bits - 1))
    weight = layer(writers.gptq(codes, half, scales, bits, version=version), config)
    assert_held(weight, f"int{bits}:g32:fp16", affine(codes, half, scales))


def test_gptq_as_its_own_halves(layer):
    """AutoGPTQ multiplies in fp16: the same weights, rounded to it."""
    codes, scales, zeros = codes_of(4), scales_of(4), codes_of(4, (NEURONS, 4))
    theirs = scales.repeat_interleave(32, 1) * (codes - zeros.repeat_interleave(32, 1)).half()
    weight = layer(writers.gptq(codes, zeros, scales, 4), {**GPTQ, "bits": 4})
    assert torch.equal(weight.dense().half(), theirs)


@pytest.mark.parametrize("group", [-1, 128, 1024])
def test_gptq_with_a_scale_per_row(layer, group):
    codes, scales, zeros = codes_of(8), scales_of(1), codes_of(8, (NEURONS, 1))
    weight = layer(writers.gptq(codes, zeros, scales, 8), {**GPTQ, "bits": 8, "group_size": group})
    assert_held(weight, "uint8:row:fp16", affine(codes, zeros, scales))


def test_gptq_whose_last_group_is_short(layer):
    codes, scales, zeros = codes_of(4, (16, 96)), scales_of(2, rows=16), codes_of(4, (16, 2))
    parts = writers.gptq(codes, zeros, scales, 4, owners=torch.arange(96) // 64)
    expected = (codes - zeros.repeat_interleave(64, 1)[:, :96]) * scales.float().repeat_interleave(64, 1)[:, :96]
    assert_held(layer(parts, {**GPTQ, "bits": 4, "group_size": 64}), "uint4:g64", expected)


def test_gptq_in_another_order_of_groups(layer):
    """Groups that change places are held; inputs that are scattered over groups are not."""
    codes, scales, zeros = codes_of(4), scales_of(4), codes_of(4, (NEURONS, 4))
    owners = torch.tensor([2, 0, 3, 1]).repeat_interleave(32)
    expected = (codes - zeros[:, owners]) * scales[:, owners].float()
    config = {**GPTQ, "bits": 4, "desc_act": True}
    assert_held(layer(writers.gptq(codes, zeros, scales, 4, owners), config), "uint4:g32", expected)
    owners = owners[torch.randperm(INPUTS, generator=random())]
    weight = layer(writers.gptq(codes, zeros, scales, 4, owners), config)
    assert isinstance(weight, Unheld) and "grouped in another order" in weight.why
    assert str(weight.nearest) == "uint4:g32"
    assert torch.equal(weight.dense(), (codes - zeros[:, owners]) * scales[:, owners].float())


def test_gptq_in_groups_that_no_format_has(layer):
    codes, scales, zeros = codes_of(8), scales_of(16), codes_of(8, (NEURONS, 16))
    weight = layer(writers.gptq(codes, zeros, scales, 8), {**GPTQ, "bits": 8, "group_size": 8})
    assert isinstance(weight, Unheld) and "groups of 8 inputs are no multiple of 16" in weight.why
    assert str(weight.nearest) == "int8:g32" and torch.equal(weight.dense(), affine(codes, zeros, scales))


def test_awq(layer):
    codes, scales, zeros = codes_of(4), scales_of(4), codes_of(4, (NEURONS, 4))
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    assert_held(layer(writers.awq(codes, zeros, scales), config), "uint4:g32", affine(codes, zeros, scales))
    with pytest.raises(ModelUnavailableError, match="AWQ layout is 'gemv', and only gemm is read"):
        layer(writers.awq(codes, zeros, scales), config | {"version": "GEMV"})


def tensors(format, **weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, **weights}}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_pack_quantized(layer, bits, dtype):
    codes, scales, zeros = codes_of(bits), scales_of(4, dtype), codes_of(bits, (NEURONS, 4))
    config = tensors("pack-quantized", num_bits=bits, strategy="group", group_size=32)
    name = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]
    half = torch.full_like(zeros, 1 << (bits - 1))
    signed = f"int{bits}:g32" + ("" if name == "bf16" else f":{name}")
    assert_held(layer(writers.pack_quantized(codes, scales, bits), config), signed, affine(codes, half, scales))
    unsigned = f"uint{bits}:g32" + ("" if name == "fp16" else f":{name}")
    parts = writers.pack_quantized(codes, scales, bits, zeros)
    assert_held(layer(parts, config), unsigned, affine(codes, zeros, scales))


def test_pack_quantized_by_channel_and_tensor(layer):
    codes, scales = codes_of(4), scales_of(1, torch.bfloat16)
    half = torch.full_like(scales, 8, dtype=torch.int64)
    config = tensors("pack-quantized", strategy="channel")
    parts = writers.pack_quantized(codes, scales, 4)
    assert_held(layer(parts, config), "int4:row:bf16", affine(codes, half, scales))
    config = tensors("pack-quantized", strategy="tensor")
    parts = writers.pack_quantized(codes, scales[:1, 0], 4)
    assert_held(layer(parts, config), "int4:row:bf16", affine(codes, half, scales[:1].expand(NEURONS, 1)))


def test_pack_quantized_with_an_order_of_groups(layer):
    codes, scales = codes_of(4), scales_of(4)
    config = tensors("pack-quantized", strategy="group", group_size=32, actorder="group")
    owners = torch.arange(INPUTS, dtype=torch.int32) % 4
    weight = layer(writers.pack_quantized(codes, scales, 4, weight_g_idx=owners), config)
    assert isinstance(weight, Unheld)
    assert torch.equal(weight.dense(), (codes - 8) * scales[:, owners.long()].float())
    unset = writers.pack_quantized(codes, scales, 4, weight_g_idx=torch.full((INPUTS,), -1, dtype=torch.int32))
    assert isinstance(layer(unset, config), Held)


@pytest.mark.parametrize("shape", [(NEURONS, 1), (1,)])
def test_int_quantized(layer, shape):
    weight, scales = codes_of(8).sub(128).to(torch.int8), scales_of(1, torch.float32)[: shape[0]].view(shape)
    config = tensors("int-quantized", num_bits=8, strategy="channel" if len(shape) == 2 else "tensor")
    parts = {"weight": weight, "weight_scale": scales}
    assert_held(layer(parts, config), "int8:row", weight.float() * scales)
    points = torch.full(shape, 3, dtype=torch.int8)
    held = layer(parts | {"weight_zero_point": points}, config)
    assert_held(held, "uint8:row", (weight.float() - 3) * scales)


def e4m3(shape=(NEURONS, INPUTS)):
    return (torch.randn(shape, generator=random(3)) * 100).to(torch.float8_e4m3fn)


def test_float_quantized(layer):
    weight, scales = e4m3(), scales_of(1, torch.bfloat16)
    config = tensors("float-quantized", num_bits=8, type="float", strategy="channel")
    parts = {"weight": weight, "weight_scale": scales}
    assert_held(layer(parts, config), "e4m3:row:bf16", weight.float() * scales.float())


def test_nvfp4(layer):
    codes, scales, whole = codes_of(4), (torch.rand(NEURONS, 8) * 400).to(torch.float8_e4m3fn), torch.tensor([713.0])
    config = tensors("nvfp4-pack-quantized", type="float", strategy="tensor_group", group_size=16)
    parts = {"weight_packed": writers.nibbles(codes), "weight_scale": scales, "weight_global_scale": whole}
    assert_held(layer(parts, config), "e2m1:g16:fp32", E2M1[codes] * spread(scales.float() / whole))
    parts["weight_global_scale"] = torch.tensor([512.0])  # scales divided by it need no more bits
    assert_held(layer(parts, config), "e2m1:g16", E2M1[codes] * spread(scales.float() / 512))


def exponents(groups):
    return torch.randint(110, 130, (NEURONS, groups), generator=random(4)).to(torch.uint8)


def test_mxfp4(layer):
    codes, scales = codes_of(4), exponents(4)
    values = torch.from_numpy(codes.to(torch.uint8).numpy().view(float4_e2m1fn).astype("float32"))
    expected = values * spread(torch.from_numpy(scales.numpy().view(float8_e8m0fnu).astype("float32")))
    packed = writers.nibbles(codes)
    config = tensors("mxfp4-pack-quantized", type="float", strategy="group", group_size=32)
    assert_held(layer({"weight_packed": packed, "weight_scale": scales}, config), "mxfp4", expected)
    parts = {"weight_blocks": packed.view(NEURONS, 4, 16), "weight_scales": scales}
    assert_held(layer(parts, {"quant_method": "mxfp4"}), "mxfp4", expected)


def test_fp8_with_blocks(layer):
    """200 × 300: the last blocks are short, as in DeepSeek's own layers."""
    weight = e4m3((200, 300))
    scales = torch.rand(2, 3, generator=random()) / 100
    expected = weight.float() * scales.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)[:, :300]
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert_held(layer({"weight": weight, "weight_scale_inv": scales}, config), "e4m3:g128:fp32", expected)
    powers = torch.exp2(torch.randint(-9, -3, (2, 3), generator=random()).float())
    weight = layer({"weight": weight, "weight_scale_inv": powers}, config)
    assert str(weight.format) == "e4m3:g128"  # powers of two fit the shortest scale


def test_fp8_with_one_scale(layer, tmp_path):
    weight, scale = e4m3(), torch.tensor([0.003])
    parts = {"weight": weight, "weight_scale": scale, "input_scale": torch.ones(1)}
    assert_held(layer(parts, {"quant_method": "fp8"}), "e4m3:row", weight.float() * scale)
    shards = open_checkpoint(tmp_path)
    assert list(shards) == ["q_proj.weight"] and list(shards.dropped) == ["q_proj.input_scale"]


BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}
TABLE = torch.tensor(NF4.values)


def test_nf4(layer):
    codes, absmax = codes_of(4), torch.rand(NEURONS * INPUTS // 64, generator=random())
    expected = TABLE[codes] * absmax.view(NEURONS, 2).repeat_interleave(64, 1)
    assert_held(layer(writers.bitsandbytes(codes, absmax, TABLE, 64), BITSANDBYTES), "nf4:g64:fp32", expected)


def test_nf4_with_nested_scales(layer):
    """Scales of scales: of every 32 blocks, here; and blocks that end within a row of 96."""
    codes, blocks = codes_of(4, (NEURONS, 96)), NEURONS * 96 // 64
    stored = torch.randint(0, 256, (blocks,), generator=random()).to(torch.uint8)
    values, scales = torch.linspace(-1, 1, 256), torch.rand(-(-blocks // 32), generator=random())
    absmax = values[stored.long()] * scales.repeat_interleave(32)[:blocks] + 0.0625
    expected = (TABLE[codes].flatten() * absmax.repeat_interleave(64)).view(NEURONS, 96)
    parts = writers.bitsandbytes(codes, stored, TABLE, 64, (values, scales, 32), 0.0625)
    assert_held(layer(parts, BITSANDBYTES), "nf4:g32:fp32", expected)


def test_fp4_by_its_own_table(layer):
    codes, absmax = codes_of(4), torch.rand(NEURONS * INPUTS // 64, generator=random())
    table = torch.tensor([0, 0.0052, 0.6667, 1, 0.3333, 0.5, 0.1667, 0.25])
    table = torch.cat([table, -table])
    expected = (table + 0.0)[codes] * absmax.view(NEURONS, 2).repeat_interleave(64, 1)
    parts = writers.bitsandbytes(codes, absmax, table, 64, kind="fp4")
    assert_held(layer(parts, BITSANDBYTES), "lut4:bitsandbytes:g64:fp32", expected)


def test_blocks_that_straddle_rows(layer):
    codes = codes_of(4, (16, 40))
    absmax = torch.rand(10, generator=random())
    weight = layer(writers.bitsandbytes(codes, absmax, TABLE, 64), BITSANDBYTES)
    assert isinstance(weight, Unheld) and "blocks of 64 weights do not end with rows of 40" in weight.why
    assert torch.equal(weight.dense().flatten(), TABLE[codes].flatten() * absmax.repeat_interleave(64))


def test_eight_bits_of_bitsandbytes(layer):
    weight, largest = codes_of(8).sub(128).to(torch.int8), torch.rand(NEURONS, generator=random())
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    held = layer({"weight": weight, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}, config)
    assert_held(held, "int8:row", weight.float() * (largest / 127).unsqueeze(1))
