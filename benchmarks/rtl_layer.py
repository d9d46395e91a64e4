"""A real linear layer through the papers' hardware alone, in Amaranth's simulator: the bits of `tiles` and `kernels`.

    python benchmarks/rtl_layer.py                                 layer 0's key projection, 192 × 576; minutes
    python benchmarks/rtl_layer.py --neurons 16 --records FILE     its first neurons

DECA's element decompresses the layer in MXFP4 at density 0.5, from its packed bytes in memory to the rows that the core
reads. Anda's compressor and array take what the model gives to the layer for a token of a prompt, and weights int4:g32.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the tests are

import torch
from tests.rtl.anda import layers
from tests.simulate.units.matrices import is_equal

from tilepress import __version__, kernels
from tilepress.models.loading import load_model
from tilepress.records import Record, machine, to_json
from tilepress.rtl.deca import Parameters
from tilepress.rtl.deca.testbench import Job, run
from tilepress.tiles import pack

PROMPT = "The capital of France is"
LAYER = "model.layers.0.self_attn.k_proj"
FORMAT, WEIGHTS, MANTISSA = "mxfp4", "int4:g32", 6
LATENCY = 20  # cycles of each line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--neurons", type=int, default=192)
    parser.add_argument("--records", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    weight, x = _layer(arguments.model)
    records = []
    for unit, through in (("deca-pe", _deca), ("anda-array", _anda)):
        begin = time.monotonic()
        cycles = through(weight[: arguments.neurons], x)
        print(f"{unit}: {cycles} cycles, all equal, {time.monotonic() - begin:.0f} s")
        labels = {"unit": unit, "model": arguments.model, "layer": LAYER, "neurons": arguments.neurons}
        command = f"python benchmarks/rtl_layer.py --model {arguments.model} --neurons {arguments.neurons}"
        records.append(Record("cycles", labels, cycles, "", "simulated", machine(), command, version=__version__))
    if arguments.records:
        arguments.records.write_text(to_json(records) + "\n")


def _layer(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the layer, and FP16 [1, inputs] that it gets for the prompt's last token."""
    loaded, seen = load_model(name, dtype=torch.float32), []
    layer = loaded.model.get_submodule(LAYER)
    layer.register_forward_pre_hook(lambda _, given: seen.append(given[0][0, -1:].half()))
    with torch.inference_mode():
        loaded.model(**loaded.tokenizer(PROMPT, return_tensors="pt"))
    return layer.weight.detach().clone(), seen[0]


def _deca(weight: torch.Tensor, x: torch.Tensor) -> int:
    """Half of the weights, the larger ones."""
    mask = weight.abs() > weight.abs().median()
    matrix = pack(weight, FORMAT, mask=mask, operand_bits=16)
    (result,) = run(Parameters(32, 8, (FORMAT,)), [Job(matrix, lambda tile, line: LATENCY)])
    assert is_equal(matrix, result.values), "DECA's rows differ from tiles.unpack"
    return result.finished[-1] + 1


def _anda(weight: torch.Tensor, x: torch.Tensor) -> int:
    matrix = pack(weight, WEIGHTS)
    totals, cycles = layers.linear(x, matrix, MANTISSA)
    expected = kernels.linear(x.float(), matrix, activations=f"bfp:g32:m{MANTISSA}")
    assert torch.equal(totals.view(torch.int32), expected.view(torch.int32)), "Anda's sums differ from kernels.linear"
    return sum(cycles)


if __name__ == "__main__":
    main()
