"""What the server says of itself is what it does."""

import re

import pytest

from tilepress.serve.app import make_app
from tilepress.serve.openapi import BODIES


@pytest.fixture(scope="module")
def document(running):
    return running.http.get("/openapi.json").json()


def test_every_route_is_there(document):
    routes = {route.path.replace(":path", "") for route in make_app(None).routes}
    assert routes == {*document["paths"], "/openapi.json"}
    assert document["openapi"].startswith("3.") and document["info"]["title"] == "Tilepress"


def test_references_lead_somewhere(document):
    names = set(re.findall(r"'#/components/schemas/(.*?)'", str(document)))
    assert names == {*document["components"]["schemas"]} >= {"ChatRequest", "Message", "Error"}


@pytest.mark.parametrize("path", BODIES)
def test_a_field_that_is_required_is_missed(path, document, running):
    """So the schema is that of the route."""
    (content,) = document["paths"][path]["post"]["requestBody"]["content"].values()
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    reply = running.post(path, {})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] in schema.get("required", ["prompt"])


def test_errors_are_as_they_are_described(document, running):
    error = running.post("/v1/completions", {}).json()
    schema = document["components"]["schemas"]["Error"]
    assert [*error] == schema["required"] and [*error["error"]] == schema["properties"]["error"]["required"]
