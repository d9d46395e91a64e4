"""`tilepress serve`: an OpenAI-compatible server."""

import logging
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import need_serve
from .._sizes import size_in_bytes
from .completion import models as completed_models
from .output import Ranks, TextOnly, Threads, TrustRemoteCode, hush_transformers

if TYPE_CHECKING:
    from ..serve.keys import Keys


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completed_models, help="Models; the first one is the default of requests."),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODEL", help="A model by a name of yours; may be given several times."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is one that is free.")] = 8000,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keys that may ask, one a line: KEY or NAME:KEY.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin of web pages that may ask; several times.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory for all models, weights and caches, like 32 GiB; idle ones are dropped.")
    ] = None,
    kv: Annotated[str | None, typer.Option(help="KV cache; what the model remembers, else bfp8, if not given.")] = None,
    kv_memory: Annotated[str, typer.Option(help="Memory for keys and values of each model, like 4 GiB.")] = "4 GiB",
    smoothing: Annotated[str | None, typer.Option(help="Of keys in a bfp cache: none or online.")] = None,
    lookup: Annotated[
        int, typer.Option(min=0, help="Guess so many tokens a step from the text before; answers stay the same.")
    ] = 0,
    longest: Annotated[
        int | None, typer.Option(min=2, help="Tokens of prompt and answer at most; as the model has it if not given.")
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Answers that are computed at a time, at most.")] = 256,
    requests: Annotated[int, typer.Option(min=1, help="Requests in progress at most, those that wait included.")] = 256,
    requests_per_key: Annotated[int | None, typer.Option(min=1, help="The same, of one key.")] = None,
    answers: Annotated[int, typer.Option(min=1, help="Answers of one request at most.")] = 16,
    body: Annotated[str, typer.Option(help="Size of a request at most.")] = "4 MiB",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may take.")] = 600.0,
    drain: Annotated[float, typer.Option(min=0.0, help="Seconds for requests in progress, when told to stop.")] = 30.0,
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings", help="Give embeddings, too; unpacked weights then take twice the memory."),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    json: Annotated[bool, typer.Option("--json", help="Log requests as JSON, an object a line.")] = False,
    threads: Threads = None,
    ranks: Ranks = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Serve replicas on a Ray cluster: host:port, auto, or local for one here."
        ),
    ] = None,
    replicas: Annotated[
        str | None, typer.Option(metavar="MIN[:MAX]", help="With --ray: how many, 1 if not given; MAX under load.")
    ] = None,
    ongoing: Annotated[
        int, typer.Option(min=1, help="With MIN:MAX: requests in progress at each replica that are no reason for more.")
    ] = 16,
    stop: Annotated[bool, typer.Option("--stop", help="With --ray: end what is served on the cluster.")] = False,
) -> None:
    """Serve models to programs that speak OpenAI's API, until it is told to stop.

    SIGTERM or Ctrl+C lets requests in progress finish for --drain seconds. With --ray ADDRESS a cluster serves them, in
    the place of what it served before, and the command ends; options are of each replica.

    Example: tilepress serve smollm2-135m --alias small=smollm2-135m --kv bfp8 --port 8000
    """
    need_serve("`tilepress serve`")
    _check_ray(ray, replicas, stop)
    if ray is not None and stop:
        from ..cluster.replicas import stop_replicas

        return stop_replicas(ray)
    from ..serve.keys import Keys
    from ..serve.limits import Limits
    from ..serve.options import EngineOptions

    options = EngineOptions(
        kv=kv,
        kv_memory=kv_memory,
        smoothing=smoothing,
        threads=threads,
        ranks=ranks,
        lookup=lookup,
        longest=longest,
        max_sequences=sequences,
        keeps_module=embeddings,
        trust_remote_code=trust_remote_code,
        text_only=text_only,
    )
    total = None if memory is None else size_in_bytes(memory)
    named = _named(models or [], alias or [])
    limits = Limits(requests, requests_per_key, answers, size_in_bytes(body), timeout)
    keys = Keys() if api_key_file is None else Keys.read(api_key_file)
    origins = tuple(cors or ())
    _warn(host, keys)
    if ray is not None:
        from ..cluster.replicas import Scale, Settings, parse_replicas, serve_replicas

        settings = Settings(named, options, total, limits, keys, origins, json)
        scale = Scale(*parse_replicas(replicas or "1"), ongoing, threads, drain)
        return serve_replicas(settings, scale, ray, host, port)
    from ..kernels.placement import use_stored
    from ..serve.library import Library
    from ..serve.meter import Metrics
    from ..serve.server import Address
    from ..serve.server import serve as run
    from ..serve.service import Service

    hush_transformers()
    library = Library(named, options, Metrics(), total)
    use_stored()
    _log_lines()
    run(Service(library, limits, keys), Address(host, port, drain, origins, json))


def _check_ray(ray: str | None, replicas: str | None, stop: bool) -> None:
    if ray is None and (replicas is not None or stop):
        raise ValueError("--replicas and --stop are of servers on a Ray cluster: give --ray ADDRESS")


def _named(models: list[str], aliases: list[str]) -> dict[str, str]:
    """What to load, by name. ValueError if there is nothing, or a name is there twice."""
    pairs = [(model, model) for model in models]
    for alias in aliases:
        name, _, model = alias.partition("=")
        if not (name and model):
            raise ValueError(f"--alias has a name and a model, fast=FOLDER say, not {alias!r}")
        pairs.append((name, model))
    if not pairs:
        raise ValueError("give a model to serve")
    if len(dict(pairs)) < len(pairs):
        raise ValueError("two models have the same name: give one of them another by --alias")
    return dict(pairs)


def _log_lines() -> None:
    """As they are, on standard error; of other libraries warnings alone."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("tilepress").setLevel(logging.INFO)


def _warn(host: str, keys: "Keys") -> None:
    if not keys and not _is_loopback(host):
        print(f"warning: everybody who reaches {host} may ask: give --api-key-file", file=sys.stderr, flush=True)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
