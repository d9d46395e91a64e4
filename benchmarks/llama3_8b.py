"""Decoding with a model of Llama-3-8B's shape and random weights: stock transformers in bf16, and packed layers.

    python benchmarks/llama3_8b.py                        bf16 at 50 %, mxfp4, int4:g32, and with int8 activations
    python benchmarks/llama3_8b.py int4:g32+int8 --prompt 512 2048 --batch 1 16 --no-peer
    python benchmarks/llama3_8b.py --layers 4 --json      fewer layers, to see that it works

All linear layers are packed, the output layer too. Records go to standard output with --json, and are otherwise kept
with the machine's other results in benchmarks/results. Needs 60 GB of memory with all 32 layers.
"""

import argparse
import sys
from functools import partial

import torch
from rich.progress import Progress
from transformers import LlamaConfig, LlamaForCausalLM

from run import keep
from tilepress import __version__
from tilepress.bench.engine_writer import writer
from tilepress.bench.linear import Contestant, parse_contestant
from tilepress.bench.model import Entrant, Settings, TransformersWriter, Writer, measure, steps
from tilepress.bench.model_peers import best_dtype
from tilepress.bench.random_models import packed_model, random_model
from tilepress.records import Label, Labels, Record, machine, to_json

STOCK = "transformers bf16"
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
    parser.add_argument("--prompt", type=int, nargs="+", default=[128], help="tokens of the prompts")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="sequences at once")
    parser.add_argument("--no-peer", action="store_true", help="without stock transformers")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the records instead of keeping them")
    arguments = parser.parse_args()
    if best_dtype() != torch.bfloat16:
        parser.error("this processor has no bf16 of its own, so there is nothing honest to compare with")
    records = run(arguments)
    print(to_json(records)) if arguments.json else keep(records, whole=False)


def run(arguments: argparse.Namespace) -> list[Record]:
    first, *more = arguments.prompt
    settings = Settings(first, arguments.tokens, more, arguments.batch, arguments.repeats)
    dense = random_model(LlamaConfig(**SHAPE, num_hidden_layers=arguments.layers), torch.bfloat16)
    stock = Entrant(STOCK, 0, lambda _: TransformersWriter(dense), labels=Labels(library=STOCK))
    entrants = [] if arguments.no_peer else [stock]
    for contestant in map(parse_contestant, arguments.contestants):
        load = partial(packed_writer, dense, contestant)
        entrants.append(Entrant(str(contestant), 0, load, is_peer=False, labels=contestant.labels))
    with Progress(disable=arguments.json or not sys.stderr.isatty()) as bar:
        task = bar.add_task("loading", total=steps(entrants, settings))
        result = measure(
            entrants, settings, SHAPE["vocab_size"], lambda text: bar.update(task, advance=1, description=text)
        )
    command, here, records = " ".join(["python", *sys.argv]), machine(), []

    def add(metric: str, value: float, unit: str, **labels: Label) -> None:
        known = {"model": "llama3-8b", "layers": arguments.layers}
        records.append(Record(metric, {**known, **labels}, value, unit, "measured", here, command, version=__version__))

    for speed in result.speeds:
        at: dict[str, Label] = {**speed.labels, "prompt": speed.point.depth, "batch": speed.point.batch}
        add("prefill", speed.prefill.mean, "token/s", **at)
        add("decode", speed.decode.mean, "token/s", **at)
        add("decode", speed.decode.sigma, "token/s", **at, statistic="standard_deviation")
        for peer, (prefill, decode) in result.over(speed).items() if not speed.is_peer else ():
            add("prefill_speedup", prefill, "x", **at, peer=peer)
            add("decode_speedup", decode, "x", **at, peer=peer)
    return records


def packed_writer(dense: LlamaForCausalLM, contestant: Contestant, threads: int) -> Writer:
    return writer(packed_model(dense, contestant, threads), threads=threads)


if __name__ == "__main__":
    main()
