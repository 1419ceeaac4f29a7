"""When a text ends. Every rule looks at one token at a time, so it cannot matter which round brought the token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from draftproof.decode.strings import StopStrings
from draftproof.errors import ConfigError
from draftproof.models.tokens import TextStream
from draftproof.records import FinishReason


class StopRule(Protocol):
    """What a request needs to know about the end of a text; `Stop` is the usual one."""

    text: str
    reason: FinishReason | None
    match: int | str | None

    @property
    def remaining(self) -> int: ...

    @property
    def end_tokens(self) -> frozenset[int]: ...

    @property
    def warning(self) -> str | None: ...

    def push(self, token: int) -> bool: ...

    def cancel(self) -> None: ...


class Stop:
    """Ends a text at an end token, at a stop string, or at a limit; and hands out the text as it becomes final.

    `limit` counts generated tokens. A stop string may straddle tokens, and may name special tokens, which are not
    shown; the text ends before it, and the tokens end with the one that completed it. The text of an end token is left
    out, and no part of a stop string. `at_limit` is what has to be said of a text that the limit ends.
    """

    def __init__(
        self,
        *,
        limit: int,
        end_tokens: Collection[int] = (),
        strings: Sequence[str] = (),
        text: TextStream | None = None,
        at_limit: str | None = None,
    ) -> None:
        if strings and text is None:
            raise ConfigError("stop strings need a tokenizer; give one, or stop by token ids.")
        if not all(strings):
            raise ConfigError("a stop string is empty; it would end every text at once.")
        self._remaining = limit
        self._at_limit = at_limit
        self.end_tokens = frozenset(end_tokens)
        self._stream = text
        self._special = {} if text is None or not strings else text.special_tokens()
        self._strings = StopStrings(strings, self._special.values())
        self._given = 0
        self.text = ""
        """All text so far, less a stop string that was found."""
        self.reason: FinishReason | None = None
        self.match: int | str | None = None

    @property
    def remaining(self) -> int:
        """How many tokens the limit still allows."""
        return self._remaining

    @property
    def warning(self) -> str | None:
        """What has to be said of how the text ended, if anything."""
        return self._at_limit if self.reason == "length" else None

    def push(self, token: int) -> bool:
        """Add one token; return whether the text ends with it."""
        self._remaining -= 1
        if token in self.end_tokens:
            self._finish("stop", token)
        else:
            if self._stream is not None:
                self._extend(self._stream.push(token))
                if self.reason is None and token in self._special:
                    self._end_at(self._strings.add_special(self._special[token]))
            if self.reason is None and self._remaining <= 0:
                self._finish("length", None)
        return self.reason is not None

    def cancel(self) -> None:
        """End the text here because the user asked for it."""
        if self.reason is None:
            self._finish("cancelled", None)

    def readable(self) -> str:
        """Return the text that became final since the last call: what may still become a stop string is held back."""
        end = len(self.text) - (0 if self.reason else self._strings.held_back())
        new = self.text[self._given : end]
        self._given = max(self._given, end)
        return new

    def _extend(self, new: str) -> None:
        self.text += new
        self._end_at(self._strings.add(new))

    def _end_at(self, found: tuple[int, str] | None) -> None:
        if found is not None:
            at, self.match = found
            self.text = self.text[:at]
            self.reason = "stop"

    def _finish(self, reason: FinishReason, match: int | str | None) -> None:
        if self._stream is not None:
            self._extend(self._stream.finish())
        if self.reason is None:
            self.reason, self.match = reason, match
