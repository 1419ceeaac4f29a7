"""What passes of a model cost and say, as frozen records. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.records import Placement
from draftproof.results.base import Result


@dataclass(frozen=True, slots=True)
class OnePassRow:
    """One position of a text: what the model predicts after it."""

    token: int
    prefix: str
    """The text up to and including this token."""
    predicted: int
    predicted_text: str
    shortened: int | None
    """The prediction at this position from the pass over the shortened text; None where that had ended."""
    shortened_text: str | None
    largest_difference: float | None
    """Largest difference of a logit between the two passes at this position."""


@dataclass(frozen=True, slots=True)
class OnePass:
    """All positions of a text from one pass, and from a pass over the shortened text."""

    dtype: str
    rows: tuple[OnePassRow, ...]
    largest_difference: float
    same_tokens: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassResult(Result):
    """One `draftproof one-pass`."""

    model: str
    text: str
    cut: int
    passes: tuple[OnePass, ...]
    """The chosen number format, and float32 where that is another."""
    kind: Literal["one-pass"] = "one-pass"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of passes over one number of new tokens, in the order measured; the warm-up is kept apart."""

    tokens: int
    seconds: tuple[float, ...]
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class PassTimes:
    """What passes of one model cost."""

    model: str
    role: Literal["target", "draft"]
    placement: Placement
    timings: tuple[Timing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreconditionResult(Result):
    """One `draftproof precondition`."""

    context: int
    """Tokens in the cache before each timed pass."""
    sweeps: int
    passes: tuple[PassTimes, ...]
    """The target first; then the draft, or the target in other number formats."""
    kind: Literal["precondition"] = "precondition"
