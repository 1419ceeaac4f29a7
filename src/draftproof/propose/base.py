"""What the loop needs of whatever guesses ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from draftproof.exchange import Proposal


class Proposer(Protocol):
    """Guesses the tokens that the target would write next."""

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        """Start a request: read the prompt but its last token, and expect a text of about `reserve` tokens."""
        ...

    def propose(self, sequence: Sequence[int], k: int) -> Proposal:
        """Guess at most `k` tokens to follow `sequence`; fewer, or none, when there is nothing to offer."""
        ...
