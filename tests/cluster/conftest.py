"""A Ray cluster of this machine."""

import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster():
    """A real one, of a head without CPUs and two nodes with one each."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PYTHONPATH", str(ROOT))
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        made.add_node(num_cpus=1)
        made.add_node(num_cpus=1)
        yield made
        made.shutdown()
