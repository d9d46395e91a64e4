"""Tokens per second of compressed models in vLLM, beside vLLM's own ways to compute the same shape.

    python benchmarks/in_vllm.py FOLDER                  SmolLM2-135M's shape; in an environment of `make vllm`
    python benchmarks/in_vllm.py FOLDER --shape 1b       that of Llama-3.2-1B with 32,000 tokens
    python benchmarks/in_vllm.py FOLDER --json

Weights are random: speed does not know the difference. Models are written to FOLDER, once. Each is served in a process
of its own, without `torch.compile`. Prompt: the time to a first token of prompts that no cache knows. Decode: what the
tokens after the first take. The best of the repeats counts, for every model alike. Records are kept in
benchmarks/results/vllm.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from run import processor, write
from tilepress import __version__
from tilepress.bench.random_models import random_model
from tilepress.models import compress_model
from tilepress.models.export import export_folder
from tilepress.records import Labels, Record, machine, to_json

RESULTS = Path(__file__).parent / "results/vllm"
SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
ONE_BILLION = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
SHAPES = {"smollm2-135m": SMOLLM2, "1b": ONE_BILLION}
INT8 = {"weights": {"format": "int8:row", "clip_search": False}, "activations": {"format": "int8"}}
INT4 = {"weights": {"format": "int4:g32", "clip_search": False}}
RECIPES = {"int8:row+int8": INT8, "int4:g32": INT4, "int4:g32+int8": {**INT4, "activations": {"format": "int8"}}}
EXPORTED = {"W8A8": "int8:row+int8", "W4A16": "int4:g32"}  # compressed-tensors, which vLLM's own kernels compute
DTYPES = ("bfloat16", "float32")
PROMPT, TOKENS, SHORT = 512, 32, 16
BATCHES = (1, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where models are written")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--models", nargs="+", default=["dense", *EXPORTED, *RECIPES])
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="only write the models")
    parser.add_argument("--json", action="store_true", help="print the records instead of keeping them")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        print(json.dumps(list(measure(*arguments.serve, arguments.repeats))))
        return
    models = {name: written(arguments.folder / arguments.shape, name, arguments.shape) for name in arguments.models}
    if arguments.write:
        return
    records = [record for dtype in arguments.dtypes for record in measured(models, dtype, arguments)]
    if arguments.json:
        print(to_json(records))
        return
    write(RESULTS / f"{datetime.date.today()}-{processor()}-{arguments.shape}.json", records)


def written(folder: Path, name: str, shape: str) -> Path:
    """The folder of a model; made, if it is not there."""
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if name in EXPORTED:
            export_folder(written(folder, EXPORTED[name], shape), path, "compressed-tensors")
        else:
            model = random_model(LlamaConfig(**SHAPES[shape]), torch.bfloat16)
            model.tie_weights()
            made = model if name == "dense" else compress_model(model, RECIPES[name])
            made.save_pretrained(path)
    return path


def measured(models: dict[str, Path], dtype: str, arguments: Any) -> Iterator[Record]:
    """Records of every model, each in another process."""
    words = ["FOLDER" if word == str(arguments.folder) else word for word in sys.argv]
    here, said = machine(), " ".join(["python", *words])
    for name, path in models.items():
        of = Labels(model=name, dtype=dtype, shape=arguments.shape)
        load = os.getloadavg()[0]  # what else the machine did, before
        yield Record("load_average", of, load, "threads", "measured", here, said, version=__version__)
        options = [str(arguments.folder), "--repeats", str(arguments.repeats), "--serve", str(path), dtype]
        for metric, batch, value in served(options):
            labels = Labels(of, batch=batch, peer=peer(name))
            print(f"{labels}: {metric} {value:.1f} tokens/s", file=sys.stderr, flush=True)
            yield Record(metric, labels, value, "tokens/s", "measured", here, said, version=__version__)


def peer(name: str) -> str:
    """Whose kernels compute the linear layers."""
    return "tilepress" if name in RECIPES else "vllm"


def served(options: Sequence[str]) -> list[tuple[str, int, float]]:
    """What another process measures; nothing where vLLM refuses the model."""
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run([sys.executable, __file__, *options], capture_output=True, text=True, env=environment)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return []
    figures: list[tuple[str, int, float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(model: str, dtype: str, repeats: int) -> Iterator[tuple[str, int, float]]:
    """Metric, batch and tokens per second of all sequences together."""
    llm = engine(model, dtype)
    seconds(llm, BATCHES[-1], SHORT, 2)
    for batch in BATCHES:
        prompt = min(seconds(llm, batch, PROMPT, 1) for _ in range(repeats))
        yield "prompt_rate", batch, batch * PROMPT / prompt
        first = min(seconds(llm, batch, SHORT, 1) for _ in range(repeats))
        whole = min(seconds(llm, batch, SHORT, 1 + TOKENS) for _ in range(repeats))
        yield "decode_rate", batch, batch * TOKENS / (whole - first)


def engine(model: str, dtype: str) -> Any:
    from vllm import LLM

    limits = {"max_model_len": 1024, "max_num_seqs": BATCHES[-1], "max_num_batched_tokens": BATCHES[-1] * PROMPT}
    options = {"enforce_eager": True, "enable_prefix_caching": False, "skip_tokenizer_init": True}
    return LLM(model, dtype=dtype, **limits, **options)


def seconds(llm: Any, batch: int, prompt: int, tokens: int) -> float:
    """That `batch` random prompts take, with so many tokens written after each."""
    from vllm import SamplingParams

    ids = torch.randint(3, 32000, (batch, prompt)).tolist()
    asked = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    llm.generate([{"prompt_token_ids": one} for one in ids], asked, use_tqdm=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
