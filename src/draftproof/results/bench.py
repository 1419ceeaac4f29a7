"""What races between ways to write say, as frozen records. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from draftproof.answers import Reply
from draftproof.options import Options
from draftproof.records import Divergence, Generation, Placement
from draftproof.results.base import Result
from draftproof.results.passes import PassTimes

OURS = "draftproof"
"""The name of our own engine."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of text to measure on: one or more prompts."""

    name: str
    prompts: tuple[str | tuple[dict[str, Any], ...], ...]
    """Texts, or conversations: messages as OpenAI's interface writes them, the last of which is to be answered."""
    chat: bool = False
    """Whether texts are messages that go through the target's chat template; conversations do anyway."""
    responses: tuple[str, ...] = ()
    """What was written after each prompt by a model that ran elsewhere, where that is known."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to write: an engine and its settings."""

    draft: str | None = None
    """Who guesses, by name; None where nobody does, or the engine does not say."""
    k: int | None = 0
    """Most guesses of a round, 0 for plain decoding; None where the engine chooses."""
    engine: str = OURS
    way: str = ""
    """Which of the engine's ways of writing, where it has several; of ours the policy that chooses the guesses of each
    round, where their number is not fixed."""

    @property
    def ours(self) -> bool:
        """Whether this is draftproof itself."""
        return self.engine == OURS

    @property
    def plain(self) -> bool:
        """Whether this is our plain decoding, with which the others are compared."""
        return self.ours and not self.k

    @property
    def asks(self) -> int | str | None:
        """What of ours decides how much is guessed: a number, or the name of a policy."""
        return self.way or self.k

    @property
    def name(self) -> str:
        """What it is called where there is little room."""
        if self.ours:
            return self.way or (f"k={self.k}" if self.k else "plain")
        return (self.way or self.engine) + (f" k={self.k}" if self.k else "")


@dataclass(frozen=True, slots=True)
class Cell:
    """One prompt written one way, several times: an arm of a race."""

    workload: str
    prompt: int
    """Index of the prompt in its workload."""
    arm: Arm
    answers: tuple[Generation | Reply, ...]
    """One a repeat, in order; the plain cell of the same prompt has its twins at the same places."""
    identical: bool | None
    """Whether every repeat wrote the plain text; None if there was nothing to compare."""
    divergence: Divergence | None = None
    error: str | None = None
    """Why the cell has no numbers, if it failed."""

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Those answers that tell every round: ours."""
        return tuple(answer for answer in self.answers if isinstance(answer, Generation))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult(Result):
    """One `draftproof bench`: the k sweep and the workload sweep."""

    target: str
    draft: str
    target_placement: Placement
    draft_placement: Placement | None
    """None where what guesses is no model."""
    ks: tuple[int | str, ...]
    """The k sweep, run on the first workload: numbers, and names of policies."""
    k: int | str
    """The one k of the other workloads."""
    options: Options
    """Of every text; repeat i of a sampled one is sample i of the seed."""
    repeats: int
    workloads: tuple[Workload, ...]
    engine: str
    """`draftproof`, or the engine that ran beside it."""
    cells: tuple[Cell, ...]
    numerics: str = "fast"
    """What was asked for: `fixed`, `fast` or `auto`; compiled passes are fixed whatever it was."""
    by_rule: bool | None = None
    """Whether it came to fixed numerics, where texts on and off are the same by rule; None in older files."""
    kind: Literal["bench"] = "bench"


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """What one draft is on this target, machine and text."""

    draft: str
    placement: Placement | None
    error: str | None
    """Why it could not be measured, if so."""
    pass_s: float | None = None
    """Median seconds of one draft pass."""
    c: float | None = None
    agreement: float | None = None
    """Estimated alpha: right guesses / tested guesses."""
    best_k: int | None = None
    """The k with the best forecast from agreement and measured costs; 0 if none beats plain decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftsResult(Result):
    """One `draftproof drafts`: several drafts for one target, at one k and each at its own best."""

    target: str
    target_placement: Placement
    k: int
    options: Options
    repeats: int
    workload: Workload
    curve: PassTimes
    facts: tuple[DraftFacts, ...]
    cells: tuple[Cell, ...]
    """Plain decoding and every draft at `k`."""
    best_cells: tuple[Cell, ...]
    """Plain decoding again, and every draft at its own best k."""
    numerics: str = "fast"
    """As in a bench."""
    kind: Literal["drafts"] = "drafts"
