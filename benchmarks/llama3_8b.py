"""Decoding with a model of Llama-3-8B's shape and random weights: stock transformers in bf16, and packed layers.

    python benchmarks/llama3_8b.py                        bf16 at 50 %, mxfp4, int4:g32, and with int8 activations
    python benchmarks/llama3_8b.py --layers 4 --json      fewer layers, to see that it works

All linear layers are packed, the output layer too. Records go to standard output with --json, and are otherwise kept
with the machine's others in benchmarks/results. Needs 60 GB of memory with all 32 layers.
"""

import argparse
import json
import sys
from functools import partial

import torch
from rich.progress import Progress
from transformers import LlamaConfig, LlamaForCausalLM

from run import keep
from tilepress.bench.linear import parse_contestant
from tilepress.bench.model import Entrant, Settings, TransformersWriter, measure, steps
from tilepress.bench.model_peers import best_dtype
from tilepress.bench.random_models import packed_model, random_model
from tilepress.records import Record, machine, to_json

CONTESTANTS = ["bf16@50%", "mxfp4", "int4:g32", "int4:g32+int8"]
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contestants", nargs="*", default=CONTESTANTS, help="FORMAT[@DENSITY%%][+ACTIVATIONS]")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the records instead of keeping them")
    arguments = parser.parse_args()
    if best_dtype() != torch.bfloat16:
        parser.error("this processor has no bf16 of its own, so there is nothing honest to compare with")
    records = run(arguments)
    print(to_json(records)) if arguments.json else keep(json.loads(to_json(records)), whole=False)


def run(arguments: argparse.Namespace) -> list[Record]:
    settings = Settings(prompt=arguments.prompt, tokens=arguments.tokens, repeats=arguments.repeats)
    dense = random_model(LlamaConfig(**SHAPE, num_hidden_layers=arguments.layers), torch.bfloat16)
    entrants = [Entrant("transformers bf16", 0, lambda _: TransformersWriter(dense))]
    entrants += [Entrant(name, 0, partial(packed_writer, dense, name), is_peer=False) for name in arguments.contestants]
    with Progress(disable=arguments.json or not sys.stderr.isatty()) as bar:
        task = bar.add_task("loading", total=steps(entrants, settings))
        result = measure(
            entrants, settings, SHAPE["vocab_size"], lambda text: bar.update(task, advance=1, description=text)
        )
    found = []
    for speed in result.speeds:
        name = f"llama3-8b.{arguments.layers}_layers.{speed.name}"
        found += [(f"{name}.prefill", speed.prefill.mean), (f"{name}.decode", speed.decode.mean)]
        found += [(f"{name}.decode.sigma", speed.decode.sigma)]
        if not speed.is_peer:
            ((_, (prefill, decode)),) = result.over(speed).items()
            found += [(f"{name}.prefill.over.bf16", prefill), (f"{name}.decode.over.bf16", decode)]
    command, here = " ".join(["python", *sys.argv]), machine()
    units = ((name, value, "x" if ".over." in name else "tokens/s") for name, value in found)
    return [Record(name, value, unit, "measured", here, command) for name, value, unit in units]


def packed_writer(dense: LlamaForCausalLM, name: str, threads: int) -> TransformersWriter:
    return TransformersWriter(packed_model(dense, parse_contestant(name), threads))


if __name__ == "__main__":
    main()
