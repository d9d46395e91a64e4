"""Where tensors are tested: on the CPU, and on a GPU if there is one."""

import pytest
import torch

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]
on_devices = pytest.mark.parametrize("device", DEVICES)
