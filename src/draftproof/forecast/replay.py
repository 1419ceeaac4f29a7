"""The loop again, from a trace: which guesses would have stood, and what that would have cost. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from draftproof.control import Controller, controller_of, start
from draftproof.errors import ConfigError
from draftproof.forecast.trace import Offer, Text
from draftproof.records import Round


class Price(Protocol):
    """Seconds of the parts of a round, for controllers that look at them."""

    def draft_s(self, passes: int, guesses: int) -> float:
        """Return those in which guesses are made."""
        ...

    def target_s(self, guesses: int) -> float:
        """Return those of the target's pass."""
        ...

    def overhead_s(self, guesses: int) -> float:
        """Return those of everything else."""
        ...


def replay(
    text: Text, draft: str | None, k: int | str | Controller, price: Price | None = None, depth: int | None = None
) -> tuple[Round, ...]:
    """Return the rounds in which the live loop writes `text` with this draft at `k`, or under a policy.

    Proposed, accepted, kept and cut tokens, draft and target passes are those of the live loop, exactly; seconds are
    what `price` says, 0 without. `draft` None is plain decoding. `depth` is the trace's. Raises `ConfigError` for a
    controller that asks for more guesses than the trace holds.
    """
    controller = controller_of(k)
    if draft is not None and depth is not None and controller.most > depth:
        raise ConfigError(f"k is {controller.most}, and the trace holds {depth} guesses a round; record a deeper one.")
    offers: Sequence[Offer] = () if draft is None else text.drafts[draft].offers
    truth = (*text.tokens, *text.beyond)
    policy = start(controller)
    rounds: list[Round] = []
    at = 0
    while at < len(text.tokens):
        asked = policy.next(rounds) if draft is not None else 0
        most = max(0, min(asked, text.limit - at - 1))
        offer = cut(offers[at], most, getattr(policy, "floor", 0.0)) if most else Offer(())
        accepted = _run(offer.tokens, truth[at : at + most])
        kept = min(accepted + 1, len(text.tokens) - at)
        done = len(offer.tokens)
        rounds.append(
            Round(
                proposed=offer.tokens,
                accepted=accepted,
                tokens=text.tokens[at : at + kept],
                cut=accepted + 1 - kept,
                draft_passes=offer.passes,
                draft_s=0.0 if price is None else price.draft_s(offer.passes, done),
                target_s=0.0 if price is None else price.target_s(done),
                overhead_s=0.0 if price is None else price.overhead_s(done),
                asked=asked,
                confidence=offer.confidence,
                source=draft or "",
            )
        )
        at += kept
    return tuple(rounds)


def cut(offer: Offer, k: int, floor: float = 0.0) -> Offer:
    """Return what is offered of it where at most `k` guesses are asked for, and drafting stops behind the guess with
    which the product of the confidences falls below `floor`.
    """
    stays = 1.0
    for guesses, share in enumerate(offer.confidence[:k], 1):
        stays *= share
        if stays < floor:
            k = guesses
            break
    return Offer(offer.tokens[:k], offer.confidence[:k], min(offer.passes, k))


def _run(guesses: Sequence[int], truth: Sequence[int]) -> int:
    """Return how many leading guesses are right."""
    right = 0
    for guess, token in zip(guesses, truth, strict=False):
        if guess != token:
            break
        right += 1
    return right


def seconds(rounds: Sequence[Round]) -> float:
    """Return the seconds of all rounds."""
    return sum(r.draft_s + r.target_s + r.overhead_s for r in rounds)


def oracle(text: Text, draft: str, most: int, price: Price) -> float:
    """Return the fewest seconds in which rounds of at most `most` guesses could have written the text: by one that
    knows beforehand which guesses stand, and chooses every k accordingly.
    """
    truth, n = (*text.tokens, *text.beyond), len(text.tokens)
    left = [0.0] * (n + 1)
    for at in reversed(range(n)):
        ways = []
        for k in range(max(0, min(most, text.limit - at - 1)) + 1):
            offer = cut(text.drafts[draft].offers[at], k)
            done = len(offer.tokens)
            if done < k:
                break
            right = _run(offer.tokens, truth[at : at + k])
            spent = price.draft_s(offer.passes, done) + price.target_s(done) + price.overhead_s(done)
            ways.append(spent + left[min(n, at + right + 1)])
        left[at] = min(ways)
    return left[0]
