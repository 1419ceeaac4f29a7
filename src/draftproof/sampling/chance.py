"""The only source of randomness: every draw of a request comes from one seeded object."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

_IN_TURN, _BY_POSITION = 1, 2
_REMEMBERED = 16


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


class SeededChance:
    """Chance from a counter-based generator (Philox). Requests, and the samples of one, never share a stream.

    `accept` and `draw` take their numbers in turn. The noise of `couple` is a pure function of seed, sample, position
    and token id, so it is the same for whoever asks, in any order. Source: Gumbel-max sampling with the noise shared
    between target and draft, Daliri et al. 2024, arXiv 2408.07978.
    """

    def __init__(self, seed: int, sample: int = 0) -> None:
        self._key = np.array([seed, sample], dtype=np.uint64)
        self._stream = self._bits(0, _IN_TURN)
        self._noise: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

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

        Scores may hold -inf, but must hold no NaN.
        """
        return int(self.noisy(scores, position).argmax())

    def noisy(self, scores: Tensor, position: int) -> Tensor:
        """Return `scores` with the noise of their tokens at this position, `[width]`, in float64."""
        uniform = self._uniforms(position, len(scores)).to(scores.device)
        candidates = (scores > -torch.inf).nonzero()[:, 0]
        noisy = torch.full_like(scores, -torch.inf, dtype=torch.float64)
        noisy[candidates] = scores[candidates].double() - (-uniform[candidates].log()).log()
        return noisy

    def _uniforms(self, position: int, width: int) -> Tensor:
        """Numbers in (0, 1) for every token at a position; those of the first tokens do not depend on `width`."""
        known = self._noise.get((position, width))
        if known is None:
            raw = self._bits(position, _BY_POSITION).random_raw(width)
            known = torch.from_numpy(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
            self._noise[position, width] = known
            if len(self._noise) > _REMEMBERED:
                self._noise.popitem(last=False)
        return known

    def _uniform(self) -> float:
        """The next number in [0, 1)."""
        return float(int(self._stream.random_raw()) >> 11) * 2.0**-53

    def _bits(self, position: int, purpose: int) -> np.random.Philox:
        return np.random.Philox(key=self._key, counter=np.array([0, position, 0, purpose], dtype=np.uint64))
