"""What goes wrong, in the shape that OpenAI's clients read."""

from __future__ import annotations

import re
from typing import Any

from draftproof.errors import ConfigError, DraftproofError

CALLED = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "end_tokens": "stop_token_ids",
    "json_schema": "response_format",
    "k": "speculative",
}
"""What clients call an option that is called otherwise here."""


class ApiError(Exception):
    """A refusal: an HTTP status and what the client is told."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind or ("invalid_request_error" if status < 500 else "server_error")

    @property
    def headers(self) -> dict[str, str]:
        """What tells a client when to come again, or how."""
        if self.status in (429, 503):
            return {"Retry-After": "1"}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}

    def body(self) -> dict[str, Any]:
        """Return the JSON that OpenAI's interface has for it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def problem_of(error: BaseException) -> ApiError:
    """Return what a client is told of an error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ConfigError):
        message = str(error)
        found = re.match(r"([a-z_]+)(?= is |\\[|: )", message)
        name = found[1] if found else None
        called = CALLED.get(name or "", name)
        if name is not None and called != name:
            message = message.replace(name, called or name, 1)
        return ApiError(400, message, param=called)
    if isinstance(error, DraftproofError):
        return ApiError(500, str(error))
    return ApiError(500, f"{type(error).__name__}: {error}")
