"""Ray: the same outcomes and bytes as here, and nodes that go away."""

import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.cluster import functions
from tests.cluster.test_compressing import KINDS, calibrated, compressed
from tests.cluster.test_executors import batches, expected, following, outcomes
from tests.models import tiny
from tests.sweep.test_sweeping import GRID, in_files, write_grid
from tilepress import _extras
from tilepress.cli import main
from tilepress.cluster import Batch, ClusterError, InProcess, RayExecutor, ray_crew, ray_executor
from tilepress.cluster import batch as batches_of
from tilepress.cluster.ray_crew import RayCrew
from tilepress.sweep import sweeping
from tilepress.sweep.folder import Finished

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_a_cluster_gives_what_this_process_gives(cluster, tmp_path):
    """Also where a worker dies; a batch that kills three is given up."""
    import ray

    with ray_executor(cluster.address) as executor:
        assert executor.workers == 2
        ended = []
        for batch, _ in RayExecutor(ray, 1, 1).run(following(ended)):
            ended += [point["of"] for point in batch.points]
        assert ended == list(range(6))
        for name in ("square", "refuse", "fill_disk"):
            given = batches(name)
            assert outcomes(executor, given) == outcomes(InProcess(), given)
        given = batches("die_once", mark=str(tmp_path / "died"))
        assert outcomes(executor, given) == expected(given)
        given = batches("die", [(1,), (2,)])
        done = outcomes(executor, given)
    assert done[given[0].name][0].startswith("its worker or its node died, 3 times: ")
    assert done[given[1].name] == [functions.square({"of": 2}, "c")]


def test_what_stops_all_of_a_run(cluster, monkeypatch):
    with ray_executor(cluster.address) as executor:
        with pytest.raises(ClusterError, match="does not run on a node of the"):
            list(executor.run([Batch("tilepress_of_somebody_else:run", [{"of": 1}], "c")]))
        monkeypatch.setattr(batches_of, "__version__", "0.0.1")
        with pytest.raises(ClusterError, match=r"has tilepress .*started by 0\.0\.1"):
            list(executor.run(batches("square")))
    with (
        pytest.raises(ClusterError, match=r"no node of the Ray cluster at .* has 99 CPUs"),
        ray_executor(cluster.address, threads=99),
    ):
        pass


def test_a_node_that_is_removed_from_a_sweep(cluster, tmp_path, monkeypatch, capsys):
    """What ran there runs again elsewhere; no point is lost, and none is there twice."""
    monkeypatch.setattr(sweeping, "RUN", f"{functions.__name__}:slow_square_of_queue")
    grid = write_grid(tmp_path, GRID.replace("[2, 8]", "[1, 2, 3, 4, 5, 6]"))
    node, keep = cluster.add_node(num_cpus=2), Finished.keep

    def keep_and_remove(finished, name, results):
        keep(finished, name, results)
        if len(finished.records) == 2:
            cluster.remove_node(node, allow_graceful=False)

    monkeypatch.setattr(Finished, "keep", keep_and_remove)
    command = ["sweep", str(tmp_path / "grid.toml"), "-o", str(tmp_path / "out"), "--ray", cluster.address, "--json"]
    monkeypatch.setattr(sys, "argv", ["tilepress", *command])
    with pytest.raises(SystemExit, match=r"^0$"):
        main()
    printed = [  # what Ray says of the node is no part of it
        (one["labels"]["width"], one["labels"]["queue"], one["value"]) for one in json.loads(capsys.readouterr().out)
    ]
    assert printed == [(point["width"], point["queue"], point["queue"] ** 2) for point in grid.points]
    assert Counter(len(some) for some in in_files(tmp_path / "out").values()) == {1: 12}


def test_a_node_may_be_removed_and_the_bytes_stay(cluster, tmp_path, monkeypatch):
    """A model goes on being compressed by the others: one worker where there were two, once Ray has noticed. The last
    test of this cluster, which is a node less then."""
    folder, text = tiny.save(tmp_path / "model", num_hidden_layers=2)
    recipe, sizes, call = calibrated(KINDS["gptq"], text), [], RayCrew.call

    def call_and_remove(crew, worker, method, *arguments):
        if method == "begin" and worker == 0:
            sizes.append(crew.size)
        if method == "compress" and len(sizes) == 1:
            sizes.append(0)
            monkeypatch.setattr(ray_crew, "PATIENCE", 5)  # with the node that is gone
            cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0], allow_graceful=False)
        return call(crew, worker, method, *arguments)

    monkeypatch.setattr(RayCrew, "call", call_and_remove)
    with ray_executor(cluster.address, workers=2) as executor:  # whatever Ray still counts of a node that went before
        over = compressed(executor, folder, tmp_path / "ray", recipe)
    assert sizes[:2] == [2, 0] and len(cluster.worker_nodes) == 1
    assert over == compressed(InProcess(), folder, tmp_path / "alone", recipe)


@pytest.mark.parametrize(
    "address, message",
    [
        (
            "127.0.0.1:1",
            r"no Ray cluster answers at 127\.0\.0\.1:1 .*Connection refused.*start one with `ray start",
        ),
        ("ray://127.0.0.1:1", "no Ray cluster answers at ray://127.0.0.1:1"),
        ("somewhere", "an address is auto, host:port or ray://host:port"),
        ("host:port", "an address is auto"),
    ],
)
def test_no_cluster_is_one_sentence(address, message):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    with pytest.raises(ClusterError, match=message), ray_executor(address):
        pass


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(_extras, "find_spec", lambda name: None)
    with (
        pytest.raises(_extras.MissingExtraError, match=r"needs the ray extra: pip install 'tilepress\[ray\]'"),
        ray_executor("auto"),
    ):
        pass


def test_a_cluster_whose_nodes_are_gone_is_one_sentence():
    gone = SimpleNamespace(
        remote=lambda **_: lambda function: SimpleNamespace(remote=lambda call: str(call)),
        wait=lambda running, **_: ([], running),
        nodes=lambda: [{"Alive": False, "Resources": {"CPU": 8.0}}, {"Alive": True, "Resources": {"CPU": 1.0}}],
        cancel=lambda *_, **__: None,
    )
    with pytest.raises(ClusterError, match=r"^no node with 2 CPUs is left in the Ray cluster: add one and go on$"):
        list(RayExecutor(gone, 4, 2).run(batches("square")))
