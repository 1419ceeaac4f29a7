"""Schemes that draft while the target verifies, on two devices, priced from a trace without being built.

Each model has a device of its own, and passes cost there what they cost here, or where the costs are from: a step takes
as long as the slower of the two. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from draftproof.errors import ConfigError
from draftproof.forecast.predict import Costs
from draftproof.forecast.trace import Text

FAN = 16
"""Outcomes of a verification that are drafted for beforehand."""


def pearl(text: Text, draft: str, k: int, costs: Costs) -> float:
    """Return the seconds in which PEARL writes a text with `k` guesses a step. Source: Liu et al., arXiv 2408.11850.

    While the draft guesses, the target judges the first guess ahead (pre-verify). Once that is right, the draft goes on
    while the target judges what it has guessed (post-verify), until a guess fails.
    """
    right = _hits(text, draft)
    at, pending, seconds = 0, 0, 0.0
    drafting = costs.draft_s(k, k)
    while at < len(right):
        seconds += max(drafting, costs.target_s(pending)) + costs.overhead_s(k)
        run = 0
        while run <= pending and at + run < len(right) and right[at + run]:
            run += 1
        if run > pending:  # the first of the new guesses is right too
            at += run
            pending = k - 1
        else:
            at += run + 1
            pending = 0
    return seconds


def saguaro(text: Text, draft: str, k: int, costs: Costs, fan: int = FAN) -> float:
    """Return the seconds in which speculative speculative decoding writes a text with `k` guesses a round.

    While the target verifies, the draft guesses on behind the outcomes that are likeliest, `fan` in all: for every
    number of guesses kept some tokens that may follow, geometrically fewer the more have to be kept first. Where the
    outcome is among them the next guesses are there already. Its passes over several outcomes at once are taken to cost
    what one over one does. Source: arXiv 2603.03251.
    """
    right, ranks = _hits(text, draft), text.drafts[draft].ranks
    if not ranks:
        raise ConfigError("the trace does not say how likely the draft held other tokens; record it again.")
    rate = sum(right) / len(right)
    seconds, at, ready = 0.0, 0, False
    drafting = costs.draft_s(k, k)
    while at < len(right):
        seconds += (0.0 if ready else drafting) + max(costs.target_s(k), drafting) + costs.overhead_s(k)
        kept = 0
        while kept < k and at + kept < len(right) and right[at + kept]:
            kept += 1
        if at + kept < len(right):
            share = fan_out(rate, k, fan)[kept]
            # a guess that failed cannot be what follows
            ready = ranks[at + kept] < share + (kept < k)
        at += kept + 1
    return seconds


def fan_out(rate: float, k: int, fan: int) -> list[int]:
    """Return for every number of kept guesses, 0 to `k`, how many tokens behind them are drafted for.

    That many guesses are kept with probability rate ** kept, of which all but the last lose the rest.
    """
    weights = [rate**kept * (1 - rate if kept < k else 1.0) for kept in range(k + 1)]
    total = sum(weights) or 1.0
    return [max(1, round(fan * one / total)) for one in weights]


SCHEMES: Mapping[str, Callable[[Text, str, int, Costs], float]] = {"PEARL": pearl, "speculative speculative": saguaro}
"""Schemes by their names."""


def _hits(text: Text, draft: str) -> Sequence[bool]:
    """Whether the draft's guess at each place is the text's token."""
    told = text.drafts[draft]
    if not told.offers or not any(one.passes for one in told.offers):
        raise ConfigError(f"{draft!r} makes no passes whose time could be hidden, or draws its guesses.")
    return [one.tokens[:1] == (token,) for one, token in zip(told.offers, text.tokens, strict=True)]
