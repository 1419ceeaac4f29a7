"""When speculation pays: pure arithmetic, after Leviathan et al. 2023 (arXiv 2211.17192).

Symbols as there: `alpha` is the probability that a guess is right given that all guesses before it in its round were
right; `k` (their gamma) is the number of guesses a round; `c` is the time of a draft pass over the time of a plain
target pass. docs/cost-model.md works them through on real numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from draftproof.records import Round


def tokens_per_round(alpha: float, k: int) -> float:
    """Return the expected tokens of a round, the target's own included: (1 - alpha^(k+1)) / (1 - alpha).

    Between 1 (alpha 0) and k + 1 (alpha 1). Source: Leviathan et al. 2023, equation 1.
    """
    return sum(alpha**i for i in range(k + 1))


def ceiling(alpha: float) -> float:
    """Return what tokens per round approach as k grows: 1 / (1 - alpha); infinite at alpha 1."""
    return 1 / (1 - alpha) if alpha < 1 else float("inf")


def acceptance_rate(alpha: float, k: int) -> float:
    """Return the expected accepted / proposed over all guesses of a round of `k` >= 1; at most alpha."""
    return (tokens_per_round(alpha, k) - 1) / k


def alpha_of_acceptance_rate(rate: float, k: int) -> float:
    """Return the alpha whose expected acceptance rate at `k` >= 1 is `rate`: the inverse of `acceptance_rate`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if acceptance_rate(middle, k) < rate else (low, middle)
    return (low + high) / 2


def improvement_factor(alpha: float, k: int, c: float) -> float:
    """Return the expected speedup if a pass over k + 1 tokens costs what a pass over one costs.

    Source: Leviathan et al. 2023, theorem 3.8.
    """
    return tokens_per_round(alpha, k) / (1 + c * k)


def can_pay(alpha: float, c: float) -> bool:
    """Return whether some k speeds up at all, with free verification: alpha > c (their corollary 3.9)."""
    return alpha > c


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Measured seconds of one target pass over n new tokens, v(n)."""

    tokens: tuple[int, ...]
    """The measured n, rising, starting at 1."""
    seconds: tuple[float, ...]

    def at(self, n: int) -> float:
        """Return v(n), straight between measured points and on the last slope beyond them."""
        i = min(max(bisect_left(self.tokens, n), 1), len(self.tokens) - 1)
        if len(self.tokens) == 1:
            return self.seconds[0]
        (n0, n1), (s0, s1) = self.tokens[i - 1 : i + 1], self.seconds[i - 1 : i + 1]
        return s0 + (s1 - s0) * (n - n0) / (n1 - n0)

    def ratio(self, n: int) -> float:
        """Return v(n) / v(1), the precondition: near 1 is what speculation lives on."""
        return self.at(n) / self.seconds[0]


def forecast(
    alpha: float, k: int, curve: CostCurve, draft_s: float, overhead_s: float = 0.0, plain_overhead_s: float = 0.0
) -> float:
    """Return the expected speedup at `k` with a measured cost curve and seconds of a draft pass.

    A round costs k draft passes, one target pass over k + 1 tokens, and the overhead of the loop; a plain token costs
    one pass over one token and its own overhead.
    """
    plain_s = curve.at(1) + plain_overhead_s
    return tokens_per_round(alpha, k) * plain_s / (k * draft_s + curve.at(k + 1) + overhead_s)


def best_k(
    alpha: float,
    curve: CostCurve,
    draft_s: float,
    ks: Iterable[int],
    overhead_s: float = 0.0,
    plain_overhead_s: float = 0.0,
) -> int:
    """Return the k of `ks` with the best forecast, or 0 if none beats plain decoding; the smallest of equals."""
    best, best_speedup = 0, 1.0
    for k in sorted(ks):
        speedup = forecast(alpha, k, curve, draft_s, overhead_s, plain_overhead_s)
        if k > 0 and speedup > best_speedup:
            best, best_speedup = k, speedup
    return best


def agreement(rounds: Sequence[Round]) -> float | None:
    """Estimate alpha from what happened: right guesses / guesses that were put to the test.

    A guess is tested if all before it in its round were right; those behind a rejection never are. None if nothing was
    tested. This is the maximum-likelihood estimate if guesses are right independently of each other.
    """
    right = sum(r.accepted for r in rounds)
    wrong = sum(r.accepted < len(r.proposed) for r in rounds)
    return right / (right + wrong) if right + wrong else None


def agreement_by_position(rounds: Sequence[Round]) -> list[tuple[int, int]]:
    """Return, for every position in the block, how many guesses were tested there and how many of them were right."""
    longest = max((len(r.proposed) for r in rounds), default=0)
    return [
        (
            sum(len(r.proposed) > i and r.accepted >= i for r in rounds),
            sum(r.accepted > i for r in rounds),
        )
        for i in range(longest)
    ]
