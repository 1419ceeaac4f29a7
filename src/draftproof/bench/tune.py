"""A choice that was forecast, run beside plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from draftproof.bench.forecast import check
from draftproof.engines.local import Speculator
from draftproof.forecast.choice import Choice
from draftproof.results import ForecastResult, Workload
from draftproof.stats.speedup import speedup


def confirm(
    result: ForecastResult,
    choice: Choice,
    pair: Speculator,
    workloads: Sequence[Workload],
    *,
    repeats: int = 2,
    on_repeat: Callable[[], None] = lambda: None,
) -> Iterator[tuple[ForecastResult, Choice]]:
    """Run the choice beside plain decoding, prompt by prompt, and yield what is known after each."""
    assert choice.candidate is not None
    name, ks = choice.candidate.name, result.ks
    for found in check(replace(result, ks=(choice.k,)), {name: pair}, workloads, repeats=repeats, on_repeat=on_repeat):
        plain = {(c.workload, c.prompt): c for c in found.measured if c.arm.plain}
        pairs = [
            both
            for cell in found.measured
            if not cell.arm.plain
            for both in zip(cell.answers, plain[cell.workload, cell.prompt].answers, strict=False)
        ]
        yield replace(found, ks=ks), replace(choice, measured=speedup(pairs))
