"""What the loop needs of whatever guesses ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance
from draftproof.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Terms:
    """What a request lays down for whoever guesses for it."""

    width: int
    """The target's number of logits; ids at or above it are no guesses."""
    end_tokens: frozenset[int] = frozenset()
    """What ends the text; nothing is kept of guesses behind one."""
    sampler: Sampler | None = None
    """How the request turns rows into tokens, for those who do likewise; None: by the largest logit."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """What a proposer would make of a text that is known, at the place of each of its tokens."""

    offers: tuple[Proposal, ...] = ()
    """What it would offer; empty where guesses are drawn."""
    ranks: tuple[int, ...] = ()
    """How many tokens it holds likelier than the text's; empty where it does not say."""
    shares: tuple[float, ...] = ()
    """Where guesses are drawn: the share that the text's token has in the law that its guess is drawn from."""


class Proposer(Protocol):
    """Guesses the tokens that the target would write next, for one request.

    Nobody trusts it: what cannot be verified is dropped, and where it raises an error the round goes on without
    guesses. Whatever it offers, the text stays the target's. One that has a `floor` is told there, before it is asked,
    when to stop guessing: behind the guess with which the product of its confidences falls below it.
    """

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        """Start the request: read the prompt but its last token, and expect a text of about `reserve` tokens."""
        ...

    def propose(self, sequence: Sequence[int], k: int, chance: Chance) -> Proposal:
        """Guess at most `k` tokens to follow `sequence`; fewer, or none, when there is nothing to offer.

        Guesses that are drawn are drawn from `chance`, a stream of this round's own, and carry their laws (`q`).
        """
        ...

    def hear(self, proposal: Proposal, verdict: Verdict, states: Tensor | None) -> None:
        """Learn what the target made of the guesses, less what was dropped of them.

        `states` is None unless the proposer says `wants_states = True`: then the target's final hidden states, behind
        its last norm, of the text's last token before the round and of each guess that was kept, `[accepted + 1,
        hidden]`; tensors of inference, so `torch.inference_mode()` or a clone is needed to compute with them.
        """
        ...


class Unmade:
    """Stands for a proposer that could not be made: it fails where that is found out, and the text goes on."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        raise self._error

    def propose(self, sequence: Sequence[int], k: int, chance: Chance) -> Proposal:
        raise self._error

    def hear(self, proposal: Proposal, verdict: Verdict, states: Tensor | None) -> None:
        raise self._error


Making = Callable[[Terms], Proposer]
"""Makes a proposer for each request: a class whose objects are made of `Terms`, or a function."""
