"""What a run and a certificate say, and all kinds of results. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from draftproof.options import Options
from draftproof.records import Divergence, Generation, Interval, Placement
from draftproof.results.base import Result
from draftproof.results.batch import BatchResult
from draftproof.results.bench import BenchResult, DraftsResult
from draftproof.results.forecast import ForecastResult
from draftproof.results.passes import OnePassResult, PreconditionResult


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a run was asked for."""

    target: str
    draft: str | None
    k: int
    prompt: str
    chat: bool
    options: Options
    """What was asked of the text; a seed that was drawn is in the generation."""
    check: bool
    repeats: int
    target_placement: Placement
    draft_placement: Placement | None
    target_window: int | None
    """Most tokens the target can read; None when it sets no limit."""
    draft_window: int | None
    """The same for the draft, as lowered by an option."""
    draft_context: int | None = None
    """Tokens of a prompt that the draft was to read, the last ones; None: by rule, as `settings` states it."""
    n: int = 1
    """Texts that were asked for, each from its own stream of chance."""
    policy: str | None = None
    """What chose the guesses of each round, at most `k`; None: their number was fixed."""
    messages: tuple[dict[str, Any], ...] | None = None
    """The conversation that was asked for, if one was; `prompt` then is what the chat template made of it."""
    tools: tuple[dict[str, Any], ...] | None = None
    continue_final_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Result):
    """One `draftproof run`: the speculative generation, and plain decoding of the same prompt where it was checked.

    In the file the fields of `generation` stand at the top level: `text`, `tokens`, `finish_reason`, `rounds`, …
    """

    recipe: Recipe
    generation: Generation
    plain: Generation | None
    speedup: Interval | None
    """Plain seconds a token / speculative seconds a token over the whole request, all repeats; None when it was not
    measured."""
    divergence: Divergence | None
    samples: tuple[Generation, ...] = ()
    """The further texts of a run with n above 1."""
    plain_samples: tuple[Generation, ...] = ()
    """Plain decoding of the same samples, where it was checked."""
    repeats: tuple[tuple[Generation, Generation], ...] = ()
    """Further interleaved pairs (speculative, plain) that only served the timing."""
    pieces: tuple[str, ...] = ()
    """What each token of the generation added to the text."""
    guesses: dict[int, str] = field(default_factory=dict)
    """The text of every guessed token id."""
    kind: Literal["run"] = "run"


@dataclass(frozen=True, slots=True)
class LawRow:
    """Every random outcome of one rule, proposer and k on a small vocabulary."""

    rule: str
    proposer: str
    k: int
    outcomes: int
    """Ways that chance can fall, all of them walked."""
    largest_difference: float
    """Between the probability of a text and the target's, over all texts; 0 is exact, as it is found in fractions."""
    first_round: float
    """Guesses that the first round keeps, expected."""


CALLED_DIFFERENT = 0.001
"""Two samples are called different if chance alone would give such a difference less often than this."""


@dataclass(frozen=True, slots=True)
class TwoSamples:
    """Whether two sets of samples can come from one law: Pearson's chi-square on their counts."""

    rule: str
    of: str
    """What was counted: the first tokens, or the first two."""
    samples: int
    """On each side."""
    bins: int
    """Kinds that were frequent enough to be counted by themselves, the rest as one."""
    statistic: float
    p_value: float
    visible: float | None
    """The smallest difference (total variation between the counted kinds) that such a test finds nine times in ten;
    None with a single kind, where nothing can be tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyResult(Result):
    """One `draftproof certify`."""

    rows: tuple[LawRow, ...]
    target: str | None
    draft: str | None
    k: int
    prompt: str | None
    options: Options | None
    """Of the samples from the pair."""
    tests: tuple[TwoSamples, ...] = ()
    kind: Literal["certify"] = "certify"


AnyResult = (
    CertifyResult
    | RunResult
    | OnePassResult
    | PreconditionResult
    | BenchResult
    | BatchResult
    | DraftsResult
    | ForecastResult
)
