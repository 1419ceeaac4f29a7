"""Chat templates: programs of strangers, so they are given a time and a length, and all their errors become ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from jinja2 import TemplateError

from draftproof.errors import ConfigError, first_line

LIMIT_S = 10.0
"""Seconds that a template may take; usual ones take milliseconds."""
LIMIT_CHARACTERS = 20_000_000
"""Most characters that a template may write, or keep in one value."""


def render(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    continue_final_message: bool = False,
) -> str:
    """Return the conversation as the text that the model is to continue. Raises `ConfigError` whatever goes wrong."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise ConfigError("this tokenizer has no chat template; write without one, or choose an instruct model.")
    if isinstance(template, Mapping) and not ("default" in template or (tools and "tool_use" in template)):
        raise ConfigError(
            f"this tokenizer has several chat templates ({', '.join(template)}) and none is the default; "
            "set tokenizer.chat_template to one of them."
        )
    before = sys.gettrace()
    try:
        sys.settrace(_Watch().called)
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=None if tools is None else list(tools),
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
            tokenize=False,
        )
    except _Stopped as stopped:
        raise ConfigError(f"the model's chat template {stopped}; choose another model, or mend the template.") from None
    except TemplateError as error:
        raise ConfigError(
            f"the model's chat template refuses this conversation: {first_line(error).rstrip('.')}."
        ) from error
    except Exception as error:  # a template can raise whatever Python can
        what = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        raise ConfigError(f"the model's chat template fails on this conversation: {what}.") from error
    finally:
        sys.settrace(before)
    if not isinstance(text, str):
        raise ConfigError(f"the model's chat template wrote {type(text).__name__}; it must write text.")
    return text


class _Stopped(BaseException):
    """Not an `Exception`, so that nothing in between takes it for an error that it can live with."""


class _Watch:
    """Stops what runs in this thread once it takes too long or holds a value that is too long.

    Python calls a trace function at every call, and in a template's own code at every line; a signal would work in the
    main thread only. One operation of C code that never ends is out of its reach.
    """

    def __init__(self) -> None:
        self._written = 0
        self._ends = time.monotonic() + LIMIT_S

    def called(self, frame: FrameType, event: str, value: Any) -> Any:
        """Trace function of calls."""
        self._check(frame)
        return self._traced if frame.f_code.co_filename.startswith("<") else None

    def _traced(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "return" and isinstance(value, str):  # a template hands out its text piece by piece
            self._written += len(value)
        self._check(frame)
        return self._traced

    def _check(self, frame: FrameType) -> None:
        if time.monotonic() > self._ends:
            raise _Stopped(f"did not end within {LIMIT_S:g} seconds")
        longest = max((len(v) for v in frame.f_locals.values() if isinstance(v, str | list | tuple)), default=0)
        if max(self._written, longest) > LIMIT_CHARACTERS:
            raise _Stopped(f"writes more than {LIMIT_CHARACTERS:,} characters")
