"""The only source of randomness: every draw of a request comes from one seeded object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

_IN_TURN, _BY_POSITION = 1, 2
_REMEMBERED = 16
_FEW = 4
"""Noise is computed for all tokens at once, unless at most one in so many can be drawn."""


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


class _Recent:
    """What was computed for the last few positions: draft and target ask for the same ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    def setdefault(self, key: tuple[int, int], make: Callable[[], Tensor]) -> Tensor:
        if key not in self._kept:
            self._kept[key] = make()
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
        self._stream = self._bits(0, _IN_TURN)
        self._numbers, self._noise = _Recent(), _Recent()

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
        candidates = (scores > -torch.inf).nonzero()[:, 0]
        if _FEW * len(candidates) > len(scores):
            return scores.double() + self._gumbel(position, len(scores)).to(scores.device)
        uniform = self._uniforms(position, len(scores)).to(scores.device)[candidates]
        noisy = torch.full_like(scores, -torch.inf, dtype=torch.float64)
        noisy[candidates] = scores[candidates].double() - (-uniform.log()).log()
        return noisy

    def _gumbel(self, position: int, width: int) -> Tensor:
        key = position, width
        return self._noise.setdefault(key, lambda: -(-self._uniforms(*key).log()).log())

    def _uniforms(self, position: int, width: int) -> Tensor:
        """Numbers in (0, 1) for every token at a position; those of the first tokens do not depend on `width`."""

        def numbers() -> Tensor:
            raw = self._bits(position, _BY_POSITION).random_raw(width)
            return torch.from_numpy(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)

        return self._numbers.setdefault((position, width), numbers)

    def _uniform(self) -> float:
        """The next number in [0, 1)."""
        return float(int(self._stream.random_raw()) >> 11) * 2.0**-53

    def _bits(self, position: int, purpose: int) -> np.random.Philox:
        return np.random.Philox(key=self._key, counter=np.array([0, position, 0, purpose], dtype=np.uint64))
