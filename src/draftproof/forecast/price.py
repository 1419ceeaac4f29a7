"""What the same texts would take with what is not run here: an oracle, many at once, drafting while verifying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from draftproof.control import Fixed, controller_of
from draftproof.errors import ConfigError
from draftproof.forecast.overlap import SCHEMES
from draftproof.forecast.predict import RESAMPLES, Costs, costs_of, ratio_of
from draftproof.forecast.replay import oracle, replay
from draftproof.forecast.together import Wide, together
from draftproof.forecast.trace import Text, Trace
from draftproof.results import PricedCell

ORDERS = 20
"""Orders of the texts that a batch is priced in, for its interval."""


def ceilings(trace: Trace, most: int) -> Iterator[PricedCell]:
    """Yield for every workload and draft what an oracle with at most `most` guesses a round would make of it."""
    for workload, draft, texts in _groups(trace):
        if all(text.drafts[draft].offers for text in texts):
            costs = costs_of(trace, draft, most)
            yield _cell(workload, draft, "oracle", most, texts, costs, _oracle(draft, most, costs), prompts=True)


def overlaps(trace: Trace, ks: Sequence[int | str]) -> Iterator[PricedCell]:
    """Yield for every workload and draft what schemes that draft while the target verifies make of it, each at its best
    k. Raises `ConfigError` for drafts whose time cannot be hidden.
    """
    for workload, draft, texts in _groups(trace):
        for what in SCHEMES:
            cells = []
            for k in _numbers(ks, trace.depth):
                costs = costs_of(trace, draft, k)
                cells.append(_cell(workload, draft, what, k, texts, costs, _scheme(what, draft, k, costs)))
            yield max(cells, key=lambda one: one.speedup.value)


def batches(trace: Trace, ks: Sequence[int | str], sizes: Sequence[int]) -> Iterator[PricedCell]:
    """Yield for every workload, draft and number of texts at once the best k, none at all (0) among them.

    Raises `ConfigError` for a trace without wide passes, and for texts whose rounds are drawn.
    """
    for workload, draft, texts in _groups(trace):
        if any(text.drafts[draft].odds for text in texts):
            raise ConfigError("guesses that are drawn cannot be replayed side by side; leave out the batch sizes.")
        costs = costs_of(trace, draft, 1)
        wide = Wide(trace, draft, costs)
        chance = np.random.default_rng(0)
        orders = [np.arange(len(texts)), *(chance.integers(len(texts), size=len(texts)) for _ in range(ORDERS))]
        plain = [[(0, 0)] * len(text.tokens) for text in texts]
        rounds = {0: plain}
        for k in _numbers(ks, trace.depth):
            replayed = [replay(text, draft, Fixed(k), costs, trace.depth) for text in texts]
            rounds[k] = [[(len(one.proposed), one.draft_passes) for one in each] for each in replayed]
        for size in sizes:
            spent = {
                k: np.array([together([shapes[i] for i in order], size, costs, wide) for order in orders])
                for k, shapes in rounds.items()
            }
            k = min(spent, key=lambda one: float(spent[one][0]))
            again = np.resize(np.arange(1, ORDERS + 1), (RESAMPLES, 1))
            speedup = ratio_of(spent[0][None], spent[k][None], again)
            tokens = sum(len(text.tokens) for text in texts)
            yield PricedCell(workload, draft, "batch", k, speedup, size, float(tokens / spent[k][0]))


def _groups(trace: Trace) -> Iterator[tuple[str, str, list[Text]]]:
    for workload in dict.fromkeys(text.workload for text in trace.texts):
        for draft in trace.rounds:
            yield workload, draft, [text for text in trace.texts if text.workload == workload]


def _numbers(ks: Sequence[int | str], depth: int) -> list[int]:
    fixed = [controller_of(k).most for k in ks if not isinstance(k, str)]
    return [k for k in fixed if 0 < k <= depth] or [min(4, depth)]


def _oracle(draft: str, most: int, costs: Costs) -> Callable[[Text], float]:
    return lambda text: oracle(text, draft, most, costs)


def _scheme(what: str, draft: str, k: int, costs: Costs) -> Callable[[Text], float]:
    return lambda text: SCHEMES[what](text, draft, k, costs)


def _cell(
    workload: str,
    draft: str,
    what: str,
    k: int,
    texts: Sequence[Text],
    costs: Costs,
    spend: Callable[[Text], float],
    *,
    prompts: bool = False,
) -> PricedCell:
    plain = np.array([[len(text.tokens) * costs.plain_s + prompts * text.prompt_s] for text in texts])
    made = np.array([[spend(text) + prompts * (text.prompt_s + text.drafts[draft].prompt_s)] for text in texts])
    return PricedCell(workload, draft, what, k, ratio_of(plain, made, np.zeros((RESAMPLES, 1), int)))
