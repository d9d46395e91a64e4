"""Each batch once, with the same outcomes, whatever runs it and whatever dies meanwhile."""

from pathlib import Path

import pytest

from tests.cluster import functions
from tilepress.cluster import Batch, ClusterError, InProcess, LocalExecutor, local_executor
from tilepress.cluster import batch as batches_of
from tilepress.cluster.batch import name_of

ROOT = Path(__file__).parents[2]


def name(executor):
    return f"{type(executor).__name__}-{executor.workers}"


@pytest.fixture(autouse=True)
def tests_can_be_imported(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def batches(function, groups=((0, 1), (2,), (3, 4)), **more):
    return [Batch(f"{functions.__name__}:{function}", [{"of": of, **more} for of in group], "c") for group in groups]


def outcomes(executor, given):
    """Batch → outcomes; each batch comes back once."""
    ended = list(executor.run(given))
    assert len(ended) == len(given)
    return {batch.name: list(some) for batch, some in ended}


def expected(given):
    """What the functions themselves give."""
    return {batch.name: [functions.square(point, "c") for point in batch.points] for batch in given}


@pytest.mark.parametrize("executor", [InProcess(), LocalExecutor(1), LocalExecutor(2), LocalExecutor(9)], ids=name)
def test_every_executor_gives_what_the_function_gives(executor):
    given = batches("square")
    assert outcomes(executor, given) == expected(given)
    assert outcomes(executor, []) == {}


def following(ended, last=6):
    """A batch of one point, and of the next one when it has ended."""
    for of in range(last):
        assert ended == list(range(of))
        yield from batches("square", [(of,)])


@pytest.mark.parametrize("executor", [InProcess(), LocalExecutor(1)], ids=name)
def test_what_has_ended_decides_what_comes_next(executor):
    ended = []
    for batch, _ in executor.run(following(ended)):
        ended += [point["of"] for point in batch.points]
    assert ended == list(range(6))


@pytest.mark.parametrize("executor", [InProcess(), LocalExecutor(2)], ids=name)
def test_a_point_that_fails_leaves_the_others(executor):
    given = batches("refuse")
    assert outcomes(executor, given)[given[0].name] == [functions.square({"of": 0}, "c"), "1 is odd and that is all"]
    given = batches("fill_disk", [(0, 1, 2)])
    [(zero, one, two)] = outcomes(executor, given).values()
    assert one == "/tmp/somewhere: No space left on device"
    assert [zero, two] == [functions.square({"of": of}, "c") for of in (0, 2)]


def test_a_worker_that_dies_loses_nothing(tmp_path):
    given = batches("die_once", mark=str(tmp_path / "died"))
    assert outcomes(LocalExecutor(2), given) == expected(given)
    assert (tmp_path / "died").exists()


def test_a_batch_that_kills_every_worker_is_given_up():
    given = batches("die", [(1,), (2,), (3,)])
    done = outcomes(LocalExecutor(1), given)
    assert done.pop(given[0].name) == ["its worker process was killed (is there enough memory?), 3 times"]
    assert done == expected(given[1:])
    left = outcomes(LocalExecutor(1), batches("leave", [(1,)]))
    assert list(left.values()) == [["its worker process ended with exit code 3, 3 times"]]


def test_what_a_library_prints_is_no_answer(capfd):
    given = batches("chatter", [(1,), (2,)])
    assert outcomes(LocalExecutor(1), given) == expected(given)
    assert "not an answer" in capfd.readouterr().err


def test_a_worker_has_its_share_of_threads(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    [[[record]]] = outcomes(LocalExecutor(2), batches("threads", [(1,)])).values()
    assert record.value == "3" and LocalExecutor(9).threads == 1
    [[[record]]] = outcomes(LocalExecutor(2, 5), batches("threads", [(1,)])).values()
    assert record.value == "5"


def test_an_iterator_that_is_closed_stops_its_workers(tmp_path):
    log = tmp_path / "log"
    given = batches("slow_square", [(one,) for one in range(8)], log=str(log), seconds=0.2)
    ended = LocalExecutor(2).run(given)
    next(ended)
    ended.close()
    assert len(log.read_text().splitlines()) < 8


@pytest.mark.parametrize("executor", [InProcess(), LocalExecutor(1)], ids=name)
def test_another_version_is_refused(executor, monkeypatch):
    monkeypatch.setattr(batches_of, "__version__", "0.0.1")
    with pytest.raises(
        ClusterError, match=r"has tilepress .*, and the command was started by 0\.0\.1: install the same"
    ):
        list(executor.run(batches("square")))


def test_no_workers_are_refused():
    for workers, threads in ((0, None), (1, 0)):
        with pytest.raises(ValueError, match="at least one worker with one thread is needed"):
            LocalExecutor(workers, threads)


def test_one_worker_with_all_threads_is_this_process():
    assert isinstance(local_executor(1), InProcess)
    assert local_executor(1, 2).threads == 2 and local_executor(2).workers == 2


def test_names_are_of_what_is_said_and_not_of_its_order():
    assert name_of({"a": 1, "b": 2}) == name_of({"b": 2, "a": 1}) != name_of({"a": 1, "b": 3})
    assert len({batch.name for name in ("square", "die") for batch in batches(name)}) == 6
