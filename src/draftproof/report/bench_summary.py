"""From a bench's raw generations to the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return a short name for each model: of its path so much of the end as tells it from the others."""
    found = {}
    for name in names:
        parts = [part for part in name.split("/") if part]
        tails = ("/".join(parts[-n:]) for n in range(1, len(parts) + 1))
        others = [f"/{'/'.join(part for part in other.split('/') if part)}" for other in names if other != name]
        found[name] = next((t for t in tails if not any(other.endswith(f"/{t}") for other in others)), name)
    return found


def drafts_of(result: DraftsResult) -> dict[str, str]:
    """Return the drafts that were compared, and how each is called where there is little room."""
    return short_names([fact.draft for fact in result.facts])


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One way to write one workload: sums over prompts; counts are means over repeats, times are medians."""

    workload: str
    draft: str | None
    k: int
    tokens_per_s: float
    speedup: Interval | None
    """None for plain decoding itself, for another text than the plain one, and for too few rounds to tell."""
    target_passes: float
    draft_passes: float
    proposed: float
    discarded: float
    acceptance_rate: float | None
    agreement: float | None
    """Estimated alpha."""
    tokens_per_round: float
    identical: bool | None


def bench_rows(cells: Sequence[Cell]) -> list[BenchRow]:
    """Return one row for every (workload, draft, k) that was measured, in the order of the cells.

    All rows of a workload speak of the same prompts: those that every measured arm finished. An arm without any
    measurement has no row; `doubts` says why.
    """
    rows = []
    for workload in dict.fromkeys(c.workload for c in cells):
        arms: dict[tuple[str | None, int], dict[int, Cell]] = {}
        for cell in cells:
            if cell.workload == workload:
                arms.setdefault((cell.draft, cell.k), {})[cell.prompt] = cell
        finished = {
            arm: {prompt for prompt, c in mine.items() if c.generations and c.error is None}
            for arm, mine in arms.items()
        }
        measured = [arm for arm, prompts in finished.items() if prompts]
        plain = next((arms[arm] for arm in measured if arm[0] is None), None)
        if plain is None:
            continue
        common = sorted(set.intersection(*(finished[arm] for arm in measured)))
        if common:
            rows += [_row([arms[arm][p] for p in common], [plain[p] for p in common]) for arm in measured]
    return rows


def _row(cells: Sequence[Cell], plain: Sequence[Cell]) -> BenchRow:
    first = cells[0]
    made = [g for c in cells for g in c.generations]
    repeats = max(len(c.generations) for c in cells)
    rounds = [r for g in made for r in g.rounds]
    proposed, accepted = sum(g.counts.proposed for g in made), sum(g.counts.accepted for g in made)
    compared = [c.identical for c in cells if c.identical is not None]
    identical = all(compared) if compared else None
    pairs = [
        pair for c, p in zip(cells, plain, strict=True) for pair in zip(c.generations, p.generations, strict=False)
    ]
    return BenchRow(
        workload=first.workload,
        draft=first.draft,
        k=first.k,
        tokens_per_s=tokens_per_s(c.generations for c in cells),
        speedup=None if first.draft is None or identical is False else speedup(pairs),
        target_passes=sum(g.counts.target_passes for g in made) / repeats,
        draft_passes=sum(g.counts.draft_passes for g in made) / repeats,
        proposed=proposed / repeats,
        discarded=(proposed - accepted) / repeats,
        acceptance_rate=accepted / proposed if proposed else None,
        agreement=cost.agreement(rounds),
        tokens_per_round=sum(g.counts.tokens for g in made) / len(rounds) if rounds else 0.0,
        identical=identical,
    )


def count(value: float) -> str:
    """Return a mean over repeats as text: whole numbers without a fraction."""
    return f"{value:,.1f}".removesuffix(".0")


def tokens_per_s(runs: Iterable[Sequence[Generation]]) -> float:
    """Return tokens a second over several prompts, each with the median of its repeats; 0 if nothing was measured."""
    tokens, seconds = 0.0, 0.0
    for repeats in runs:
        written = sum(len(g.tokens) for g in repeats) / len(repeats)
        tokens += written
        seconds += written * median(g.seconds.total_s / max(1, len(g.tokens)) for g in repeats)
    return tokens / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True)
class PeerRow:
    """Another engine on one workload."""

    workload: str
    engine: str
    tokens_per_s: float
    speedup: float
    """Over our plain decoding of the same prompts, by medians; no interval."""
    identical: bool


def peer_rows(result: BenchResult) -> list[PeerRow]:
    """Return one row for every (workload, engine), compared with plain decoding of the prompts that it finished."""
    plain = {(c.workload, c.prompt): c for c in result.cells if c.draft is None and c.generations and not c.error}
    rows = []
    for workload, engine in dict.fromkeys((p.workload, p.engine) for p in result.peers):
        mine = [p for p in result.peers if (p.workload, p.engine) == (workload, engine) and p.seconds and not p.error]
        mine = [p for p in mine if (p.workload, p.prompt) in plain]
        if mine:
            seconds = sum(median(p.seconds) for p in mine)
            rate = sum(len(p.tokens[-1]) for p in mine) / seconds if seconds else 0.0
            ours = tokens_per_s(plain[p.workload, p.prompt].generations for p in mine)
            rows.append(PeerRow(workload, engine, rate, rate / ours, all(p.identical for p in mine)))
    return rows


CANNOT_TELL = "cannot tell: no k is surely faster or surely slower here; write more tokens, or repeat them more often"


def recommend(rows: Sequence[BenchRow]) -> str:
    """Say which k to take on a sweep's workload, that none pays, or that the figures do not tell."""
    drafted = [r for r in rows if r.draft is not None]
    sure = [r for r in drafted if r.speedup is not None and r.speedup.low > 1]
    if sure:
        best = max(sure, key=lambda r: 0.0 if r.speedup is None else r.speedup.value)
        assert best.speedup is not None
        return (
            f"pays: k = {best.k} is the fastest of {len(drafted)} measured, {best.speedup.value:.2f} × plain decoding"
        )
    if drafted and all(r.speedup is not None and r.speedup.high < 1 for r in drafted):
        return "does not pay: every k is slower than plain decoding here; recommended: k = 0"
    return CANNOT_TELL if drafted else "nothing was measured"


def workloads_verdict(result: BenchResult) -> list[str]:
    """Say on which workloads the one k is surely faster or slower, and where another engine is faster still."""
    rows = [r for r in bench_rows(result.cells) if r.k == result.k and r.speedup is not None]
    known = [(r.workload, r.speedup) for r in rows if r.speedup is not None]
    groups = (
        ("surely faster on", [(name, found) for name, found in known if found.low > 1]),
        ("surely slower on", [(name, found) for name, found in known if found.high < 1]),
        ("cannot tell on", [(name, found) for name, found in known if found.low <= 1 <= found.high]),
    )
    said = [f"{what} {', '.join(f'{n} ({f.value:.2f} ×)' for n, f in members)}" for what, members in groups if members]
    sentences = [f"workloads at k = {result.k}: {'; '.join(said)}"] if said else []
    ours = {name: found.value for name, found in known}
    best: dict[str, PeerRow] = {}
    for peer in peer_rows(result):
        if peer.workload not in best or peer.speedup > best[peer.workload].speedup:
            best[peer.workload] = peer
    better = [
        f"{name} ({peer.engine}, {peer.speedup:.2f} ×)"
        for name, peer in best.items()
        if name in ours and peer.speedup > max(1.0, ours[name])
    ]
    return sentences + ([f"another engine was faster on {', '.join(better)}"] if better else [])


def identity(result: BenchResult) -> str | None:
    """Say how many texts were the same with speculation on and off, and whether that is a rule or how it fell."""
    judged = [cell.identical for cell in result.cells if cell.draft is not None and cell.identical is not None]
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
    found += doubt_cells(result.cells, result.options.max_new_tokens)
    return found + [f"{p.workload}, {p.engine}: not measured: {p.error}" for p in result.peers if p.error]


def doubt_cells(cells: Sequence[Cell], max_new_tokens: int) -> list[str]:
    """Return reasons not to trust single cells: spread, loops, early ends, differences, failures."""
    names = short_names(list(dict.fromkeys(cell.draft for cell in cells if cell.draft is not None)))
    found: list[str] = []
    spreads: list[tuple[str, list[float]]] = []
    for cell in cells:
        arm = "plain" if cell.draft is None else f"{names[cell.draft]} k = {cell.k}"
        name = f"{cell.workload}{f' [{cell.prompt}]' if cell.prompt else ''}, {arm}"
        if len({g.tokens for g in cell.generations}) == 1:  # samples take what their texts take
            spreads.append((name, [g.seconds.total_s for g in cell.generations]))
        if cell.draft is None and cell.generations:
            found += [f"{cell.workload}: {doubt}" for doubt in doubt_text(cell.generations[0], max_new_tokens)]
        if cell.error is not None and (cell.draft is None or cell.error != _plain_error(cells, cell)):
            found.append(f"{name}: not measured: {cell.error}")
        if cell.divergence is not None:
            found.append(f"{name}: differs from plain at token {cell.divergence.position} ({cell.divergence.kind})")
    return doubt_spread(spreads) + found + _told_by_drafts(cells, names)


def _told_by_drafts(cells: Sequence[Cell], names: Mapping[str, str]) -> list[str]:
    """Return why drafts guessed less than they were asked to, each reason once."""
    told: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for warning in (w for g in cell.generations for w in g.warnings):
            told.setdefault((cell.draft or "", warning), set()).add(cell.workload)
    return [
        f"{', '.join(sorted(workloads))}: {f'{names[draft]}: ' if len(names) > 1 else ''}{warning}"
        for (draft, warning), workloads in told.items()
    ]


def _plain_error(cells: Sequence[Cell], cell: Cell) -> str | None:
    same_prompt = (c for c in cells if (c.workload, c.prompt) == (cell.workload, cell.prompt))
    return next((c.error for c in same_prompt if c.draft is None), None)


def doubt_sweep(rows: Sequence[BenchRow]) -> str | None:
    """Warn if different k never made different numbers of guesses: then k had no effect."""
    proposed = {r.proposed for r in rows if r.k}
    ks = {r.k for r in rows if r.k}
    if len(ks) > 1 and len(proposed) == 1:
        return "every k made the same number of guesses, so k had no effect: the sweep is not to be trusted"
    return None


def unusable(result: DraftsResult) -> list[str]:
    """Return why some drafts have no figures."""
    names = drafts_of(result)
    return [f"{names[f.draft]}: {f.error or 'nothing was guessed'}" for f in result.facts if f.agreement is None]


def drafts_verdict(result: DraftsResult) -> str:
    """Say in one sentence which draft to take, by measured speed and not by acceptance."""
    rows = [r for r in (*bench_rows(result.cells), *bench_rows(result.best_cells)) if r.draft is not None]
    known = [(r, r.speedup) for r in rows if r.speedup is not None]
    sure = [(r, found) for r, found in known if found.low > 1]
    if not sure:
        if known and len(known) == len(rows) and all(found.high < 1 for _, found in known):
            return "does not pay: every draft is slower than plain decoding on this text here; use none (k = 0)"
        return "cannot tell: no draft is surely faster than plain decoding here; more tokens or repeats may tell"
    names = drafts_of(result)
    best, speed = max(sure, key=lambda pair: pair[1].value)
    righter = [(r, found) for r, found in known if r.draft != best.draft and (r.agreement or 0) > (best.agreement or 0)]
    tail = ""
    if righter and all(found.high < speed.low for _, found in righter):
        others = ", ".join(dict.fromkeys(names[r.draft or ""] for r, _ in righter))
        tail = f"; {others}: right more often, and slower all the same"
    return f"take {names[best.draft or '']} with k = {best.k}: {speed.value:.2f} × plain decoding{tail}"
