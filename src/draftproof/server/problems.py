"""What goes wrong, in the shape that OpenAI's clients read."""

from __future__ import annotations

import re
from typing import Any

from fastapi.exceptions import RequestValidationError

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


SPEAKS_OF = (
    ("a stop string", "stop"),
    ("this grammar", "response_format"),
    ("the messages", "messages"),
    ("messages", "messages"),
)
"""What a message is about that does not begin with an option's name."""


def problem_of(error: BaseException, asked: Any = None) -> ApiError:
    """Return what a client is told of an error, in answer to what it `asked`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ConfigError):
        message = str(error)
        found = re.match(r"([a-z_]+)(?= is |\[|: )", message)
        name = found[1] if found else next((name for begin, name in SPEAKS_OF if message.startswith(begin)), None)
        if name == "response_format" and getattr(asked, "regex", None):
            name = "regex"
        called = CALLED.get(name or "", name)
        if name is not None and called != name:
            message = message.replace(name, called or name, 1)
        return ApiError(400, message, param=called)
    if isinstance(error, DraftproofError):
        return ApiError(500, str(error))
    return ApiError(500, f"{type(error).__name__}: {error}")


def error_of_body(error: RequestValidationError) -> ApiError:
    """Return the first thing that is wrong with a body, by the name of the parameter."""
    first = error.errors()[0]
    place = [str(part) for part in first.get("loc", ()) if part != "body"]
    name = place[0] if place else None
    if first.get("type") == "extra_forbidden":
        return ApiError(400, f"{name} is unknown here; leave it out.", param=name, code="unknown_parameter")
    if first.get("type") == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}.")
    what = f"{'.'.join(place)}: {first.get('msg', 'it cannot be')}" if place else str(first.get("msg"))
    return ApiError(422 if not place else 400, what, param=name)
