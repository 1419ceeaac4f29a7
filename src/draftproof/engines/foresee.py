"""What would be guessed along a text that is known: what traces are made of."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from draftproof.control import Fixed
from draftproof.engines.request import sampler_of
from draftproof.errors import ConfigError
from draftproof.exchange import Proposal, trimmed
from draftproof.options import Options
from draftproof.propose.base import Foresight

if TYPE_CHECKING:
    from draftproof.engines.local import Speculator

ROWS = 128
"""Rows of logits that are looked at together."""


class Foreseen(NamedTuple):
    """What would be guessed in the place of every token of a text."""

    offers: tuple[Proposal, ...]
    ranks: tuple[int, ...]
    """As in `propose.base.Foresight`."""
    odds: tuple[float, ...]
    """Where guesses are drawn, and `offers` is empty: how much likelier than the target the draft held each token."""
    prompt_s: float
    """Seconds that the proposer took over the prompt."""


def foresee(
    pair: Speculator,
    prompt: Sequence[int],
    text: Sequence[int],
    depth: int,
    options: Options | None = None,
    sample: int = 0,
) -> Foreseen:
    """Return what `pair` would guess, at most `depth` tokens, in the place of every token of `text`, which its target
    wrote behind `prompt` (token ids) with these options.

    A round of the loop that stands there and asks for no more makes the same guesses; under the rules that draw them,
    the odds say how likely each token would have been guessed and kept. Raises `ConfigError`, also for proposers that
    draw guesses and cannot say from what.
    """
    wanted = Options.of(options).seeded()
    session, window = pair.target_session, pair.target_window
    stop, parts = pair.parts_of(prompt, wanted, Fixed(depth), sample)
    proposer, sampler = parts["proposer"], parts["sampler"]
    if proposer is None:
        raise ConfigError("nobody guesses here; name a draft.")
    reserve = len(prompt) + wanted.max_new_tokens
    reserve = reserve if window is None else min(reserve, window)
    started = pair.clock.now()
    proposer.begin(prompt, reserve)
    prompt_s = pair.clock.now() - started
    told: Foresight | None = getattr(proposer, "foresee", lambda *_: None)(prompt, text, depth)
    if told is None:
        proposer = pair.parts_of(prompt, wanted, Fixed(depth), sample)[1]["proposer"]
        proposer.begin(prompt, reserve)
        places = [[*prompt, *text[:i]] for i in range(len(text))]
        offers = [proposer.propose(at, depth, sampler.chance.aside(i)) for i, at in enumerate(places)]
        if any(one.q is not None for one in offers):
            raise ConfigError(f"{pair.guesses_by} draws its guesses, and these cannot be foreseen one by one.")
        told = Foresight(tuple(offers))
    odds: list[float] = []
    if told.shares:
        own = sampler_of(pair.target, session.width, wanted, len(prompt), sample)
        for i, (token, share) in enumerate(zip(text, told.shares, strict=True)):
            if i % ROWS == 0:
                ahead = text[: i + ROWS][:-1]
                rows = session.read([*prompt, *ahead], len(ahead) - i + 1)
            chance = float(own.law(rows[i % ROWS], [*prompt, *text[:i]])[token])
            odds.append(share / chance if chance > 0 else inf)
    kept = tuple(trimmed(one, depth, session.width, stop.end_tokens) for one in told.offers)
    return Foreseen(kept, told.ranks, tuple(odds), prompt_s)
