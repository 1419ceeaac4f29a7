"""A text on a server: what is wanted of it, what is told of it, and who listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from draftproof.engines.batch import Text
from draftproof.options import Options
from draftproof.records import Generation, Logprob, Round


@dataclass(frozen=True, slots=True)
class Wanted:
    """One text that a request asks for."""

    ids: Sequence[int]
    options: Options
    k: int | str | None = None
    sample: int = 0
    scores: int | None = None
    """Alternatives to give with the prompt's own log-probabilities; None: they are not wanted."""
    writes: bool = True
    """Whether anything is to be written; if not, only the prompt's log-probabilities are wanted."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a round added to a text."""

    text: str
    """Text that became final."""
    round: Round | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a text ended."""

    generation: Generation | None
    prompt_logprobs: tuple[Logprob | None, ...] = ()


Event = Piece | Ended | Exception


@dataclass(eq=False, slots=True)
class Running:
    """A text between its client and the thread."""

    wanted: Wanted
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    text: Text | None = None
    cancelled: bool = False
    rounds: list[Round] = field(default_factory=list)
    scored: list[Logprob | None] = field(default_factory=list)
    arrived_s: float = 0.0
    last_s: float | None = None
    """When its last round was written."""

    def tell(self, event: Event) -> None:
        """Hand an event to the client's loop, which may have gone."""
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:
            self.cancelled = True

    def cancel(self) -> None:
        """Say that nobody waits for it any more."""
        self.cancelled = True
        if self.text is not None:
            self.text.cancel()

    async def pieces(self) -> AsyncIterator[Piece | Ended]:
        """Yield what is written as it becomes final, and how it ended last. Raises what ended it otherwise."""
        try:
            while True:
                event = await self.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Ended):
                    return
        finally:
            self.cancel()


class Watcher:
    """What hears of what happens; `server.metrics` has the one that counts. Called in the engine's thread."""

    def round(self, running: Running, done: Round) -> None:
        """A round was written."""

    def ended(self, running: Running, generation: Generation) -> None:
        """A text ended."""

    def checked(self, same: bool) -> None:
        """A finished text was written again, alone and plainly."""
