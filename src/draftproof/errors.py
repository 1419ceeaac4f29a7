"""The errors a user can meet. Each says what went wrong, with which values, and what to try next.

DraftproofError
├── ConfigError      an option is out of range, or options contradict each other
├── LoadError        a model, tokenizer or file cannot be loaded
│   └── MissingExtraError an optional package is not installed
├── PairError        target and draft do not fit each other
├── CacheError       the model keeps its past in a form that cannot be addressed by position
├── CompileError     compiled passes cannot be had for this model or machine
├── ResultError      a results file cannot be read or written
├── EngineError      the model misbehaved while generating
└── DivergenceError  speculative and plain text differ
"""

from __future__ import annotations

from typing import ClassVar


def first_line(error: BaseException) -> str:
    """Return what somebody else's error says, in one line: its first, and what that announces; its kind, if nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines.pop(0) if lines else ""
    while lines and said.endswith((":", ",", ";")):
        said += f" {lines.pop(0)}"
    said = said.rstrip(":,; ")
    if " " not in said:  # a bare word, such as the key of a KeyError, tells nothing by itself
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said


def brief(error: BaseException) -> str:
    """Return the first line of somebody else's error as part of a sentence of ours: without a full stop, and cut where
    it goes on for ever."""
    said = first_line(error)
    return said.rstrip(".") if len(said) <= 300 else said[:300].rsplit(" ", 1)[0] + " …"


class DraftproofError(Exception):
    """Base of every error that draftproof raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What the command line exits with: 1 failed, 2 misused."""


class ConfigError(DraftproofError):
    """Raised when an option is out of range, or when options contradict each other."""

    exit_code = 2


class LoadError(DraftproofError):
    """Raised when a model, a tokenizer or a file cannot be loaded."""

    exit_code = 2


class MissingExtraError(LoadError):
    """Raised when an optional package is needed and not installed."""


class PairError(DraftproofError):
    """Raised when target and draft do not fit each other, before anything is generated."""

    exit_code = 2


class CacheError(DraftproofError):
    """Raised when a model's cache cannot be addressed by position, so that guesses could not be taken back."""

    exit_code = 2


class CompileError(DraftproofError):
    """Raised when compiled passes cannot be had for this model or on this machine; decoding goes on without them."""


class ResultError(DraftproofError):
    """Raised when a results file cannot be read or written."""

    exit_code = 2


class EngineError(DraftproofError):
    """Raised when a model misbehaves while generating, for example by returning NaN."""


class DivergenceError(DraftproofError):
    """Raised when speculative and plain decoding wrote different tokens."""
