"""Where a model is computed while it is compressed or studied."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

CPU = torch.device("cpu")


def find_device(name: str) -> torch.device:
    """The device called `name`; ValueError where there is none."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"{name!r} is no device: take cpu, or cuda where there is one") from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"models are computed on the CPU or by CUDA, not on {name!r}: take --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no {name} here: torch sees {torch.cuda.device_count()} CUDA devices")
    return CPU if device.type == "cpu" else device


@contextmanager
def rough_products() -> Iterator[None]:
    """float32 products on a GPU's matrix units meanwhile, with factors of 10 bits: enough for gradients."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    settings.allow_tf32 = True
    try:
        yield
    finally:
        settings.allow_tf32 = before


@contextmanager
def moved(module: nn.Module, device: torch.device) -> Iterator[None]:
    """The module on `device`, and on the CPU again at the end."""
    module.to(device)
    try:
        yield
    finally:
        module.to(CPU)
