"""`/openapi.json`: what a server answers, for programs that make clients and tests of it."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from .requests import Body, ChatRequest, CompletionRequest, DetokenizeRequest, EmbeddingRequest, TokenizeRequest

BODIES: dict[str, type[Body]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
MEDIA: dict[str, tuple[str, ...]] = {  # of answers; else JSON
    "/": ("text/html",),
    "/v1/chat/completions": ("application/json", "text/event-stream"),
    "/v1/completions": ("application/json", "text/event-stream"),
    "/metrics": ("text/plain",),
    "/health": (),
    "/ready": (),
}
REF = "#/components/schemas/{model}"
NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": NULLABLE,
                "code": NULLABLE,
            },
        }
    },
}


def describe(app: FastAPI) -> None:
    """Bodies are read by the routes themselves, after keys and limits, so FastAPI knows nothing of them."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(_document(app))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, definitions = models_json_schema([(kind, "validation") for kind in BODIES.values()], ref_template=REF)
    document["components"] = {
        "schemas": {**definitions["$defs"], "Error": ERROR},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    }
    document["security"] = [{}, {"key": []}]
    refused = {"description": "Refused; the text says why.", "content": _json("Error")}
    for path, operations in document["paths"].items():
        content: dict[str, Any] = {media: {} for media in MEDIA.get(path, ("application/json",))}
        for operation in operations.values():
            operation["responses"] = {
                "200": {"description": "Answered.", "content": content},
                "4XX": refused,
                "5XX": refused,
            }
    for path, kind in BODIES.items():
        document["paths"][path]["post"]["requestBody"] = {"required": True, "content": _json(kind.__name__)}
    return document


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=schema)}}}
