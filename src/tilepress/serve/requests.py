"""Requests, as OpenAI's API has them, with some of vLLM's options. Unknown fields are ignored."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import from_json

from . import limits
from .errors import invalid

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=limits.STOP_CHARACTERS)]
Token = Annotated[int, Field(ge=0, lt=1 << 32)]
Text = Annotated[str, StringConstraints(min_length=1)]
Tokens = Annotated[list[Token], Field(min_length=1)]
Texts = Annotated[list[Text] | list[Tokens], Field(min_length=1)]


class Body(BaseModel):
    """What a field has is not converted: "1" is no number, nor is NaN."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    model: str | None = None


class Part(Body):
    """Of a message."""

    type: Literal["text"]
    text: str


class Function(Body):
    name: str
    arguments: str


class ToolCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: Function


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=limits.TOOLS)] | None = None
    tool_call_id: str | None = None


class Described(Body):
    """A function that the model may call."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Body):
    type: Literal["function"]
    function: Described


class Named(Body):
    name: Name


class ToolNamed(Body):
    type: Literal["function"]
    function: Named


class JsonSchema(Body):
    name: Name | None = None
    schema_: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("json_schema is missing")
        return self


class StreamOptions(Body):
    include_usage: bool = False


class GenerationBody(Body):
    """What chats and completions share."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=limits.BIASES)] | None
    ) = None
    stop: StopText | Annotated[list[StopText], Field(max_length=limits.STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=limits.TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Field(max_length=limits.TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolNamed | None = None
    parallel_tool_calls: bool | None = None


class CompletionRequest(GenerationBody):
    prompt: Text | Tokens | Texts
    best_of: Annotated[int, Field(ge=1)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=limits.TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None


class EmbeddingRequest(Body):
    input: Text | Tokens | Annotated[Texts, Field(max_length=limits.EMBEDDED_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class TokenizeRequest(Body):
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MESSAGES)] | None = None
    add_special_tokens: bool | None = None


class DetokenizeRequest(Body):
    tokens: list[Token]


B = TypeVar("B", bound=Body)


def parse(kind: type[B], body: bytes) -> B:
    """ApiError 400 that names the field."""
    try:
        values = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(None, f"the body is no JSON: {error}") from None
    if not isinstance(values, Mapping):
        raise invalid(None, "the body is no JSON object")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _named(error) from None


def _named(error: ValidationError) -> Exception:
    """Of several errors, the first."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    param = str(first["loc"][0]) if first["loc"] else None
    return invalid(param, f"{place}: {first['msg']}" if place else first["msg"])
