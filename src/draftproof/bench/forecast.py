"""Will it pay? The forecast of a trace for every draft, k and workload, and the loop itself to check it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from draftproof.bench.turns import measure
from draftproof.control import controller_of
from draftproof.engines.base import Engine
from draftproof.engines.local import Speculator
from draftproof.engines.ours import Ours
from draftproof.forecast.predict import forecast
from draftproof.forecast.price import batches, ceilings, overlaps
from draftproof.forecast.trace import Trace
from draftproof.results import ForecastResult, Workload
from draftproof.stats.rows import bench_rows


def forecast_all(
    trace: Trace, ks: Sequence[int | str], *, sizes: Sequence[int] = (), overlap: bool = False
) -> ForecastResult:
    """Return the forecast for every workload, draft and k of a trace, and beside it what an oracle could do; with
    `sizes` also so many texts at once, with `overlap` also schemes that draft while the target verifies. Raises
    `ConfigError`.
    """
    most = max(controller_of(k).most for k in ks)
    priced = [*ceilings(trace, min(most, trace.depth))]
    priced += overlaps(trace, ks) if overlap else ()
    priced += batches(trace, ks, sizes) if sizes else ()
    workloads = dict.fromkeys(text.workload for text in trace.texts)
    cells = [forecast(trace, draft, workload, k) for workload in workloads for draft in trace.rounds for k in ks]
    return ForecastResult(
        machine=trace.machine,
        target=trace.target,
        drafts=tuple(trace.rounds),
        target_placement=trace.target_placement,
        ks=tuple(ks),
        options=trace.options,
        cells=tuple(cells),
        priced=tuple(priced),
        notes=trace.notes,
    )


def check(
    result: ForecastResult,
    pairs: Mapping[str, Speculator],
    workloads: Sequence[Workload],
    *,
    repeats: int = 3,
    on_repeat: Callable[[], None] = lambda: None,
) -> Iterator[ForecastResult]:
    """Run the loop on every cell of a forecast, and yield the result, with what was measured, after every prompt."""
    first = next(iter(pairs.values()))
    plain = Ours(first, plain=True)
    engines: dict[tuple[str, int | str], Engine] = {}
    for name, pair in pairs.items():
        engines |= {(name, k): Ours(pair.at(k)) for k in result.ks}
    for engine in (plain, *engines.values()):
        engine.warm_up()
    for workload in workloads:
        for prompt in range(len(workload.prompts)):
            cells = measure(
                plain,
                list(engines.values()),
                workload,
                prompt,
                result.options,
                repeats=repeats,
                on_repeat=on_repeat,
            )
            named = zip((None, *engines), cells, strict=True)  # two drafts of one name are two arms
            cells = [c if key is None else replace(c, arm=replace(c.arm, draft=key[0])) for key, c in named]
            result = replace(result, measured=(*result.measured, *cells))
            found = {(r.workload, r.draft, r.arm.asks): r.speedup for r in bench_rows(result.measured)}
            known = tuple(replace(c, measured=found.get((c.workload, c.draft, c.k))) for c in result.cells)
            result = replace(result, cells=known)
            yield result
