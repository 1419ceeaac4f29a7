"""From a bench's raw generations to the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from draftproof import cost
from draftproof.records import Generation, Interval
from draftproof.results import BenchResult, Cell, DraftsResult
from draftproof.results.speedup import speedup
from draftproof.results.trust import doubt_spread, doubt_text


def short(name: str) -> str:
    """Return the last part of a model's name or path."""
    return name.rstrip("/").rpartition("/")[2] or name


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One way to write one workload: medians over repeats, sums over prompts."""

    workload: str
    draft: str | None
    k: int
    tokens_per_s: float
    speedup: Interval | None
    """None for plain decoding itself."""
    target_passes: int
    draft_passes: int
    proposed: int
    discarded: int
    acceptance_rate: float | None
    agreement: float | None
    """Estimated alpha."""
    tokens_per_round: float
    identical: bool | None
    error: str | None


def bench_rows(cells: Sequence[Cell]) -> list[BenchRow]:
    """Return one row for every (workload, draft, k), in the order of the cells."""
    keys = dict.fromkeys((c.workload, c.draft, c.k) for c in cells)
    plain = {(c.workload, c.prompt): c for c in cells if c.draft is None}
    return [
        _row([c for c in cells if (c.workload, c.draft, c.k) == key], plain)
        for key in keys
        if any(c.generations or c.error for c in cells if (c.workload, c.draft, c.k) == key)
    ]


def _row(cells: Sequence[Cell], plain: dict[tuple[str, int], Cell]) -> BenchRow:
    first = cells[0]
    measured = [c for c in cells if c.generations]
    made = [c.generations[-1] for c in measured]
    rounds = [r for g in made for r in g.rounds]
    pairs = [
        pair for c in measured for pair in zip(c.generations, plain[c.workload, c.prompt].generations, strict=False)
    ]
    proposed, accepted = sum(g.counts.proposed for g in made), sum(g.counts.accepted for g in made)
    tokens = sum(g.counts.tokens for g in made)
    known = [c.identical for c in measured if c.identical is not None]
    return BenchRow(
        workload=first.workload,
        draft=first.draft,
        k=first.k,
        tokens_per_s=tokens_per_s(c.generations for c in measured),
        speedup=speedup(pairs) if first.draft is not None and pairs else None,
        target_passes=sum(g.counts.target_passes for g in made),
        draft_passes=sum(g.counts.draft_passes for g in made),
        proposed=proposed,
        discarded=proposed - accepted,
        acceptance_rate=accepted / proposed if proposed else None,
        agreement=cost.agreement(rounds),
        tokens_per_round=tokens / len(rounds) if rounds else 0.0,
        identical=all(known) if known else None,
        error=next((c.error for c in cells if c.error), None),
    )


def tokens_per_s(runs: Iterable[Sequence[Generation]]) -> float:
    """Return tokens a second over several prompts, each with the median of its repeats; 0 if nothing was measured."""
    tokens, seconds = 0, 0.0
    for repeats in runs:
        tokens += len(repeats[-1].tokens)
        seconds += median(g.seconds.total_s for g in repeats)
    return tokens / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True)
class PeerRow:
    """Another engine on one workload."""

    workload: str
    engine: str
    tokens_per_s: float
    speedup: float | None
    """Over our plain decoding, by medians."""
    identical: bool | None
    error: str | None


def peer_rows(result: BenchResult) -> list[PeerRow]:
    """Return one row for every (workload, engine)."""
    plain = {row.workload: row.tokens_per_s for row in bench_rows(result.cells) if row.draft is None}
    rows = []
    for workload, engine in dict.fromkeys((p.workload, p.engine) for p in result.peers):
        mine = [p for p in result.peers if (p.workload, p.engine) == (workload, engine)]
        measured = [p for p in mine if p.seconds]
        seconds = sum(median(p.seconds) for p in measured)
        rate = sum(len(p.tokens) for p in measured) / seconds if seconds else 0.0
        known = [p.identical for p in measured if p.identical is not None]
        rows.append(
            PeerRow(
                workload,
                engine,
                rate,
                rate / plain[workload] if plain.get(workload) else None,
                all(known) if known else None,
                next((p.error for p in mine if p.error), None),
            )
        )
    return rows


def recommend(rows: Sequence[BenchRow]) -> str:
    """Say which k to take on a sweep's workload, or that none pays."""
    sure = [r for r in rows if r.speedup is not None and r.speedup.low > 1 and r.identical]
    if not sure:
        return "does not pay: no k is surely faster than plain decoding here; recommended: k = 0"
    best = max(sure, key=lambda r: 0.0 if r.speedup is None else r.speedup.value)
    assert best.speedup is not None
    return f"pays: k = {best.k} is the fastest measured, {best.speedup.value:.2f} × plain decoding"


def doubts(result: BenchResult, rows: Sequence[BenchRow]) -> list[str]:
    """Return reasons not to trust a bench, each with what to do."""
    found = [doubt] if (doubt := doubt_sweep([r for r in rows if r.workload == result.workloads[0].name])) else []
    for cell in result.cells:
        name = f"{cell.workload}, {'plain' if cell.draft is None else f'k = {cell.k}'}"
        found += doubt_spread(name, [g.seconds.total_s for g in cell.generations])
        if cell.draft is None and cell.generations:
            found += [f"{cell.workload}: {doubt}" for doubt in doubt_text(cell.generations[0], result.max_new_tokens)]
        if cell.error is not None and (cell.draft is None or cell.error != _plain_error(result, cell)):
            found.append(f"{name}: not measured: {cell.error}")
        if cell.divergence is not None:
            found.append(f"{name}: differs from plain at token {cell.divergence.position} ({cell.divergence.kind})")
    return found + [f"{p.workload}, {p.engine}: not measured: {p.error}" for p in result.peers if p.error]


def _plain_error(result: BenchResult, cell: Cell) -> str | None:
    same_prompt = (c for c in result.cells if (c.workload, c.prompt) == (cell.workload, cell.prompt))
    return next((c.error for c in same_prompt if c.draft is None), None)


def doubt_sweep(rows: Sequence[BenchRow]) -> str | None:
    """Warn if different k never made different numbers of guesses: then k had no effect."""
    proposed = {r.proposed for r in rows if r.k and not r.error}
    ks = {r.k for r in rows if r.k and not r.error}
    if len(ks) > 1 and len(proposed) == 1:
        return "every k made the same number of guesses, so k had no effect: the sweep is not to be trusted"
    return None


def unusable(result: DraftsResult) -> list[str]:
    """Return why some drafts have no figures."""
    return [f"{short(f.draft)}: {f.error or 'nothing was guessed'}" for f in result.facts if f.agreement is None]


def drafts_verdict(result: DraftsResult) -> str:
    """Say in one sentence which draft to take, by measured speed and not by acceptance."""
    rows = [r for r in (*bench_rows(result.cells), *bench_rows(result.best_cells)) if r.speedup is not None]
    sure = [r for r in rows if r.speedup is not None and r.speedup.low > 1 and r.identical]
    if not sure:
        return "does not pay: no draft is surely faster than plain decoding on this text here; use none (k = 0)"
    best = max(sure, key=lambda r: 0.0 if r.speedup is None else r.speedup.value)
    most_right = max(rows, key=lambda r: r.agreement or 0.0)
    assert best.speedup is not None
    tail = ""
    if most_right.draft != best.draft:
        tail = f"; {short(most_right.draft or '')} is right more often, and slower all the same"
    return f"take {short(best.draft or '')} with k = {best.k}: {best.speedup.value:.2f} × plain decoding{tail}"
