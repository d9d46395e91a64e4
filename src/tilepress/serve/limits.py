"""What a server takes at most."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """requests: in progress at a time, those that wait among them. requests_per_key: of one key.
    answers: of one request. body: bytes of a request. seconds: that a request may take.
    """

    requests: int = 256
    requests_per_key: int | None = None
    answers: int = 16
    body: int = 4 << 20
    seconds: float = 600.0


# What no option changes; OpenAI's own limits, or larger.
MESSAGES = 2048
TOOLS = 128
STOPS = 16
STOP_CHARACTERS = 1024
BIASES = 1024
TOP_LOGPROBS = 20
EMBEDDED_TEXTS = 256
FORM_BYTES = 64 << 10  # of a JSON schema
