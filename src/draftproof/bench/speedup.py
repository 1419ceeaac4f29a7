"""Is it faster, and by how much? Plain and speculative decoding of one prompt, interleaved in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftproof.decode.divergence import same_text
from draftproof.engines.local import Chunk, Speculator, Stream
from draftproof.records import Divergence, Generation, Interval

Arm = Literal["speculative", "plain"]
Floats = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, written both ways."""

    speculative: Generation
    plain: Generation
    divergence: Divergence | None
    """None when the two are the same."""


class Race:
    """Two streams of one prompt that take turns. Iterate it for (arm, chunk); ask `pair()` when it is done.

    `even` decides whose turn it is. `"tokens"`: the arm that wrote fewer, so that both meet the same state of the
    machine at the same place of the text; this is for measuring. `"time"`: the arm that had less time, so that each
    runs as it would alone on half the machine; this is for watching. Without `plain` the speculative stream runs alone.
    """

    def __init__(
        self,
        speculator: Speculator,
        prompt: Sequence[int],
        *,
        max_new_tokens: int = 128,
        stop: Sequence[str] = (),
        even: Literal["tokens", "time"] = "tokens",
        plain: bool = True,
    ) -> None:
        self._speculator = speculator
        self._prompt = prompt
        self._even = even
        self.streams: dict[Arm, Stream] = {
            "speculative": speculator.stream(prompt, max_new_tokens=max_new_tokens, stop=stop)
        }
        if plain:
            self.streams["plain"] = speculator.stream(prompt, max_new_tokens=max_new_tokens, stop=stop, k=0)

    def __iter__(self) -> Iterator[tuple[Arm, Chunk]]:
        running = {arm: iter(stream) for arm, stream in self.streams.items()}
        spent: dict[Arm, float] = dict.fromkeys(running, 0.0)
        while running:
            arm = min(running, key=lambda a: spent[a])
            chunk = next(running[arm], None)
            if chunk is None:
                del running[arm]
                continue
            done = chunk.round
            spent[arm] += len(done.tokens) if self._even == "tokens" else done.draft_s + done.target_s + done.overhead_s
            yield arm, chunk

    def cancel(self) -> None:
        """End both texts here."""
        for stream in self.streams.values():
            stream.cancel()

    def pair(self) -> Pair:
        """Compare the two finished texts; a difference is attributed, not raised."""
        speculative, plain = self.streams["speculative"].generation, self.streams["plain"].generation
        same = same_text(speculative, plain)
        found = None if same else self._speculator.attribute(self._prompt, speculative, plain)
        return Pair(speculative, plain, found)


def race(speculator: Speculator, prompt: Sequence[int], *, max_new_tokens: int = 128, stop: Sequence[str] = ()) -> Pair:
    """Write `prompt` both ways, turn by turn, and return the pair."""
    contest = Race(speculator, prompt, max_new_tokens=max_new_tokens, stop=stop)
    for _ in contest:
        pass
    return contest.pair()


def speedup(pairs: Sequence[tuple[Generation, Generation]], seed: int = 0) -> Interval:
    """Return plain seconds / speculative seconds over (speculative, plain) pairs, with a 95 % bootstrap interval.

    Both arms wrote the same tokens, so what is uncertain is the timing: each pass's seconds are resampled among the
    passes of the same arm and width. The interval speaks of this text on this machine, not of other texts.
    """
    arms = [_samples([pair[i] for pair in pairs]) for i in (1, 0)]
    varying = [times for samples, _ in arms for times in samples]
    split = len(arms[0][0])
    (_, plain_rest), (_, speculative_rest) = arms

    def ratio(*samples: Floats, axis: int = -1) -> Floats:
        totals = [times.sum(axis=axis) for times in samples]
        return np.asarray((plain_rest + sum(totals[:split])) / (speculative_rest + sum(totals[split:])))

    value = float(ratio(*[np.asarray(times) for times in varying]))
    if not varying:
        return Interval(value, value, value)
    found = stats.bootstrap(
        varying, ratio, n_resamples=RESAMPLES, vectorized=True, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def _samples(generations: Sequence[Generation]) -> tuple[list[list[float]], float]:
    """Return the seconds of rounds grouped by the number of guesses, and the seconds that occur only once."""
    groups: dict[int, list[float]] = {}
    for generation in generations:
        for r in generation.rounds:
            groups.setdefault(len(r.proposed), []).append(r.draft_s + r.target_s + r.overhead_s)
    several = [times for times in groups.values() if len(times) > 1]
    single = sum(times[0] for times in groups.values() if len(times) == 1)
    return several, single + sum(g.seconds.prompt_s for g in generations)
