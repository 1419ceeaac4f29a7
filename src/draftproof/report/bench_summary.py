"""What a bench's figures say, in words: which k, which draft, on which texts, and what is to be doubted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftproof.report.names import drafts_of, short_names
from draftproof.results import BenchResult, Cell, DraftsResult
from draftproof.stats.rows import BenchRow
from draftproof.stats.trust import doubt_spread, doubt_text

CANNOT_TELL = "cannot tell: no k is surely faster or surely slower here; write more tokens, or repeat them more often"


def recommend(rows: Sequence[BenchRow]) -> str:
    """Say which k to take on a sweep's workload, that none pays, or that the figures do not tell."""
    drafted = [r for r in rows if r.guesses]
    sure = [r for r in drafted if r.speedup is not None and r.speedup.low > 1]
    if sure:
        best = max(sure, key=lambda r: 0.0 if r.speedup is None else r.speedup.value)
        assert best.speedup is not None
        fastest = f"k = {best.arm.asks} is the fastest of {len(drafted)} measured"
        return f"pays: {fastest}, {best.speedup.value:.2f} × plain decoding"
    if drafted and all(r.speedup is not None and r.speedup.high < 1 for r in drafted):
        return "does not pay: every k is slower than plain decoding here; recommended: k = 0"
    return CANNOT_TELL if drafted else "nothing was measured"


def workloads_verdict(k: int | str, rows: Sequence[BenchRow]) -> list[str]:
    """Say on which workloads the one `k` is surely faster or slower, and where another engine is faster still."""
    known = [(r.workload, r.speedup) for r in rows if r.guesses and r.arm.asks == k and r.speedup is not None]
    groups = (
        ("surely faster on", [(name, found) for name, found in known if found.low > 1]),
        ("surely slower on", [(name, found) for name, found in known if found.high < 1]),
        ("cannot tell on", [(name, found) for name, found in known if found.low <= 1 <= found.high]),
    )
    said = [f"{what} {', '.join(f'{n} ({f.value:.2f} ×)' for n, f in members)}" for what, members in groups if members]
    sentences = [f"workloads at k = {k}: {'; '.join(said)}"] if said else []
    ours = {name: found.value for name, found in known}
    best: dict[str, tuple[str, float]] = {}
    for r in rows:
        if r.arm.ours or r.speedup is None or r.workload not in ours:
            continue
        _, fastest = best.get(r.workload, ("", max(1.0, ours[r.workload])))
        if r.speedup.value > fastest:
            best[r.workload] = r.arm.name, r.speedup.value
    better = [f"{name} ({engine}, {value:.2f} ×)" for name, (engine, value) in best.items()]
    return sentences + ([f"another engine was faster on {', '.join(better)}"] if better else [])


def identity(result: BenchResult) -> str | None:
    """Say how many texts were the same with speculation on and off, and whether that is a rule or how it fell."""
    judged = [c.identical for c in result.cells if c.arm.ours and not c.arm.plain and c.identical is not None]
    if not judged:
        return None
    why = {
        True: ", by rule: in fixed numerics a row has the same bits with speculation on and off",
        False: ", as it fell: in fast numerics rounding decides where two tokens are nearly as likely",
        None: "",
    }[result.by_rule]
    return f"identical: {sum(judged)} of {len(judged)} pairs of texts{why}"


def doubts(result: BenchResult, rows: Sequence[BenchRow]) -> list[str]:
    """Return reasons not to trust a bench, each with what to do."""
    found = [doubt] if (doubt := doubt_sweep([r for r in rows if r.workload == result.workloads[0].name])) else []
    return found + doubt_cells(result.cells, result.options.max_new_tokens)


def doubt_cells(cells: Sequence[Cell], max_new_tokens: int) -> list[str]:
    """Return reasons not to trust single cells: spread, loops, early ends, differences, failures."""
    names = short_names(list(dict.fromkeys(c.arm.draft for c in cells if c.arm.ours and c.arm.draft is not None)))
    found: list[str] = []
    spreads: list[tuple[str, list[float]]] = []
    for cell in cells:
        arm = cell.arm
        called = f"{names[arm.draft]} k = {arm.asks}" if arm.ours and arm.draft is not None else arm.name
        name = f"{cell.workload}{f' [{cell.prompt}]' if cell.prompt else ''}, {called}"
        if len({answer.tokens for answer in cell.answers}) == 1:  # samples take what their texts take
            spreads.append((name, [answer.total_s for answer in cell.answers]))
        if arm.plain and cell.generations:
            found += [f"{cell.workload}: {doubt}" for doubt in doubt_text(cell.generations[0], max_new_tokens)]
        if cell.error is not None and (arm.plain or cell.error != _plain_error(cells, cell)):
            found.append(f"{name}: not measured: {cell.error}")
        if cell.divergence is not None:
            found.append(f"{name}: differs from plain at token {cell.divergence.position} ({cell.divergence.kind})")
    return doubt_spread(spreads) + found + _told_by_drafts(cells, names)


def _told_by_drafts(cells: Sequence[Cell], names: Mapping[str, str]) -> list[str]:
    """Return why drafts guessed less than they were asked to, each reason once."""
    told: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for warning in (w for g in cell.generations for w in g.warnings):
            told.setdefault((cell.arm.draft or "", warning), set()).add(cell.workload)
    return [
        f"{', '.join(sorted(workloads))}: {f'{names[draft]}: ' if len(names) > 1 else ''}{warning}"
        for (draft, warning), workloads in told.items()
    ]


def _plain_error(cells: Sequence[Cell], cell: Cell) -> str | None:
    same_prompt = (c for c in cells if (c.workload, c.prompt) == (cell.workload, cell.prompt))
    return next((c.error for c in same_prompt if c.arm.plain), None)


def doubt_sweep(rows: Sequence[BenchRow]) -> str | None:
    """Warn if different k never made different numbers of guesses: then k had no effect."""
    proposed = {r.proposed for r in rows if r.guesses and not r.arm.way}
    ks = {r.k for r in rows if r.guesses and not r.arm.way}
    if len(ks) > 1 and len(proposed) == 1:
        return "every k made the same number of guesses, so k had no effect: the sweep is not to be trusted"
    return None


def unusable(result: DraftsResult) -> list[str]:
    """Return why some drafts have no figures."""
    names = drafts_of(result)
    return [f"{names[f.draft]}: {f.error or 'nothing was guessed'}" for f in result.facts if f.agreement is None]


def drafts_verdict(names: Mapping[str, str], rows: Sequence[BenchRow]) -> str:
    """Say in one sentence which draft to take, by measured speed and not by acceptance; `names` says how drafts are
    called.
    """
    rows = [r for r in rows if r.guesses]
    known = [(r, r.speedup) for r in rows if r.speedup is not None]
    sure = [(r, found) for r, found in known if found.low > 1]
    if not sure:
        if known and len(known) == len(rows) and all(found.high < 1 for _, found in known):
            return "does not pay: every draft is slower than plain decoding on this text here; use none (k = 0)"
        return "cannot tell: no draft is surely faster than plain decoding here; more tokens or repeats may tell"
    best, speed = max(sure, key=lambda pair: pair[1].value)
    righter = [(r, found) for r, found in known if r.draft != best.draft and (r.agreement or 0) > (best.agreement or 0)]
    tail = ""
    if righter and all(found.high < speed.low for _, found in righter):
        others = ", ".join(dict.fromkeys(names[r.draft or ""] for r, _ in righter))
        tail = f"; {others}: right more often, and slower all the same"
    return f"take {names[best.draft or '']} with k = {best.arm.asks}: {speed.value:.2f} × plain decoding{tail}"
