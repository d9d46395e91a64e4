import pytest
import torch

from tilepress import tiles
from tilepress.bench.packing import measure_packing, normal_matrix, peak_growth


def test_packing_is_measured():
    figures = {metric: value for metric, value, _ in measure_packing("int4:g32", 256, 256, 0.5, 1, 1)}
    assert figures["pack_time"] > 0 and figures["unpack_time"] > 0
    assert figures["size"] * 1e6 == pytest.approx(256 * 256 * 3.5 / 8, rel=0.05)


def test_the_matrix_has_its_density():
    weight = normal_matrix(64, 1024, 0.25)
    assert weight.dtype == torch.bfloat16
    assert float((weight != 0).float().mean()) == pytest.approx(0.25, abs=0.02)


def test_packing_needs_little_more_memory_than_its_result():
    """No copy of the matrix, no array of codes: beside the input, at most 1.2 times what comes out."""
    size = tiles.pack(normal_matrix(14336, 4096, 0.5), "int4:g32", sparse=True).nbytes
    assert peak_growth("int4:g32", 14336, 4096, 0.5, 2) < 1.2 * size
