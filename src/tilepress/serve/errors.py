"""Errors as OpenAI's API has them."""

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """An answer that says what went wrong.

    Args:
        status: of HTTP.
        message: for people.
        param: the request's field that is wrong.
        code: for programs.
        kind: OpenAI's type of the error; by default that of the status.
        retry_after: seconds after which another try may succeed.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    """The request is wrong."""
    return ApiError(400, message, param=param, code=code)


def internal() -> ApiError:
    """A bug of ours, or a machine that fails."""
    return ApiError(500, "the server failed; its log says why")


def stopping() -> ApiError:
    return ApiError(503, "the server is stopping", code="stopping", retry_after=5)


def timed_out() -> ApiError:
    return ApiError(504, "the request took longer than it may here", code="timeout", kind="timeout_error")
