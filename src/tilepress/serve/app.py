"""Routes."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from .. import __version__
from .chat import chat_job
from .completions import completion_job
from .errors import ApiError, internal
from .openapi import describe
from .page import chat_page
from .requests import ChatRequest, CompletionRequest
from .service import Service


def make_app(service: Service, origins: Sequence[str] = ()) -> FastAPI:
    """origins: of pages in browsers that may ask."""
    app = FastAPI(title="Tilepress", version=__version__, docs_url=None, redoc_url=None)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    _handle_errors(app)
    _add_page(app)
    _add_api(app, service)
    _add_state(app, service)
    describe(app)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/")
    async def page() -> Response:
        """A page to chat."""
        return chat_page()


def _add_api(app: FastAPI, service: Service) -> None:
    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        """Answer a chat, by the model's chat template."""
        return await service.generate(request, ChatRequest, chat_job)

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        """Go on with a text."""
        return await service.generate(request, CompletionRequest, completion_job)

    @app.post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        """The mean of the last hidden states, of length 1."""
        return JSONResponse(await service.embeddings(request))

    @app.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        """A prompt or messages to tokens."""
        return JSONResponse(await service.tokenize(request))

    @app.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        """Tokens to text."""
        return JSONResponse(await service.detokenize(request))

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        """Names that requests may have."""
        service.check_key(request)
        return JSONResponse({"object": "list", "data": [_model(service, name) for name in service.library.models]})

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> Response:
        """One of them."""
        service.check_key(request)
        return JSONResponse(_model(service, name))


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Whether every engine works."""
        return Response(status_code=200 if service.library.works else 503)

    @app.get("/ready")
    async def ready() -> Response:
        """Whether the first model is loaded and requests are taken."""
        return Response(status_code=200 if service.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(service.library.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _model(service: Service, name: str) -> dict[str, object]:
    nbytes = service.library.bytes_in_memory(name)
    state = {"loaded": nbytes is not None, "bytes": nbytes}
    return {"id": name, "object": "model", "created": 0, "owned_by": "tilepress", "tilepress": state}


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def ours(request: Request, error: ApiError) -> Response:
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        """A path that is none, or a method that it does not have."""
        said = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
        return JSONResponse(said.body, said.status, error.headers)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        """Which goes on to the log."""
        return JSONResponse(internal().body, 500)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # which nobody reads
