"""How much memory compression takes, measured in processes of their own."""

import json
import os
import subprocess
import sys

import pytest
from torch import nn

from tests.models import tiny
from tilepress.models.memory import working_set
from tilepress.models.recipe import read_recipe

# Memory is given back when it is freed, as that of large layers always is: these are small enough to be kept for reuse,
# by glibc in arenas of its threads, or by mimalloc, which some builds of torch bring along.
EXACT = {
    "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0", "MIMALLOC_ARENA_RESERVE": "0", "MIMALLOC_PURGE_DELAY": "0",
}  # fmt: skip
MEASURE = """
import gc, json, sys
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from tilepress.models import compress_model, read_recipe
from tilepress.models.compress import Compression, MemoryStorage
from tilepress.models.memory import healing_set, working_set

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

def llama(hidden, intermediate, dtype):
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": 1, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=8))
    return model.to(getattr(torch, dtype)).eval()

windows = torch.randint(64, (4, 32))
for sizes, recipe in json.load(sys.stdin):
    recipe = read_recipe(recipe)
    with torch.no_grad():
        llama(64, 64, "float32")(windows)  # what torch and transformers load on first use is not ours
    compress_model(nn.Sequential(nn.Linear(64, 64)), recipe, windows=torch.randn(4, 8, 64))
    model = None
    gc.collect()  # the model before
    model = llama(*sizes)
    heals = recipe.weights.heal > 0
    working = healing_set(model, recipe) if heals else working_set(model, recipe)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts anew
    before = status("VmRSS")
    if heals:
        compress_model(model, recipe, windows=windows)
    else:
        Compression(model, recipe, windows, MemoryStorage()).run()
    print(json.dumps([status("VmHWM") - before, working, status("VmRSS") - before]))
"""
ROUNDING = {"format": "e4m3"}
GPTQ = {"quantize": "gptq"}
SPARSE = {"prune": "sparsegpt", "density": 0.5, "format": "bf16"}


@pytest.fixture(scope="module")
def measured():
    """Method, type → (bytes at the peak beside the model as loaded, of the working set, at the end beside …)."""
    cases = {
        ("rtn", "float32"): ([1024, 4096], ROUNDING),  # 67 MB of weights
        ("rtn", "bfloat16"): ([1024, 4096], ROUNDING),
        ("gptq", "bfloat16"): ([512, 1024], GPTQ),
        ("sparsegpt", "float32"): ([512, 1024], SPARSE),
        ("reconstruct", "float32"): ([512, 2048], ROUNDING | {"reconstruct": 2, "embedding": "keep"}),
        ("heal", "float32"): ([512, 2048], ROUNDING | {"heal": 2, "embedding": "keep"}),
    }
    calibration = {"sequences": 4, "length": 32}
    given = [
        ([*sizes, dtype], {"weights": weights, "calibration": calibration})
        for (_, dtype), (sizes, weights) in cases.items()
    ]
    command, environment = [sys.executable, "-c", MEASURE], os.environ | EXACT
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rounding_to_nearest(measured, dtype):
    peak, working, after = measured["rtn", dtype]
    assert working == 4 * 1024 * 4096 and peak <= 3 * working
    assert after < 0  # what has been packed is let go


@pytest.mark.parametrize("case", [("gptq", "bfloat16"), ("sparsegpt", "float32")])
def test_methods_with_a_hessian(measured, case):
    peak, working, _ = measured[case]
    assert working == 4 * (4 * 512**2 + 3 * 512 * 1024 + 512**2 + 1024**2 + 4 * 32 * 512) and peak <= 3 * working


def test_training(measured):
    """Of a block, and of the whole model with the dense one beside it."""
    weights, kept = 4 * 512**2 + 3 * 512 * 2048, 2 * 32 * (8 * 512 + 3 * (512 + 2048))
    peak, working, _ = measured["reconstruct", "float32"]
    assert working == 4 * (4 * weights + kept + 2 * 4 * 32 * 512) and peak <= 3 * working
    peak, working, _ = measured["heal", "float32"]
    every = weights + 2 * 64 * 512 + 3 * 512
    assert working == 4 * (2 * every + 3 * weights + kept + 4 * 2 * 32 * 64) and working < peak <= 3 * working


def test_the_working_set_is_of_the_layers_that_are_compressed():
    model = tiny.make("llama")
    block = 4 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128)
    assert working_set(model, read_recipe({})) == 4 * 64 * 128
    calibration = {"sequences": 2, "length": 8}
    wanda = {"weights": {"prune": "wanda", "density": 0.5}, "calibration": calibration}
    assert working_set(model, read_recipe(wanda)) == block + 4 * 16 * 64
    gptq = {"weights": {"quantize": "gptq"}, "calibration": calibration}
    assert working_set(model, read_recipe(gptq)) == block + 4 * (16 * 64 + 64**2 + 128**2)
    smooth = {"kv_cache": {"format": "bfp4", "smoothing": "offline"}, "calibration": calibration}
    assert working_set(model, read_recipe(smooth)) == block + 4 * 16 * 64 + 4 * 4 * 4 * 8**2
    head = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 32))
    assert working_set(head, read_recipe({})) == 4 * 8 * 32
