"""Many texts at once on one pair: every text is the one that it is alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from draftproof.control import Controller
from draftproof.control.auto import Auto
from draftproof.control.budget import Pace
from draftproof.decode.request import Request
from draftproof.decode.scheduler import BESIDE, Scheduler
from draftproof.decode.seat import Seat, Told
from draftproof.decode.stop import Stop
from draftproof.errors import ConfigError
from draftproof.models.pool import Memory, Pool
from draftproof.options import Options
from draftproof.propose.draft import Draft
from draftproof.records import Generation, Round
from draftproof.sampling.processors import Processor

if TYPE_CHECKING:
    from draftproof.engines.local import Speculator

AT_ONCE = 16
"""Texts that are written at once, unless told otherwise."""


class Text:
    """One text of a batch: what was written of it so far, and how it ended."""

    def __init__(self, seat: Seat, stop: Stop) -> None:
        self._seat = seat
        self._stop = stop

    @property
    def over(self) -> bool:
        """Whether it has ended: at its end, by an error, or cancelled."""
        return self._seat.over

    @property
    def error(self) -> Exception | None:
        """What ended it before its end."""
        return self._seat.error

    @property
    def generation(self) -> Generation:
        """The record so far; seconds are its shares of passes, and the time that it waited for others is left out."""
        return self._seat.request.generation()

    def readable(self) -> str:
        """Return text that became final since the last call."""
        return self._stop.readable()

    def cancel(self) -> None:
        """End it here, behind the pass that is running."""
        self._seat.cancel()


class Batch:
    """Writes many texts at once with a `Speculator`: `add` them, and `step` until all are over.

    Passes are shared: the target reads the tokens of all texts in one, and one pass of the draft serves all that still
    guess. With compiled passes, or fixed numerics, every text is, bit for bit, the one that it is alone; through
    transformers in `fast` numerics only up to rounding. Requests whose k is `"auto"` share one budget of guesses, which
    falls to none where the passes are full. `memory` is how many bytes the caches may have: texts wait for their turn
    then, and give up their cache for older ones, to be read again. For one thread at a time.
    """

    def __init__(
        self, speculator: Speculator, *, at_once: int = AT_ONCE, memory: int | None = None, beside: int = BESIDE
    ) -> None:
        """`beside` is how many tokens of prompts are read in a pass beside texts. Raises `ConfigError`."""
        for name, value in (("at_once", at_once), ("memory", memory), ("beside", beside)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number, at least 1.")
        self.speculator = speculator
        limit = Memory(memory)
        draft = speculator.draft_session
        self.scheduler = Scheduler(
            Pool(speculator.target_session, limit),
            None if draft is None else Pool(draft, limit),
            limit,
            speculator.clock,
            at_once=at_once,
            beside=beside,
        )

    def warm_up(self, sizes: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> None:
        """Run passes over so many tokens, so that first-time costs fall outside, and their seconds are known."""
        target, draft = self.speculator.pass_times(sizes)
        self.scheduler.pace, self.scheduler.draft_pace = Pace(target), Pace(draft)

    def add(
        self,
        prompt: str | Sequence[int],
        options: Options | None = None,
        *,
        k: int | str | Controller | None = None,
        sample: int = 0,
        processors: Sequence[Processor] = (),
        chat: bool = False,
        on_round: Callable[[Round], object] = lambda done: None,
        **changes: Any,
    ) -> Text:
        """Let a text wait for its turn; arguments are those of `Speculator.stream`. Raises `ConfigError`."""
        speculator = self.speculator
        wanted = Options.of(options, **changes).seeded()
        ids = speculator.encode(prompt, chat=chat)
        controller = speculator.controller_for(wanted, k)
        rule, parts = speculator.parts_of(ids, wanted, controller, sample, processors)
        proposer, told, learned = parts["proposer"], None, None
        if isinstance(controller, Auto) and proposer is not None:
            told, learned = Told(controller.most), controller.start()
        request = Request(ids, width=speculator.target_width, controller=told or controller, **parts)
        seat = Seat(request, proposer if isinstance(proposer, Draft) else None, told, learned, on_round)
        self.scheduler.add(seat)
        return Text(seat, rule)

    @property
    def busy(self) -> bool:
        """Whether there are texts that are not over."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def step(self) -> None:
        """Write a round of every text whose turn it is."""
        self.scheduler.step()


def write_many(
    batch: Batch, prompts: Sequence[str | Sequence[int]], options: Options | None = None, **given: Any
) -> Iterator[tuple[int, Text]]:
    """Write a text after each prompt, and yield the prompt's index and the text as soon as it is over.

    A text that failed has its `error`; the others go on. `given` is as in `Batch.add`. Raises `ConfigError` before
    anything is written.
    """
    left = {i: batch.add(prompt, options, **given) for i, prompt in enumerate(prompts)}
    while left:
        batch.step()
        for i in [i for i, text in left.items() if text.over]:
            yield i, left.pop(i)
