"""What any engine gives back for a prompt, ours or another's: the text, and of the rest as much as it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from draftproof.records import FinishReason, Round


class Answer(Protocol):
    """One text of one engine. Our own `Generation` is one that tells everything; a `Reply` is anybody's."""

    @property
    def text(self) -> str | None:
        """The text without the prompt."""

    @property
    def tokens(self) -> tuple[int, ...] | None:
        """Its token ids, if they are known."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended, if that is known."""

    @property
    def first_s(self) -> float | None:
        """Seconds from the request to the first tokens, if that is known."""

    @property
    def total_s(self) -> float:
        """Seconds of the whole request."""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Every round, if the engine tells; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer without a ledger: what another engine tells of a text."""

    text: str | None
    """None in files that hold the tokens alone."""
    tokens: tuple[int, ...] | None
    finish_reason: FinishReason | None
    first_s: float | None
    total_s: float
    target_passes: int | None = None
    """Passes of the target behind the prompt, if it tells."""
    proposed: int | None = None
    accepted: int | None = None

    @property
    def rounds(self) -> tuple[Round, ...]:
        """None of them are told."""
        return ()


def same_answer(one: Answer, other: Answer) -> bool:
    """Return whether two answers are the same, by their tokens where both tell them, else by their texts."""
    if one.tokens is None or other.tokens is None:
        return one.text == other.text
    return one.tokens == other.tokens


def amounts(one: Answer, other: Answer) -> tuple[int, int]:
    """Return how much two answers wrote: tokens where both tell them, else characters."""
    if one.tokens is None or other.tokens is None:
        return len(one.text or ""), len(other.text or "")
    return len(one.tokens), len(other.tokens)
