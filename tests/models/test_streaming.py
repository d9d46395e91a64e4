"""A model larger than the memory that there is, in several files."""

import os
import subprocess
import sys

from tests.models import tiny
from tilepress.models import load_model

STREAM = """
import resource, sys
import torch
from tilepress.models import compress_folder

small, large, nbytes, recipe = sys.argv[1], sys.argv[2], int(sys.argv[3]), {"weights": {"format": "e4m3"}}
compress_folder(small, small + ".out", recipe)  # what is loaded on first use is not the model's
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + nbytes, used + nbytes))
outcome = compress_folder(large, large + ".out", recipe)
assert outcome.source_bytes > 2 * nbytes, outcome.source_bytes
try:
    torch.empty(outcome.source_bytes, dtype=torch.uint8)
    print("there was no limit")
except RuntimeError:
    print("compressed", len(outcome.layers))
"""
LIMIT = 64 << 20
# Where torch brings mimalloc along, that must take memory as it needs it, not a gigabyte at first that is not counted.
# And malloc must give back what a layer of this size took for a moment, as it does for layers of any real size.
COUNTED = {
    "OMP_NUM_THREADS": "2",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 18),
    "MIMALLOC_ARENA_RESERVE": "0",
    "MIMALLOC_PURGE_DELAY": "0",
}
SIZES = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 10, "initializer_range": 0.02}


def test_a_model_is_streamed_through_half_the_memory_it_takes(tmp_path):
    small, _ = tiny.save(tmp_path / "small")
    large = tmp_path / "large"
    tiny.make("llama", **SIZES).save_pretrained(large, max_shard_size="20MB")
    tiny.tokenizer().save_pretrained(large)
    assert len(list(large.glob("*.safetensors"))) > 4
    command = [sys.executable, "-c", STREAM, str(small), str(large), str(LIMIT)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | COUNTED)
    assert done.stdout == "compressed 71\n", done.stderr
    assert load_model(f"{large}.out").model(tiny.windows()).logits.isfinite().all()
