"""What each command measures, as frozen records. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

from draftproof.options import Options
from draftproof.records import Divergence, Generation, Interval, Machine, Placement

SCHEMA_VERSION = 2


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What every result says of itself."""

    machine: Machine
    notes: tuple[str, ...] = ()
    """What a reader should know, such as a reason not to trust a number."""
    schema_version: int = SCHEMA_VERSION
    draftproof: str = field(default_factory=lambda: version("draftproof"))
    created: str = field(default_factory=_now)


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


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of text to measure on: one or more prompts."""

    name: str
    prompts: tuple[str, ...]
    chat: bool = False
    """Whether the prompts are messages that go through the target's chat template."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to write one prompt, measured several times: an arm of a race."""

    workload: str
    prompt: int
    """Index of the prompt in its workload."""
    draft: str | None
    """The draft's name; None for plain decoding."""
    k: int
    generations: tuple[Generation, ...]
    """One a repeat, in order; the plain cell of the same prompt has its twins at the same places."""
    identical: bool | None
    """Whether every repeat wrote the plain text; None if there was nothing to compare."""
    divergence: Divergence | None = None
    error: str | None = None
    """Why the cell has no numbers, if it failed."""


@dataclass(frozen=True, slots=True)
class PeerCell:
    """The same prompt written by another engine on the same models, between the same repeats."""

    workload: str
    prompt: int
    engine: str
    seconds: tuple[float, ...]
    tokens: tuple[tuple[int, ...], ...]
    """Generated ids, one text a repeat."""
    identical: bool | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult(Result):
    """One `draftproof bench`: the k sweep and the workload sweep."""

    target: str
    draft: str
    target_placement: Placement
    draft_placement: Placement
    ks: tuple[int, ...]
    """The k sweep, run on the first workload."""
    k: int
    """The one k of the other workloads."""
    options: Options
    """Of every text; repeat i of a sampled one is sample i of the seed."""
    repeats: int
    workloads: tuple[Workload, ...]
    engine: str
    """`draftproof`, or the engine that ran beside it."""
    cells: tuple[Cell, ...]
    peers: tuple[PeerCell, ...] = ()
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


AnyResult = CertifyResult | RunResult | OnePassResult | PreconditionResult | BenchResult | DraftsResult
