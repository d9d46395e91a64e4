"""Ray: the same outcomes as here, and a node that goes away."""

import time
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster import functions
from tests.cluster.test_executors import batches, expected, outcomes
from tests.sweep.test_sweeping import GRID, figures, write_grid
from tilepress import _extras
from tilepress.cluster import Batch, ClusterError, InProcess, ray_executor
from tilepress.cluster import batch as batches_of
from tilepress.sweep import sweep

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster():
    """A real one, of a head without CPUs and two nodes with one each."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PYTHONPATH", str(ROOT))
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        made.add_node(num_cpus=1)
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        made.shutdown()


def test_a_cluster_gives_what_this_process_gives(cluster):
    with ray_executor(cluster.address) as executor:
        assert executor.workers == 2
        for name in ("square", "refuse", "fill_disk"):
            given = batches(name)
            assert outcomes(executor, given) == outcomes(InProcess(), given)


def test_a_sweep_gives_the_same_records(cluster, tmp_path):
    grid = write_grid(tmp_path, GRID)
    alone = sweep(grid, tmp_path / "alone", InProcess())
    with ray_executor(cluster.address, workers=1) as executor:
        assert figures(sweep(grid, tmp_path / "ray", executor)) == figures(alone)


def test_a_worker_that_dies_is_replaced(cluster, tmp_path):
    with ray_executor(cluster.address) as executor:
        given = batches("die_once", mark=str(tmp_path / "died"))
        assert outcomes(executor, given) == expected(given)
        given = batches("die", [(1,), (2,)])
        done = outcomes(executor, given)
    assert done[given[0].name][0].startswith("its worker or its node died, 3 times: ")
    assert done[given[1].name] == [functions.square({"of": 2}, "c")]


def test_another_version_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(batches_of, "__version__", "0.0.1")
    with (
        ray_executor(cluster.address) as executor,
        pytest.raises(ClusterError, match=r"has tilepress .*started by 0\.0\.1"),
    ):
        list(executor.run(batches("square")))


def test_a_node_without_the_function_is_named(cluster):
    with ray_executor(cluster.address) as executor, pytest.raises(ClusterError, match="does not run on a node of the"):
        list(executor.run([Batch("tilepress_of_somebody_else:run", [{"of": 1}], "c")]))


def test_too_many_threads_are_refused(cluster):
    with (
        pytest.raises(ClusterError, match=r"no node of the Ray cluster at .* has 99 CPUs"),
        ray_executor(cluster.address, threads=99),
    ):
        pass


def test_a_node_that_is_removed_loses_nothing_and_doubles_nothing(cluster, tmp_path):
    """The last of the tests with the cluster. A batch that ran there runs again elsewhere; none counts twice."""
    node = cluster.add_node(num_cpus=2)
    log = tmp_path / "log"
    given = batches("slow_square", [(one,) for one in range(12)], log=str(log), seconds=0.5)
    with ray_executor(cluster.address) as executor, closing(executor.run(given)) as running:
        assert executor.workers == 4
        done = [next(running), next(running)]
        cluster.remove_node(node, allow_graceful=False)
        done += running
    assert Counter(batch.name for batch, _ in done) == Counter(batch.name for batch in given)
    assert {batch.name: list(some) for batch, some in done} == expected(given)
    assert {int(line) for line in log.read_text().split()} == set(range(12))


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
    start = time.monotonic()
    with pytest.raises(ClusterError, match=message), ray_executor(address):
        pass
    assert time.monotonic() - start < 30


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(_extras, "find_spec", lambda name: None)
    with (
        pytest.raises(_extras.MissingExtraError, match=r"needs the ray extra: pip install 'tilepress\[ray\]'"),
        ray_executor("auto"),
    ):
        pass
