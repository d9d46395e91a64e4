"""Checkpoints that are damaged, or were made to do harm: refused in one line, with the tensor's name."""

import json

import pytest
import torch

from tests.models.quantized import writers
from tests.models.quantized.test_schemes import BITSANDBYTES, TABLE, checkpoint, tensors
from tilepress.models import ModelUnavailableError
from tilepress.models.quantized.fields import unpack_fields

CODES = torch.arange(16).repeat(32, 8)  # 32 × 128
SCALES, ZEROS = torch.ones(32, 4).half(), torch.full((32, 4), 3)
GPTQ = writers.gptq(CODES, ZEROS, SCALES, 4), {"quant_method": "gptq", "bits": 4, "group_size": 32}
AWQ = writers.awq(CODES, ZEROS, SCALES), {"quant_method": "awq", "bits": 4, "group_size": 32}
PACKED = (
    writers.pack_quantized(CODES, SCALES, 4, ZEROS),
    tensors("pack-quantized", strategy="group", group_size=32, symmetric=False),
)
FP8 = (
    {"weight": torch.ones(256, 128).to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(2, 1)},
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
)
INT8 = (
    {"weight": torch.full((32, 64), 100, dtype=torch.int8), "weight_scale": torch.ones(32, 1)},
    tensors("int-quantized", num_bits=8, strategy="channel"),
)
MXFP4 = (
    {"weight_blocks": torch.zeros(8, 2, 16).byte(), "weight_scales": torch.zeros(8, 2).byte()},
    {"quant_method": "mxfp4"},
)
NF4 = writers.bitsandbytes(CODES, torch.ones(64), TABLE, 64), BITSANDBYTES
STATE = "weight.quant_state.bitsandbytes__nf4"
WEIGHT = "q_proj.weight"


def text(value):
    return torch.tensor(list((value if isinstance(value, str) else json.dumps(value)).encode()), dtype=torch.uint8)


def at(tensor, place, value):
    changed = tensor.clone()
    changed.view(torch.uint8 if tensor.element_size() == 1 else tensor.dtype)[place] = value
    return changed


NAN = float("nan")
DAMAGE = [
    (GPTQ, {"qweight": torch.zeros(15, 32).int()}, r"q_proj.qweight is I32 \[15, 32\] where I32 \[16, 32\] is needed"),
    (GPTQ, {"qweight": torch.zeros(16, 32)}, r"qweight is F32 \[16, 32\] where I32 \[any, any\] is needed"),
    (GPTQ, {"qzeros": torch.zeros(4, 5).int()}, r"qzeros is I32 \[4, 5\] where I32 \[4, 4\]"),
    (GPTQ, {"scales": None}, r"q_proj.scales is missing beside the layer's other quantised tensors"),
    (GPTQ, {"scales": at(GPTQ[0]["scales"], (0, 0), NAN)}, "q_proj.scales has scales that are not finite"),
    (GPTQ, {"g_idx": torch.full((128,), 4).int()}, "g_idx names groups beyond the 4 that there are"),
    (GPTQ, {"g_idx": torch.full((128,), -1).int()}, "g_idx names groups beyond the 4"),
    (GPTQ, {"g_idx": torch.zeros(1 << 20).int()}, r"qweight is I32 \[16, 32\] where I32 \[131072, 32\]"),
    (GPTQ, {"weight": torch.zeros(32, 128)}, "has q_proj.weight twice, as it was and quantised"),
    (AWQ, {"scales": torch.ones(4, 33).half()}, r"scales is F16 \[4, 33\]"),
    (AWQ, {"qweight": torch.zeros(0, 4).int()}, "qweight is empty"),
    (PACKED, {"weight_shape": torch.tensor([32, 1 << 40])}, r"weight_packed is I32 \[32, 16\] where"),
    (PACKED, {"weight_shape": torch.tensor([-32, 128])}, r"weight_shape is \[-32, 128\]"),
    (PACKED, {"weight_zero_point": torch.zeros(5, 4).int()}, r"weight_zero_point is I32 \[5, 4\]"),
    (PACKED, {"weight_g_idx": torch.full((128,), 9).int()}, "weight_g_idx names groups beyond the 4"),
    (FP8, {"weight_scale_inv": torch.ones(1, 1)}, r"weight_scale_inv is F32 \[1, 1\] where .* \[2, 1\]"),
    (FP8, {"weight_scale_inv": torch.full((2, 1), NAN)}, "weight_scale_inv has scales that are not finite"),
    (FP8, {"weight": at(FP8[0]["weight"], (0, 0), 127)}, "q_proj.weight has weights that are not a number"),
    (INT8, {"weight_scale": torch.ones(31, 1)}, r"weight_scale is F32 \[31, 1\]"),
    (MXFP4, {"weight_scales": at(MXFP4[0]["weight_scales"], (0, 0), 255)}, "scales that are not a number"),
    (MXFP4, {"weight_blocks": torch.zeros(8, 2, 15).byte()}, r"weight_blocks is U8 \[8, 2, 15\]"),
    (NF4, {STATE: text("{" * 5000)}, "has 5000 bytes, more than is read"),
    (NF4, {STATE: text("[" * 4000)}, "the state of q_proj cannot be understood"),
    (NF4, {STATE: text({"shape": [32, 128], "blocksize": 0})}, "the state of q_proj cannot be understood"),
    (NF4, {STATE: text({"shape": [1 << 40, 128], "blocksize": 64})}, r"q_proj.weight is U8 \[2048, 1\] where"),
    (NF4, {STATE: text({"shape": [32, 128], "blocksize": 64, "nested_offset": 10**400})}, "cannot be understood"),
    (NF4, {"weight.quant_map": at(TABLE, 3, NAN)}, "quant_map is no table"),
    (NF4, {"weight.absmax": torch.ones(63)}, r"weight.absmax is F32 \[63\] where F32 or U8 \[64\]"),
    (NF4, {"weight.absmax": torch.ones(64).byte()}, "weight.nested_absmax is missing"),
]


@pytest.mark.parametrize("case", range(len(DAMAGE)))
def test_damage(tmp_path, case):
    (parts, config), change, message = DAMAGE[case]
    checkpoint(tmp_path, parts, config).source_weight("q_proj.weight")
    damaged = {name: part for name, part in (parts | change).items() if part is not None}
    with pytest.raises(ModelUnavailableError, match=message) as error:
        checkpoint(tmp_path, damaged, config).source_weight("q_proj.weight")
    assert "\n" not in str(error.value) and f"{tmp_path} is quantised by {config['quant_method']}" in str(error.value)


CONFIGS = [
    (GPTQ, {"bits": 5}, "has bits 5, and what is read is 2 or 3 or 4 or 8"),
    (GPTQ, {"bits": "4"}, "has bits '4'"),
    (GPTQ, {"group_size": None}, "has group_size None, and what is read is a whole number"),
    (GPTQ, {"checkpoint_format": "marlin"}, "GPTQ layout is 'marlin', and gptq and gptq_v2 are read"),
    (FP8, {"weight_block_size": [128]}, r"has blocks of \[128\], not of \[neurons, inputs\]"),
    (FP8, {"weight_block_size": [128, 24]}, "blocks are 24 inputs wide, and only multiples of 16"),
    (PACKED, {"config_groups": {}}, "none of the groups in its quantization_config is for q_proj"),
    (PACKED, {"config_groups": []}, "has no mapping under config_groups"),
    (PACKED, {"sparsity_config": {"format": "sparse-24-bitmask"}}, "also stored as 'sparse-24-bitmask'"),
    (PACKED, {"transform_config": {"config_groups": {"R1": {}}}}, "inputs are transformed on the way"),
]


@pytest.mark.parametrize("case", range(len(CONFIGS)))
def test_settings_that_cannot_be_followed(tmp_path, case):
    (parts, config), change, message = CONFIGS[case]
    with pytest.raises(ModelUnavailableError, match=message):
        checkpoint(tmp_path, parts, config | change)


def test_a_tensor_too_few(tmp_path):
    with pytest.raises(ModelUnavailableError, match="holds no tensor that this scheme has"):
        checkpoint(tmp_path, {"weight": torch.ones(2, 2)}, GPTQ[1])


TWO = [{"num_bits": 4, "strategy": "group", "group_size": 32}, {"num_bits": 8, "strategy": "group", "group_size": 32}]


@pytest.mark.parametrize(
    ("target", "bits"), [("q_proj", 4), (r"re:.*q_proj$", 4), (r"re:(k|v)_proj", 8), ("model.q_proj", 8)]
)
def test_which_group_a_layer_is_of(tmp_path, target, bits):
    groups = {"a": {"targets": ["Linear"], "weights": TWO[1]}, "b": {"targets": [target], "weights": TWO[0]}}
    parts = writers.pack_quantized(CODES, SCALES, bits)
    config = {"quant_method": "compressed-tensors", "config_groups": groups}
    assert checkpoint(tmp_path, parts, config).source_weight("q_proj.weight").format.element.bits == bits


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", ".*.*.*.*.*x", "(?=a)", "[^a]*", "a{9}"])
def test_expressions_that_may_take_for_ever_are_not_tried(tmp_path, pattern):
    groups = {"a": {"targets": [f"re:{pattern}"], "weights": TWO[0]}, "b": {"targets": ["Linear"], "weights": TWO[1]}}
    config = {"quant_method": "compressed-tensors", "config_groups": groups}
    with pytest.raises(ModelUnavailableError, match="has a target that is not read"):
        checkpoint(tmp_path, PACKED[0], config)


def test_targets_that_are_no_list(tmp_path):
    groups = {"a": {"targets": 7, "weights": TWO[0]}, "b": {"targets": ["Linear"], "weights": TWO[1]}}
    with pytest.raises(ModelUnavailableError, match="its quantization_config has targets '7', which are no list"):
        checkpoint(tmp_path, PACKED[0], {"quant_method": "compressed-tensors", "config_groups": groups})


def test_blocks_larger_than_the_layer_take_no_more_memory_than_it(tmp_path):
    """Scales are repeated for each row or weight of their block, and a file may say that it has 2^62."""
    huge = {**FP8[1], "weight_block_size": [1 << 62, 1 << 62]}
    held = checkpoint(tmp_path, FP8[0] | {"weight_scale_inv": torch.full((1, 1), 0.5)}, huge).source_weight(WEIGHT)
    assert torch.equal(held.dense(), FP8[0]["weight"].float() / 2)
    state = {"shape": [32, 128], "blocksize": 1 << 62, "nested_blocksize": 1 << 62}
    nested = {"weight.absmax": torch.zeros(1).byte(), "weight.nested_absmax": torch.full((1,), 2.0)}
    nested |= {"weight.nested_quant_map": torch.ones(256), STATE: text(state)}
    held = checkpoint(tmp_path, NF4[0] | nested, NF4[1]).source_weight(WEIGHT)
    assert torch.equal(held.dense(), 2 * TABLE[CODES])


@pytest.mark.parametrize("bits", range(1, 9))
def test_fields_of_any_width(bits):
    fields = torch.randint(0, 1 << bits, (5, 37), generator=torch.Generator().manual_seed(bits))
    assert torch.equal(unpack_fields(writers.packed_words(fields, bits), bits, 37).long(), fields)
