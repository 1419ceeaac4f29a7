"""The only source of randomness: every draw of a request comes from one seeded object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

_IN_TURN, _BY_POSITION, _OF_GUESSES = 1, 2, 3
_REMEMBERED = 16
_ULP = 2.0**-53


class Chance(Protocol):
    """What draws need. A law is a row of probabilities, `[width]`; tests walk through every outcome instead."""

    def accept(self, probability: Any) -> bool:
        """Return True with this probability; 0 is never, 1 and more always."""
        ...

    def draw(self, law: Any) -> int:
        """Return a token drawn from a law; one of probability 0 never comes."""
        ...

    def couple(self, scores: Any, position: int) -> int:
        """Return a token drawn from the law that `scores` stand for, with noise that only the position decides."""
        ...

    def noisy(self, scores: Any, position: int) -> Any:
        """Return what `couple` takes the largest of."""
        ...

    def aside(self, number: int) -> Chance:
        """Return chance for the guesses of one round, which takes nothing from this one."""
        ...


class _Recent:
    """What was computed for the last few positions: draft and target ask for the same ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    def setdefault(self, key: tuple[int, int], make: Callable[[int, int], Tensor]) -> Tensor:
        if key not in self._kept:
            self._kept[key] = make(*key)
            if len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        return self._kept[key]


class SeededChance:
    """Chance from a counter-based generator (Philox). Requests, and the samples of one, never share a stream.

    `accept` and `draw` take their numbers in turn. The noise of `couple` is a pure function of seed, sample, position
    and token id, so it is the same for whoever asks, in any order. Source: Gumbel-max sampling with the noise shared
    between target and draft, Daliri et al. 2024, arXiv 2408.07978.
    """

    def __init__(self, seed: int, sample: int = 0) -> None:
        self._key = np.array([seed, sample], dtype=np.uint64)
        self._stream = self._philox(0, _IN_TURN)
        self._bits, self._rough = _Recent(), _Recent()

    def accept(self, probability: Any) -> bool:
        return self._uniform() < float(probability)

    def draw(self, law: Tensor) -> int:
        sums = law.cumsum(-1)
        at = int(torch.searchsorted(sums, self._uniform() * sums[-1], right=True))
        if at < len(law) and law[at] > 0:
            return at
        return int(law.nonzero()[-1])  # rounding pushed the draw over the end

    def couple(self, scores: Tensor, position: int) -> int:
        """As `Chance.couple`: argmax(score + Gumbel noise), `scores` `[width]` being logits.

        Scores may hold -inf, but must hold no NaN. All sums are made in float32 first, and those that could be the
        largest again in float64.
        """
        sums = scores + self._rough.setdefault((position, len(scores)), self._roughly).to(scores.device)
        best = sums.max()
        near = (sums >= best - (1e-4 + 1e-6 * best.abs())).nonzero()[:, 0]
        return int(near[self.noisy(scores, position, near).argmax()])

    def noisy(self, scores: Tensor, position: int, tokens: Tensor | None = None) -> Tensor:
        """Return `scores` with the noise of this position, in float64: of all tokens, `[width]`, or of some."""
        bits = self._bits.setdefault((position, len(scores)), self._draw_bits)
        wide = "cpu" if scores.device.type == "mps" else scores.device
        scores, bits = scores.to(wide), bits.to(wide)
        if tokens is not None:
            scores, bits = scores[tokens.to(wide)], bits[tokens.to(wide)]
        return scores.double() - (-((bits.double() + 0.5) * _ULP).log()).log()

    def aside(self, number: int) -> SeededChance:
        """As `Chance.aside`: a pure function of seed, sample and round, whenever and wherever the guesses are drawn.

        Not one of the position: guesses that were discarded have told the judge something (under block verification
        what follows decides about what comes before), so that the same draw again would not be a fresh one.
        """
        made = copy(self)
        made._stream = self._philox(number, _OF_GUESSES)
        return made

    def _draw_bits(self, position: int, width: int) -> Tensor:
        """53 random bits for every token; those of the first tokens do not depend on `width`."""
        raw = self._philox(position, _BY_POSITION).random_raw(width)
        return torch.from_numpy((raw >> np.uint64(11)).view(np.int64))

    def _roughly(self, position: int, width: int) -> Tensor:
        """The noise in float32: the inner logarithm is taken in float64, as float32 would lose what is near 1."""
        bits = self._bits.setdefault((position, width), self._draw_bits)
        waits = bits.double().add_(0.5).mul_(_ULP).log_().neg_()
        return waits.float().log_().neg_()

    def _uniform(self) -> float:
        """The next number in [0, 1)."""
        return float(int(self._stream.random_raw()) >> 11) * 2.0**-53

    def _philox(self, position: int, purpose: int) -> np.random.Philox:
        return np.random.Philox(key=self._key, counter=np.array([0, position, 0, purpose], dtype=np.uint64))
