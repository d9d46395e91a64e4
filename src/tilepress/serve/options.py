"""What engines are opened with. A file of its own: it needs no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """See `Engine`. keeps_module: whether the model of transformers stays, too, which embeddings need."""

    kv: str | None = None
    kv_memory: str = "4 GiB"
    smoothing: str | None = None
    threads: int | None = None
    ranks: int = 1
    lookup: int = 0
    longest: int | None = None
    max_sequences: int = 256
    keeps_module: bool = False
    trust_remote_code: bool = False
    text_only: bool = False
