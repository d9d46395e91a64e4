"""Optional extras: `lab`, what simulators, papers and reports need, `rtl`, `grammar`, `ray`, and `serve`."""

from importlib.util import find_spec

LAB = ("numba", "jinja2")
RTL = ("amaranth", "pyosys")
SERVE = ("fastapi", "uvicorn", "prometheus_client", "llguidance")
RAY_SERVE = ("ray", "aiohttp", "grpc", "watchfiles")  # what `ray` alone does not bring, among them


class MissingExtraError(ImportError):
    """A part of tilepress that was not installed; the message says how to install it."""


def has_lab() -> bool:
    """Whether every package of the `lab` extra is installed; imports none of them."""
    return all(find_spec(name) is not None for name in LAB)


def need_lab(what: str) -> None:
    """MissingExtraError, naming `what`, unless the `lab` extra is installed."""
    if not has_lab():
        raise MissingExtraError(f"{what} needs the lab extra: pip install 'tilepress[lab]'")


def need_rtl(what: str) -> None:
    """MissingExtraError, naming `what`, unless the `rtl` extra is installed."""
    if not all(find_spec(name) is not None for name in RTL):
        raise MissingExtraError(f"{what} needs the rtl extra: pip install 'tilepress[lab,rtl]'")


def need_grammar(what: str) -> None:
    """MissingExtraError, naming `what`, unless the `grammar` extra is installed."""
    if find_spec("llguidance") is None:
        raise MissingExtraError(f"{what} needs the grammar extra: pip install 'tilepress[grammar]'")


def need_serve(what: str) -> None:
    """MissingExtraError, naming `what`, unless the `serve` extra is installed."""
    if not all(find_spec(name) is not None for name in SERVE):
        raise MissingExtraError(f"{what} needs the serve extra: pip install 'tilepress[serve]'")


def need_ray(what: str) -> None:
    """MissingExtraError, naming `what`, unless the `ray` extra is installed."""
    if find_spec("ray") is None:
        raise MissingExtraError(f"{what} needs the ray extra: pip install 'tilepress[ray]'")


def need_ray_serve(what: str) -> None:
    """MissingExtraError, naming `what`, unless Ray is installed with what its servers need."""
    if not all(find_spec(name) is not None for name in RAY_SERVE):
        raise MissingExtraError(f"{what} needs the ray extra: pip install 'tilepress[ray]'")
