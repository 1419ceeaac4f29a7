"""What happened, as frozen records without tensors. Seconds and fractions here; milliseconds and per cent on screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Literal

from draftproof.options import Rule

FinishReason = Literal["stop", "length", "cancelled"]
"""`stop`: by an end token or a stop string; `length`: by a limit or the model's window; `cancelled`: interrupted."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely the target held a token, under its own law: before temperature, penalties and all other transforms."""

    token: int
    logprob: float | None
    """Natural logarithm of the probability; None if that is 0."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens of this position, best first, with theirs."""


@dataclass(frozen=True, slots=True)
class Round:
    """One proposal, one verification pass of the target, one verdict."""

    proposed: tuple[int, ...]
    """The guesses, empty in a plain round."""
    accepted: int
    """How many leading guesses the rule kept, before anything was cut at the end of the text."""
    tokens: tuple[int, ...]
    """What the round added to the text: accepted guesses, then the target's own token, less what was cut at the end."""
    cut: int
    """Tokens that the verdict allowed and the end of the text took away."""
    draft_passes: int
    draft_s: float
    """Seconds in which guesses were made."""
    target_s: float
    """Seconds of the target's pass over the pending token and the guesses."""
    overhead_s: float
    """Seconds of everything else in the round: the verdict, the stop rules, decoding text, this record."""
    logprobs: tuple[Logprob, ...] | None = None
    """One for each of `tokens`, if the request asked for them."""
    asked: int | None = None
    """Guesses that the controller asked for, before the end of the text was in sight; None in files that do not say."""
    confidence: tuple[float, ...] = ()
    """For each of `proposed` how likely the proposer held it; empty where it does not say."""
    source: str = ""
    """Who guessed."""
    beside: int = 0
    """Rows of other requests in the target's pass; `target_s` then is this request's share of its seconds."""

    @property
    def drafted(self) -> int:
        """Tokens of the text that came from the draft."""
        return min(self.accepted, len(self.tokens))


@dataclass(frozen=True, slots=True)
class Counts:
    """The ledger's counts. They obey tokens = accepted + rounds - cut, and proposed = accepted + discarded."""

    tokens: int
    rounds: int
    target_passes: int
    draft_passes: int
    proposed: int
    accepted: int
    discarded: int
    cut: int
    acceptance_rate: float | None
    """accepted / proposed over all guesses, those behind a rejection included; None when nothing was proposed."""
    tokens_per_round: float | None
    """tokens / rounds, corrections and bonuses included; None before the first round."""
    acceptance_by_position: tuple[float, ...] = ()
    """For each place in a round: of the rounds that proposed so many guesses, the share that kept the one there."""

    def __repr__(self) -> str:
        return (
            f"<Counts: {self.tokens} tokens in {self.rounds} rounds, "
            f"{self.accepted} of {self.proposed} guesses accepted, {self.draft_passes} draft passes>"
        )


def acceptance_by_position(rounds: Iterable[Round]) -> tuple[float, ...]:
    """Return, for each place in a round, the share of kept guesses, of rounds that proposed so many."""
    proposed: list[int] = []
    kept: list[int] = []
    for one in rounds:
        missing = max(0, len(one.proposed) - len(proposed))
        proposed, kept = proposed + [0] * missing, kept + [0] * missing
        for i in range(len(one.proposed)):
            proposed[i] += 1
            kept[i] += i < one.accepted
    return tuple(k / n for k, n in zip(kept, proposed, strict=True))


def count(rounds: Sequence[Round]) -> Counts:
    """Add up the counts of `rounds`."""
    tokens = sum(len(r.tokens) for r in rounds)
    proposed = sum(len(r.proposed) for r in rounds)
    accepted = sum(r.accepted for r in rounds)
    return Counts(
        tokens=tokens,
        rounds=len(rounds),
        target_passes=len(rounds),
        draft_passes=sum(r.draft_passes for r in rounds),
        proposed=proposed,
        accepted=accepted,
        discarded=proposed - accepted,
        cut=sum(r.cut for r in rounds),
        acceptance_rate=accepted / proposed if proposed else None,
        tokens_per_round=tokens / len(rounds) if rounds else None,
        acceptance_by_position=acceptance_by_position(rounds),
    )


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time went. The parts add up to `total_s`, which is read from the clock on its own."""

    prompt_s: float
    """Reading the prompt into the target and, where there is one, the draft."""
    draft_s: float
    target_s: float
    overhead_s: float
    total_s: float
    """From the first read of the prompt to the last token, without the time that a reader of the stream took."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished (or interrupted) request: the text, its tokens, and the record of every round."""

    text: str
    tokens: tuple[int, ...]
    """Generated token ids, the token that completed the stop included; a stop string is cut from `text` only."""
    finish_reason: FinishReason
    stop: int | str | None
    """An end token's id, a stop string, in transformers' `generate` the class of another criterion, or None."""
    prompt_tokens: int
    k: int
    """Guesses asked for in a round; 0 is plain decoding."""
    rounds: tuple[Round, ...]
    counts: Counts
    seconds: Seconds
    identical: bool | None = None
    """True when plain decoding of the same prompt wrote the same tokens; None when that was not checked."""
    warnings: tuple[str, ...] = ()
    verify: Rule = "greedy"
    """The rule that judged guesses; `greedy` at temperature 0."""
    seed: int | None = None
    """The seed of a sampled text: with it, and the same options, the text can be written again."""
    sample: int = 0
    """Which of a request's samples this is."""
    prompt_tokens_reused: int = 0
    """Of the prompt's tokens, those that the target held from an earlier request, and did not read again."""

    @property
    def logprobs(self) -> tuple[Logprob, ...] | None:
        """One for each of `tokens`, or None if the request did not ask for them."""
        found = [r.logprobs for r in self.rounds if r.logprobs is not None]
        return tuple(one for logprobs in found for one in logprobs) if found else None

    @property
    def total_s(self) -> float:
        """Seconds of the whole request, as any engine's `Answer` says them."""
        return self.seconds.total_s

    @property
    def first_s(self) -> float | None:
        """Seconds to the first tokens: the reading of the prompt, and the first round."""
        first = self.rounds[:1]
        return self.seconds.prompt_s + first[0].draft_s + first[0].target_s + first[0].overhead_s if first else None

    @property
    def draft_pass_s(self) -> float | None:
        """Median seconds of one draft pass, or None without a draft."""
        times = [r.draft_s / r.draft_passes for r in self.rounds if r.draft_passes]
        return median(times) if times else None

    @property
    def target_pass_s(self) -> float | None:
        """Median seconds of one target pass, whatever its width, or None before the first round."""
        return median(r.target_s for r in self.rounds) if self.rounds else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second over the whole request, reading the prompt included; None when nothing was generated."""
        return len(self.tokens) / self.seconds.total_s if self.tokens and self.seconds.total_s > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens a second behind the prompt, reading it left out; None when nothing was generated."""
        seconds = self.seconds.total_s - self.seconds.prompt_s
        return len(self.tokens) / seconds if self.tokens and seconds > 0 else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """As in `counts`, from the rounds, which files of earlier versions hold too."""
        return acceptance_by_position(self.rounds)

    def _facts(self) -> list[tuple[str, str]]:
        """Return what there is to say of the text in a few words, by name."""
        found = [("tokens", f"{len(self.tokens)}"), ("ended by", self.finish_reason), ("k", f"{self.k}")]
        if self.counts.acceptance_rate is not None:
            found.append(("accepted", f"{self.counts.acceptance_rate:.0%}"))
        if self.tokens_per_s is not None:
            found.append(("tokens per second", f"{self.tokens_per_s:.1f}"))
        return found + ([] if self.identical is None else [("identical", "yes" if self.identical else "NO")])

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 40 else f"{self.text[:40]}…"
        said = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"<Generation {text!r}: {said}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts())
        return f'<pre style="white-space: pre-wrap">{escape(self.text)}</pre><table>{rows}</table>'


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where speculative and plain decoding part, and why."""

    position: int
    """Index of the first differing generated token."""
    speculative_token: int | None
    plain_token: int | None
    """Token ids; None where that text had already ended."""
    speculative_gap: float | None
    plain_gap: float | None
    """Difference of the two best logits in the pass that chose each token."""
    block_flips: bool
    """Whether scoring the plain text in blocks, with no draft in play, chooses another token here than plain did."""
    noise: float | None
    """Largest difference that the block's shape alone made to a logit at this position."""
    kind: Literal["numeric tie", "bug"]
    settled: bool | None = None
    """Whether both ways gave the same bits once all passes had one shape, so that only the shapes can be to blame; None
    if that was not tried."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs and in which number format, and why."""

    device: str
    dtype: str
    reason: str
    passes: Literal["compiled", "graphs", "transformers"] = "transformers"
    """Who runs the passes: compiled code of ours, transformers' kernels from captured graphs, or transformers."""
    weights: str | None = None
    """What the weights were quantised to, if they were: here, or before they were stored."""
    adapter: str | None = None
    """The adapter that was merged into the weights, if one was."""
    own_code: bool = False
    """Whether code from the model's own files ran, as it was trusted."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """Whether plain and speculative decoding compute a row alike to the last bit, and why."""

    kind: Literal["fixed", "fast"]
    """`fixed`: the same bits with speculation on and off; `fast`: every pass in its cheapest shape."""
    shape: int | None
    """Tokens that every pass is padded to, or None where passes are not padded."""
    reason: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that measured."""

    cpu: str
    cores: int
    memory_bytes: int
    gpu: str | None
    system: str
    python: str
    torch: str
    transformers: str
    threads: int


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95
