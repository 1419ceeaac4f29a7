"""What a rule is, and what it is given."""

from __future__ import annotations

from typing import Any, Protocol

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance


class TargetRows(Protocol):
    """What the target says at each position of a round; position i stands behind the text and the first i guesses."""

    def token(self, i: int) -> int:
        """Return the target's own token there; asked in order, and not behind a guess that fails."""
        ...

    def law(self, i: int) -> Any:
        """Return the target's law there, `[width]`; asked in order, and not behind a guess that fails."""
        ...

    def law_ahead(self, i: int) -> Any:
        """As `law`, for a position that may turn out to stand behind a guess that fails."""
        ...

    def settle(self, accepted: int) -> None:
        """Tell, after `law_ahead`, how many guesses were kept."""
        ...


class Judge(Protocol):
    """A rule by which the target judges guesses. It must leave the law of the text to the target, whatever they are."""

    @property
    def draws(self) -> bool:
        """Whether it draws tokens in turn, so that guesses have to be drawn too, and plain decoding writes another text
        of the same law; if not, a text is the same whatever was guessed."""
        ...

    def judge(self, rows: TargetRows, proposal: Proposal, chance: Chance) -> Verdict:
        """Keep a leading run of the guesses, and choose or draw the token behind it."""
        ...
