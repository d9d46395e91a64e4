"""Replicas of a server on Ray: deployed, replaced one after another by others, ended."""

import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from .. import __version__
from .._extras import need_ray_serve
from ..serve.keys import Keys
from ..serve.limits import Limits
from ..serve.options import EngineOptions
from .batch import ClusterError
from .on_ray import connect, unknown_ray
from .relay import LARGEST_BODY

HERE = "local"  # in place of an address: a Ray of this command's own
APP, DEPLOYMENT, DOOR_APP = "tilepress", "Replica", "tilepress-door"
_ROUTER = f"{__package__}.prefix_router:PrefixRouter"
_HEAD = {"node:__internal_head__": 0.001}  # which only the node has that a cluster began with
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # despite its name, on any system: Ray listens at 127.0.0.1 without
_OWN_RAY = {  # what a Ray of its own is told; the user's own settings come before it
    _CLUSTERS: "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # workers would give way to whatever else the machine does
}
_LOOPBACK = "127.0.0.1:"
_SPARE = 64  # requests beyond its limit that a replica gets, to refuse them itself
_AT_THE_DOOR = 100_000  # requests
_DOOR_DRAIN = 10.0  # seconds that the door has after the replicas
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class Settings:
    """Of each replica; see `Library`, `Service` and `make_app`."""

    models: Mapping[str, str]
    options: EngineOptions
    memory: int | None = None
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    origins: Sequence[str] = ()
    logs_json: bool = False


@dataclass(frozen=True)
class Scale:
    """How many replicas: `least`, and up to `most` while there are more than `ongoing` requests in progress for each.

    threads: of each, and CPUs that Ray keeps for it; a share of the cluster's if not given. drain: seconds that
    requests in progress have when a replica is replaced or ended.
    """

    least: int = 1
    most: int = 1
    ongoing: int = 16
    threads: int | None = None
    drain: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"there is at least 1 replica, and as many at most: not {self.least}:{self.most}")


def parse_replicas(text: str) -> tuple[int, int]:
    """MIN or MIN:MAX."""
    least, colon, most = text.partition(":")
    if not (least.isdecimal() and (most.isdecimal() or not colon)):
        raise ValueError(f"--replicas is MIN or MIN:MAX, 1:4 say, not {text!r}")
    return int(least), int(most or least)


def serve_replicas(settings: Settings, scale: Scale, address: str, host: str, port: int) -> None:
    """On the cluster at `address`, in the place of those that are there; or HERE, until a signal comes. host and port:
    where the cluster's head listens for HTTP.

    ClusterError if there is no cluster or no room, or a replica cannot be started. Replicas that were there then stay,
    as far as they were not replaced.
    """
    need_ray_serve("`tilepress serve --ray`")
    if settings.limits.body > LARGEST_BODY:
        raise ValueError(f"on Ray a request has at most {LARGEST_BODY} bytes: give a smaller --body")
    if address == HERE:
        with socket.create_server((host, port)) as free:  # OSError if it is taken
            port = free.getsockname()[1]
        with _ray_here():
            _deploy(settings, scale, host, port)
            with suppress(KeyboardInterrupt):
                signal.pause()
            _end()
    elif port == 0:
        raise ValueError("on a cluster the port is one for all that come: give it")
    else:
        with _cluster(address):
            _deploy(settings, scale, host, port)


def stop_replicas(address: str) -> None:
    """Ends what is served on the cluster at `address`, after requests in progress."""
    need_ray_serve("`tilepress serve --ray`")
    if address == HERE:
        raise ValueError("a Ray of its own ends with its command: --stop is for clusters")
    with _cluster(address):
        _end()


def share(cpus: Sequence[int], scale: Scale) -> int:
    """Threads of a replica. cpus: of each node. ClusterError if there is no room."""
    threads = scale.threads or max(1, min(max(cpus, default=0), sum(cpus) // scale.most))
    room = sum(node // threads for node in cpus)
    if room < scale.least:
        raise ClusterError(
            f"the cluster has room for {room} replicas of {threads} threads, not for {scale.least}: ask for fewer, or "
            "give fewer --threads"
        )
    return threads


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    if address.startswith(_LOOPBACK):
        os.environ[_CLUSTERS] = "0"
    import ray

    connect(ray, address)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _ray_here() -> Iterator[None]:
    """Listens at 127.0.0.1 alone, and reports to nobody. SIGTERM is an interrupt, as Ctrl+C is."""
    os.environ |= _OWN_RAY | os.environ
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        ray.shutdown()


def _deploy(settings: Settings, scale: Scale, host: str, port: int) -> None:
    import ray
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    threads = share([int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]], scale)
    serve.start(proxy_location="HeadOnly", http_options={"host": host, "port": port})
    _check_address(host, port)
    targets = [serve.RunTarget(_replicas(settings, scale, threads), name=APP, route_prefix=None), *_door(scale.drain)]
    try:
        serve.run_many(targets)
    except RuntimeError as error:
        raise ClusterError(reason(str(error))) from error
    print(
        f"serving on http://{host}:{port}, by Ray at {ray.get_runtime_context().gcs_address}",
        file=sys.stderr,
        flush=True,
    )


def _check_address(host: str, port: int) -> None:
    """Ray Serve stays where it began to listen, and says nothing of it."""
    try:
        from ray.serve.context import _get_global_client

        used = _get_global_client().http_config
    except (AttributeError, ImportError) as error:
        raise ClusterError(unknown_ray(error)) from error
    if (used.host, used.port) != (host, port):
        raise ClusterError(
            f"Ray Serve of this cluster listens at {used.host} and port {used.port} already: give these, or end what "
            "it serves"
        )


def _replicas(settings: Settings, scale: Scale, threads: int) -> Any:
    from ray import serve

    from .replica import Replica

    settings = replace(settings, options=replace(settings.options, threads=threads))
    number: dict[str, Any] = {"num_replicas": scale.least}
    if scale.most > scale.least:
        limits = {"min_replicas": scale.least, "max_replicas": scale.most, "target_ongoing_requests": scale.ongoing}
        number = {"autoscaling_config": limits}
    deployment = serve.deployment(
        Replica,
        name=DEPLOYMENT,
        ray_actor_options={"num_cpus": threads},
        max_ongoing_requests=settings.limits.requests + _SPARE,
        graceful_shutdown_timeout_s=scale.drain,
        request_router_config={"request_router_class": _ROUTER},
        **number,
    )
    return deployment.bind(__version__, settings)


def _door(drain: float) -> list[Any]:
    """None where one is open already: it stays, whatever replicas come and go, unless it is of another version."""
    from ray import serve

    from .door import Door

    name = f"Door-{__version__}"
    running = serve.status().applications.get(DOOR_APP)
    if running is not None and name in running.deployments:
        return []
    deployment = serve.deployment(
        Door,
        name=name,
        ray_actor_options={"num_cpus": 0, "resources": _HEAD},
        max_ongoing_requests=_AT_THE_DOOR,
        graceful_shutdown_timeout_s=drain + _DOOR_DRAIN,
    )
    return [serve.RunTarget(deployment.bind(DEPLOYMENT, APP), name=DOOR_APP)]


def _end() -> None:
    from ray import serve

    ours = {APP, DOOR_APP} & serve.status().applications.keys()
    for name in ours:
        serve.delete(name, _blocking=False)
    while ours & serve.status().applications.keys():
        time.sleep(_POLL)
    if not serve.status().applications:
        serve.shutdown()


def reason(failure: str) -> str:
    """What Ray says of replicas that do not start, with tracebacks of theirs, in one sentence."""
    errors = re.findall(r"^\s*(?:[\w.]+\.)?\w+(?:Error|Exception): (.+)$", failure, re.M)
    return f"no replica starts: {errors[-1] if errors else failure.strip().partition(chr(10))[0]}"
