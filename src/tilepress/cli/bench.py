"""`tilepress bench`: timings, against this machine's measured limit."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import need_lab
from . import bench_attention, bench_linear, bench_model, bench_serve, bench_threads
from .busy import Strict, Watch
from .completion import models as completed_models
from .completion import weight_formats
from .output import (
    Json,
    Recorder,
    TextOnly,
    Threads,
    TrustRemoteCode,
    WriteCard,
    print_table,
    progress,
)

if TYPE_CHECKING:
    import torch

DEFAULT_FORMATS = ["int4:g32", "int8:row", "mxfp4", "e4m3", "bf16"]
DEFAULT_CONTESTANTS = [
    "int4:g32+int8",
    "int4:g32",
    "mxfp4",
    "e4m3",
    "bf16@50%",
    "int8:row+int8",
    "int8:row@50%+int8",
    "int4:g32@50%+int8",
]
DEFAULT_SWEEP = ["int8:row+int8", "int4:g32+int8"]


class Dtype(StrEnum):
    """Type of the activations; auto: bfloat16 where the processor multiplies it, else float32."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure speed on this machine."""


@app.command()
def pack(
    formats: Annotated[
        list[str] | None, typer.Argument(autocompletion=weight_formats, help="Formats to measure.")
    ] = None,
    neurons: Annotated[int, typer.Option(min=1, help="Rows of the matrix.")] = 14336,
    inputs: Annotated[int, typer.Option(min=1, help="Columns of the matrix.")] = 4096,
    density: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of weights that are not zero; 1 is dense.")
    ] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Runs; the median counts.")] = 5,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time packing and unpacking of one matrix, with the memory that packing takes at its peak.

    The input is bfloat16. Peak memory is what the process grew by while packing, as a multiple of the packed size;
    the input is not in it.

    Example: tilepress bench pack int4:g32 mxfp4 --density 0.5
    """
    from ..bench.packing import measure_packing

    recorder, rows = Recorder(), []
    with progress(json) as bar:
        for format in bar.track(formats or DEFAULT_FORMATS, description="packing"):
            figures = measure_packing(format, neurons, inputs, density, repeats, threads)
            for metric, value, unit in figures:
                recorder.add(metric, value, unit, format=format, shape=f"{neurons}x{inputs}", density=density)
            rows.append([format, *(f"{value:.3f}" for _, value, _ in figures)])
    if json:
        recorder.print_json()
    else:
        columns = ["format", "pack, s", "unpack, s", "size, MB", "peak memory, × size"]
        print_table(f"{neurons}×{inputs}, density {density:g}", columns, rows)


@app.command()
def planes(
    mantissas: Annotated[
        list[int] | None, typer.Argument(min=1, max=16, help="Bits of magnitude to measure; all if none are given.")
    ] = None,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of the tensor in float16.")] = 256,
    repeats: Annotated[int, typer.Option(min=1, help="Runs; the median counts.")] = 5,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time float16 activations to bit planes of block floating point and back.

    Groups of 64 values share an exponent, as in Anda. GB/s counts bytes of float16, for each thread; the share is of
    the read bandwidth of as many threads, measured in the same run.

    Example: tilepress bench planes 4 7 13 --threads 1
    """
    from ..bench.planes import measure_planes

    recorder, rows = Recorder(), []
    with progress(json) as bar:
        for mantissa in bar.track(mantissas or range(1, 17), description="bit planes"):
            rates = measure_planes(mantissa, megabytes * 1000**2, repeats, threads)
            for metric, value, unit in rates.figures:
                recorder.add(metric, value, unit, format=str(rates.format))
            recorder.add("kernel", f"pack_planes_fp/{rates.isa}", format=str(rates.format))
            rows.append([str(rates.format), rates.isa, *(f"{value:.2f}" for _, value, _ in rates.figures)])
    if json:
        recorder.print_json()
    else:
        columns = ["format", "kernel", "pack, GB/s", "unpack, GB/s", "pack/read", "unpack/read", "bits a value"]
        print_table(f"{megabytes} MB of float16, each thread", columns, rows, words=2)


@app.command()
def threads(
    company: Annotated[
        int | None, typer.Option(min=1, help="Busy processes to run beside a whole model; needs --model.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(autocompletion=completed_models, help="The compressed model for --company.")
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="With --company: tokens of the prompt.")] = 121,
    tokens: Annotated[int, typer.Option(min=2, help="With --company: tokens to write after it.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts, or with --company the mean.")] = 7,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time a loop that alternates a torch layer and one of ours, or with --company a model beside busy processes.

    Both layers run on the same OpenMP threads. Were they two pools, each would wait for cores that the other's idle
    threads keep busy, and alternating would take several times the sum.

    With --company the model, transformers and llama.cpp are timed alone and beside so many processes that compute all
    the time. As many as there are cores leave half of the machine: 50 % of the idle rate would be a fair share.

    Example: tilepress bench threads --company 2 --model small
    """
    from ..bench.model import Settings

    if company is None:
        return bench_threads.alternate(rounds, threads, json)
    settings = Settings(prompt, tokens, repeats=rounds, threads=threads)
    bench_threads.accompany(model, company, settings, json)


@app.command()
def linear(
    contestants: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=weight_formats, help="FORMAT\\[@DENSITY%]\\[+ACTIVATIONS]: int4:g32, int8:row@50%+int8, …"
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="NEURONSxINPUTS, llama3-8b, smollm2 or llama2-70b-fc; may be repeated."),
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Rows of activations; may be repeated.")] = None,
    dtype: Annotated[Dtype, typer.Option(help="Type of the activations.")] = Dtype.auto,
    predict: Annotated[
        bool, typer.Option("--predict", help="Also what counted operations and measured limits predict.")
    ] = False,
    strict: Strict = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Each contestant dense and at 50, 30, 20 and 10 %.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Whether to measure peers beside them; a sweep never does.")
    ] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Calls at most; the median counts.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for the calls of one contestant at one batch.")] = 0.25,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time linear layers on packed weights beside other people's, interleaved in one run.

    Activations are taken as they are, or made into int8 or block floating point (bfp:g32:m8) on the way. GB/s counts
    the bytes of the weights as stored; the share is of the read bandwidth of long passes over memory in the same run; ×
    is how many times as long a peer takes, or threads that do nothing but read as many bytes. Weights rotate through
    four times the last-level cache. A peer that has no real kernel here is refused. Shapes of 4096x4096 and a batch of
    1 if none are given.

    Example: tilepress bench linear int4:g32+int8 bf16@50% --shape llama3-8b --batch 1 --batch 16
    """
    if predict:
        need_lab("`tilepress bench linear --predict`")
    elif strict:
        raise ValueError("--strict refuses predictions on a busy machine: it goes with --predict")
    from ..bench.linear import Settings, parse_contestant
    from ..bench.shapes import parse_shapes

    given = contestants or (DEFAULT_SWEEP if sweep else DEFAULT_CONTESTANTS)
    specs = list(dict.fromkeys(map(parse_contestant, given)))
    shapes = parse_shapes(shape or ["4096x4096"])
    batches = list(dict.fromkeys(batch or [1]))
    settings = Settings(batches, torch_dtype(dtype), repeats, seconds, threads, peers=peers and not sweep)
    run = bench_linear.sweep_densities if sweep else bench_linear.compare
    run(shapes, specs, settings, Watch(strict) if predict else None, json)


@app.command()
def model(
    models: Annotated[
        list[str],
        typer.Argument(
            autocompletion=completed_models,
            help="Folders, GGUF files, smollm2-135m, or names on the hub; compressed or not.",
        ),
    ],
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 121,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens to write after it.")] = 32,
    depth: Annotated[
        list[str] | None, typer.Option(help="Other lengths of prompts to decode after, 1024,4096 say.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Sequences at once; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs, for mean and standard deviation.")] = 3,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Whether to measure peers beside them.")] = True,
    base: Annotated[
        str | None, typer.Option(help="The model that peers run; the first MODEL that is not compressed.")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Type of what is not packed.")] = Dtype.auto,
    kv: Annotated[
        list[str] | None,
        typer.Option(
            help="KV cache of the MODELs: bfp4n+rotate, sparse:k30,v50 …; may be repeated; if none, what they remember"
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    write_card: WriteCard = False,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time whole models: prefill and decoding, beside transformers, torch's int8 and int4 layers, and llama.cpp.

    Each model writes with `generate`, without sampling: prefill is the prompt's tokens over the time to the first new
    one, decoding the rate of those after it, for all sequences together. A depth is the number of tokens in the cache
    when decoding begins. All take turns with the same threads. The share is of the memory limit: bytes of weights that
    a step reads, times steps a second, over the read bandwidth measured in the same run. × is how many times as fast as
    the first peer it decodes; records hold the ratios to all. A peer without a real kernel here is refused. With --kv
    the peers' small caches take part: transformers' quantized ones, and llama.cpp's q8_0 and q4_0.

    Example: tilepress bench model small smollm2-135m --depth 1024,4096 --kv bfp4n+rotate --kv sparse:k30,v50
    """
    from ..bench.model import Settings
    from ..models.checkpoint_checks import Allowed

    settings = Settings(prompt, tokens, bench_model.depths(depth), batch or (1,), repeats, threads)
    kind = None if dtype is Dtype.auto else torch_dtype(dtype)
    names, caches, allowed = dict.fromkeys(models), dict.fromkeys(kv or ()), Allowed(trust_remote_code, text_only)
    bench_model.compare(list(names), settings, kind, base, peers, json, list(caches), allowed, write_card)


@app.command()
def attention(
    heads: Annotated[
        list[str] | None, typer.Argument(help="Heads: llama3-8b, smollm2, or QUERIES/KEYSxCHANNELS; both models.")
    ] = None,
    kv: Annotated[
        list[str] | None, typer.Option(help="A small cache: bfp4n+rotate, bfp8, sparse:k30,v50 …; may be repeated.")
    ] = None,
    depth: Annotated[
        list[str] | None, typer.Option(help="Tokens in the cache, 1024,4096 say; 1K, 4K, 16K and 32K if not given.")
    ] = None,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Time prompts of so many tokens instead; 512, 2K and 8K if not given.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Steps, or prompts; the median counts.")] = 25,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Whether to measure torch beside it.")] = True,
    dtype: Annotated[
        Dtype, typer.Option(help="Type of torch's cache; auto: float32, and bfloat16 where the processor has it.")
    ] = Dtype.auto,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time the attention of a token over a long cache: small ones, and torch's, taking turns with the same threads.

    A step adds the token and attends to all. Caches are rotated through four times the last-level cache. The share is
    of the memory limit: bytes of the cache over the time of a step, over the read bandwidth measured in the same run.

    With --prompt all tokens come at once, to an empty cache, and each attends to those up to it.

    × is how many times as fast as the faster of torch's it is.

    Example: tilepress bench attention llama3-8b --depth 4096,16384 --kv bfp4n+rotate --kv sparse:k30,v50
    """
    import torch

    from ..bench.attention import DEPTHS, FORMATS, MODELS, PROMPTS, Settings
    from ..bench.model_peers import bfloat16_refusal

    reason = bfloat16_refusal() if dtype is Dtype.auto else None
    auto = [torch.float32] if reason else [torch.float32, torch.bfloat16]
    dtypes = auto if dtype is Dtype.auto else [torch_dtype(dtype)]
    depths = bench_model.depths(depth) or (PROMPTS if prompt else DEPTHS)
    settings = Settings(kv or FORMATS, depths, dtypes, repeats, peers, threads, prompt)
    refused = {"torch SDPA bfloat16": reason} if reason and peers else {}
    bench_attention.compare(heads or list(MODELS), settings, refused, json)


@app.command()
def serve(
    model: Annotated[
        str,
        typer.Argument(autocompletion=completed_models, help="A model, or a server's address: http://127.0.0.1:8000."),
    ],
    kv: Annotated[
        str | None, typer.Option(help="KV cache of the engine; what the model remembers, else bfp8, if not given.")
    ] = None,
    kv_memory: Annotated[str, typer.Option(help="Memory for keys and values, like 4 GiB.")] = "4 GiB",
    disconnect: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Of a server: share of requests whose client goes in the middle.")
    ] = 0.0,
    slow: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Of a server: share whose client reads 10 parts a second at most.")
    ] = 0.0,
    check: Annotated[
        int, typer.Option(min=0, help="Of a server: answers to ask for again at the end, each alone, and compare.")
    ] = 0,
    requests: Annotated[int, typer.Option(min=1, help="Requests to serve.")] = 64,
    rate: Annotated[float | None, typer.Option(help="Requests a second: they come as a Poisson process.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests in flight all the time; 8 if there is no --rate.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="Tokens of a prompt, 128 say, or a range: 32-512.")] = "128",
    tokens: Annotated[str, typer.Option(help="Tokens of an answer, 64 say, or a range: 16-128.")] = "64",
    prefix: Annotated[int, typer.Option(min=0, help="All prompts begin with the same so many tokens.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of lengths, tokens and arrivals.")] = 0,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    json: Json = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the results to this HTML page.")] = None,
    threads: Threads = None,
) -> None:
    """Time many requests served at once by one engine: how long each waits for its tokens, and tokens a second.

    Prompts are random tokens, and answers have the tokens that they shall have, without sampling. Requests come at a
    --rate, whether those before are finished or not, or are as many as --concurrency says at any time. A model's are
    submitted in this process: there is no network, and a token's time is the end of the step that computed it; the time
    to the first one includes waiting. A server, any that streams OpenAI's completions, is asked by a connection for
    each request, and a token's time is that of the event with its text.

    Percentiles are over all requests; those of the time between tokens are over all pairs of neighbours in an answer.
    Scheduling is what steps do outside the model. After an interrupt, what was measured until then is shown.

    Example: tilepress bench serve smollm2-135m --rate 4 --prompt 32-512 --tokens 16-128
    Example: tilepress bench serve smollm2-135m --concurrency 16 --prefix 96 --html served.html
    Example: tilepress bench serve http://127.0.0.1:8000 --concurrency 100 --disconnect 0.2
    """
    from ..bench.arrivals import Lengths, Load
    from ..bench.server_load import Clients
    from ..models.checkpoint_checks import Allowed

    load = Load(
        requests=requests,
        rate=rate,
        concurrency=8 if rate is None and concurrency is None else concurrency,
        prompt=Lengths.parse(prompt),
        tokens=Lengths.parse(tokens),
        prefix=prefix,
        seed=seed,
    )
    if bench_serve.is_server(model):
        if kv or threads:
            raise ValueError("--kv and --threads are of an engine in this process, not of a server: leave them out")
        bench_serve.ask_server(model, load, Clients(disconnect, slow, check), json, html)
        return
    if disconnect or slow or check:
        raise ValueError("--disconnect, --slow and --check are of clients of a server: give its address, not a model")
    bench_serve.serve(model, load, kv, kv_memory, threads, Allowed(trust_remote_code, text_only), json, html)


def torch_dtype(dtype: Dtype) -> "torch.dtype":
    """The type that activations have by this name on this machine."""
    import torch

    from ..kernels import cpu_features

    if dtype is Dtype.auto:
        return torch.bfloat16 if {"avx512_bf16", "amx_bf16"} & set(cpu_features()) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype.value]
