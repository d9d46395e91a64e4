"""A model compressed on Ray, and a node that goes away meanwhile."""

import pytest

from tests.cluster.test_compressing import KINDS, calibrated, compressed
from tests.models import tiny
from tilepress.cluster import InProcess, ray_crew, ray_executor
from tilepress.cluster.ray_crew import RayCrew

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_a_node_may_be_removed_and_the_bytes_stay(cluster, tmp_path, monkeypatch):
    """The others go on: one worker where there were two, once Ray has noticed."""
    folder, text = tiny.save(tmp_path / "model", num_hidden_layers=2)
    recipe, sizes, call = calibrated(KINDS["gptq"], text), [], RayCrew.call

    def call_and_remove(crew, worker, method, *arguments):
        if method == "begin" and worker == 0:
            sizes.append(crew.size)
        if method == "compress" and len(sizes) == 1:
            sizes.append(0)
            cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0], allow_graceful=False)
        return call(crew, worker, method, *arguments)

    monkeypatch.setattr(RayCrew, "call", call_and_remove)
    monkeypatch.setattr(ray_crew, "PATIENCE", 20)
    with ray_executor(cluster.address) as executor:
        over = compressed(executor, folder, tmp_path / "ray", recipe)
    assert sizes[:2] == [2, 0] and len(cluster.worker_nodes) == 1
    assert over == compressed(InProcess(), folder, tmp_path / "alone", recipe)
