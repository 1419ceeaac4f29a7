"""Plain and speculative decoding of one text, turn by turn, to be watched or compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.bench.turns import take_turns
from draftproof.decode.divergence import same_text
from draftproof.engines.local import Speculator
from draftproof.engines.ours import prove
from draftproof.engines.request import seeded_as
from draftproof.engines.stream import Chunk, Stream
from draftproof.options import Options
from draftproof.records import Divergence, Generation

PLAIN, SPECULATIVE = "plain", "speculative"


class Race:
    """Streams of one prompt that take turns. Iterate it for (arm, chunk).

    `even` decides whose turn it is. `"tokens"`: the arm that wrote fewest, so that all meet the same state of the
    machine at the same place of the text; this is for measuring. `"time"`: the arm that had least time, so that each
    runs as it would alone on its share of the machine; this is for watching.
    """

    def __init__(self, streams: Mapping[str, Stream], even: Literal["tokens", "time"] = "tokens") -> None:
        self.streams: Mapping[str, Stream] = streams
        self._even = even

    def __iter__(self) -> Iterator[tuple[str, Chunk]]:
        return take_turns({arm: iter(stream) for arm, stream in self.streams.items()}, self._spent)

    def _spent(self, chunk: Chunk) -> float:
        done = chunk.round
        return len(done.tokens) if self._even == "tokens" else done.draft_s + done.target_s + done.overhead_s

    def cancel(self) -> None:
        """End all texts here."""
        for stream in self.streams.values():
            stream.cancel()


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, written both ways."""

    speculative: Generation
    plain: Generation
    """Plain decoding as fast as it goes here."""
    divergence: Divergence | None
    """None when the text is plain decoding's; under fixed numerics, of plain decoding in passes of the same shape."""


def first_divergence(pairs: Sequence[Pair]) -> Divergence | None:
    """Return where the first pair that differs parts, or None if all are the same."""
    return next((pair.divergence for pair in pairs if pair.divergence), None)


def duel(
    speculator: Speculator,
    prompt: Sequence[int],
    options: Options | None = None,
    *,
    plain: bool = True,
    even: Literal["tokens", "time"] = "tokens",
    sample: int = 0,
    **changes: Any,
) -> Race:
    """Return the race of speculative against plain decoding; without `plain` the speculative stream runs alone.

    Options are given as in `Speculator.stream`. Without a seed they get one, so that both ways draw alike.
    """
    wanted = Options.of(options, **changes).seeded()
    if sample == 0:  # further samples of a request find its prompt read
        speculator.forget()
    streams = {SPECULATIVE: speculator.stream(prompt, wanted, sample=sample)}
    if plain:
        streams[PLAIN] = speculator.unpadded.stream(prompt, wanted, k=0, sample=sample)
    return Race(streams, even)


def finish(race: Race) -> None:
    """Let all arms write to their end."""
    for _ in race:
        pass


def judge_pair(
    speculator: Speculator,
    prompt: Sequence[int],
    speculative: Generation,
    plain: Generation,
    options: Options | None = None,
) -> Pair:
    """Compare two finished texts; a difference is attributed, not raised.

    Under a rule whose plain text is another draw from the same law there is nothing to compare.
    """
    wanted = seeded_as(speculative, options)
    if not wanted.same_text:
        return Pair(speculative, plain, None)
    twin = prove(speculator, prompt, speculative, plain, wanted)
    found = None if same_text(speculative, twin) else speculator.attribute(prompt, speculative, twin, wanted)
    return Pair(speculative, plain, found)


def compare(
    speculator: Speculator,
    prompt: Sequence[int],
    options: Options | None = None,
    *,
    plain_first: bool = False,
    sample: int = 0,
    **changes: Any,
) -> Pair:
    """Write `prompt` both ways, turn by turn, and compare. Who begins pays for a cold start: let repeats alternate."""
    wanted = Options.of(options, **changes)
    race = duel(speculator, prompt, wanted, sample=sample)
    if plain_first:
        race.streams = dict(reversed(list(race.streams.items())))
    finish(race)
    made, plain = (race.streams[arm].generation for arm in (SPECULATIVE, PLAIN))
    return judge_pair(speculator, prompt, made, plain, wanted)
