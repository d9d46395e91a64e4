"""Several models: by name, when they are asked for, within a limit of memory."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from tests.serve.conftest import OPTIONS, served

from tilepress.serve.library import Library
from tilepress.serve.meter import Metrics
from tilepress.serve.opening import expected_bytes, open_model


@pytest.fixture(scope="module")
def other(folder, tmp_path_factory):
    return shutil.copytree(folder, str(tmp_path_factory.mktemp("other") / "tiny"))


@pytest.fixture
def opened():
    """Names of the models that were loaded."""
    return []


@pytest.fixture
def open_noted(opened):
    def open(name, options):
        opened.append(name)
        return open_model(name, options)

    return open


def ask(one, model):
    return one.post("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 2, "temperature": 0})


def test_models_are_loaded_when_they_are_asked_for(folder, other, opened, open_noted):
    with served({"one": folder, "two": other, "uno": folder}, open=open_noted) as one:
        one.ready()
        assert opened == [folder]
        with openai.OpenAI(base_url=f"{one.url}/v1", api_key="-") as client:
            assert [model.id for model in client.models.list()] == ["one", "two", "uno"]
        for model in ("uno", "one", None):
            assert ask(one, model).json()["model"] == (model or "one")
        assert opened == [folder]
        with ThreadPoolExecutor(4) as threads:
            replies = list(threads.map(lambda _: ask(one, "two").json()["choices"], range(4)))
        assert replies == [ask(one, "one").json()["choices"]] * 4
        assert opened == [folder, other] and len(one.service.library.in_memory) == 2


def test_the_one_unused_longest_is_dropped(folder, other, opened, open_noted):
    memory = int(1.5 * open_model(folder, OPTIONS).nbytes)
    with served({"one": folder, "two": other}, memory=memory, open=open_noted) as one:
        one.ready()
        for model in ("one", "two", "two", "one"):
            assert ask(one, model).status_code == 200
        assert opened == [folder, other, folder]
        assert list(one.service.library.engines) == ["one"]


def test_models_in_use_stay(folder, other):
    memory = int(1.5 * open_model(folder, OPTIONS).nbytes)
    with served({"one": folder, "two": other}, memory=memory) as one, ThreadPoolExecutor(1) as threads:
        one.ready()
        with one.held():
            going = threads.submit(ask, one, "one")
            assert one.settled(lambda: one.engine.requests.running == 1)
            refused = ask(one, "two")
            assert refused.status_code == 503 and "no room beside those in use" in refused.json()["error"]["message"]
        assert going.result().status_code == 200
        assert ask(one, "two").status_code == 200


def test_a_model_that_is_larger_than_all_memory(folder, other):
    small = open_model(folder, OPTIONS).nbytes
    with served({"one": folder, "two": other}, memory=small + 100_000) as one:
        one.ready()
        one.service.library._entries[other].nbytes = small + 100_001
        refused = ask(one, "two")
        assert refused.status_code == 503 and "there are" in refused.json()["error"]["message"]
        assert list(one.service.library.engines) == ["one"]


def test_what_is_expected_is_about_what_it_takes(folder):
    assert expected_bytes(folder, OPTIONS) == pytest.approx(open_model(folder, OPTIONS).nbytes, rel=0.02)
    assert expected_bytes("smollm2-135m", OPTIONS) == 8_000_000


def test_a_model_that_cannot_be_loaded(folder, caplog):
    with served({"one": folder, "two": "/no/such/model"}) as one:
        one.ready()
        refused = ask(one, "two")
        assert refused.status_code == 503 and "/no/such" not in refused.text
        assert "/no/such/model' is neither a folder" in caplog.text
        assert ask(one, "one").status_code == 200


def test_a_default_model_that_cannot_be_loaded_ends_the_server():
    with served({"one": "/no/such/model"}) as one:
        error = one.ended.exception(20)
    assert str(error).startswith("model one cannot be loaded") and "'/no/such/model' is neither" in str(error.__cause__)


def test_sizes_that_are_none_are_refused_at_once(folder):
    with pytest.raises(ValueError, match="a size of memory is like"):
        Library({"one": folder}, type(OPTIONS)(kv_memory="some"), Metrics())
