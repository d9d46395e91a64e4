"""Memory that `tilepress compress` takes for a folder of Llama-3-8B's shape with random weights in bf16.

    python benchmarks/streaming_memory.py FOLDER                     4 and 8 blocks, by rtn and by gptq
    python benchmarks/streaming_memory.py FOLDER --blocks 2 --methods rtn --json

One block is in memory at a time, so the peak should not depend on how many there are: two sizes show that. Models and
results are written to FOLDER, which is made, and stay there: 3.8 GB with 4 blocks, 16 GB with all 32. Each command runs
in a process of its own, whose highest resident memory the system tells. Records go to standard output with --json, and
are otherwise kept with the machine's other results in benchmarks/results.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from llama3_8b import SHAPE
from run import keep
from tilepress import __version__
from tilepress.records import Labels, Record, machine, to_json

GB = 1e9
LIMIT = 6.0  # GB
WORDS = 20_000  # of the text to calibrate with
RECIPE = ["--weights", "int4:g32", "--acts", "int8"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where models and results are written")
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 8], help="how many blocks the models have")
    parser.add_argument("--methods", nargs="+", default=["rtn", "gptq"], help="how weights are rounded")
    parser.add_argument("--sequences", type=int, default=8, help="windows that gptq looks at")
    parser.add_argument("--length", type=int, default=512, help="tokens of a window")
    parser.add_argument("--json", action="store_true", help="print the records instead of keeping them")
    arguments = parser.parse_args()
    records = []
    for blocks, method in product(arguments.blocks, arguments.methods):
        source = write_model(arguments.folder / f"llama-{blocks}", blocks)
        windows = arguments.sequences, arguments.length
        made = measure(source, arguments.folder / f"{method}-{blocks}", blocks, method, windows)
        print(f"{blocks} blocks, {method}: {made[0].value:.2f} GB, {made[1].value:.0f} s", file=sys.stderr, flush=True)
        records += made
    print(to_json(records)) if arguments.json else keep(records, whole=False)


def write_model(folder: Path, blocks: int) -> Path:
    """A folder with one file for each block and one for the rest, written tensor by tensor from random numbers; as it
    is if it is there."""
    if (folder / "model.safetensors.index.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = LlamaConfig(
        **SHAPE, num_hidden_layers=blocks, dtype="bfloat16", architectures=["LlamaForCausalLM"], bos_token_id=0
    )
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in LlamaForCausalLM(config).state_dict().items()}
    files: dict[str, str] = {}
    for file, names in _grouped(shapes, blocks).items():
        save_file({name: _random(name, shapes[name]) for name in names}, folder / file, {"format": "pt"})
        files |= dict.fromkeys(names, file)
    config.save_pretrained(folder)
    _write_words(folder)
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))  # last: it says that all is there
    return folder


def measure(source: Path, out: Path, blocks: int, method: str, windows: tuple[int, int]) -> list[Record]:
    """Compress in another process: its highest resident memory, and the time it took."""
    for left in (out, out.with_name(out.name + ".partial")):
        shutil.rmtree(left, ignore_errors=True)
    recipe = [*RECIPE, "--quantize", method]
    if method != "rtn":
        sequences, length = map(str, windows)
        recipe += ["--calibration", str(source / "words.txt"), "--sequences", sequences, "--length", length]
    command = ["tilepress", "compress", str(source), "-o", str(out), *recipe]
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    calibration = "none" if method == "rtn" else "x".join(map(str, windows))
    labels = Labels(model="llama3-8b", blocks=blocks, quantize=method, calibration=calibration, recipe=" ".join(RECIPE))
    here, said = machine(), " ".join(["python", *sys.argv])
    return [
        Record("peak_memory", labels, usage.ru_maxrss * 1024 / GB, "GB", "measured", here, said, version=__version__),
        Record("compress", labels, time.monotonic() - start, "s", "measured", here, said, version=__version__),
    ]


def _grouped(shapes: dict[str, tuple[int, ...]], blocks: int) -> dict[str, list[str]]:
    """File → names of the tensors in it."""
    groups: dict[str, list[str]] = {}
    for name in shapes:
        parts = name.split(".")
        number = int(parts[2]) + 1 if parts[1] == "layers" else blocks + 1
        groups.setdefault(f"model-{number:05d}-of-{blocks + 1:05d}.safetensors", []).append(name)
    return groups


def _random(name: str, shape: tuple[int, ...]) -> Tensor:
    """bf16 numbers of a layer's size, those of a norm near 1; drawn in bf16, so that no float32 copy is made."""
    drawn = torch.empty(shape, dtype=torch.bfloat16).normal_(generator=torch.Generator().manual_seed(len(name)))
    return drawn.mul_(0.02).add_(1) if len(shape) == 1 else drawn.mul_(shape[-1] ** -0.5)


def _write_words(folder: Path) -> None:
    """A tokenizer of whole words, as many as the model has tokens, and a text of them."""
    words = {word: number for number, word in enumerate(_words(SHAPE["vocab_size"]))}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="w0").save_pretrained(folder)
    drawn = torch.randint(0, SHAPE["vocab_size"], (WORDS,), generator=torch.Generator().manual_seed(0))
    (folder / "words.txt").write_text(" ".join(f"w{number}" for number in drawn.tolist()))


def _words(count: int) -> Iterator[str]:
    return (f"w{number}" for number in range(count))


if __name__ == "__main__":
    main()
