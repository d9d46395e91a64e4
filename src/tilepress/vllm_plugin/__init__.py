"""Compressed folders in vLLM on CPUs, computed by our kernels.

vLLM finds `register` by its entry point, in every process of its own. Importing this imports neither vllm nor torch.
"""


def register() -> None:
    """Let vLLM know the quantisation method "tilepress"."""
    from . import config as config  # imported once: registering is what it does


__all__ = ["register"]
