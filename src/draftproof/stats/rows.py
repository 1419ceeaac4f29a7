"""From a bench's raw answers to the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from draftproof import cost
from draftproof.answers import Answer, Reply
from draftproof.records import Interval
from draftproof.results import Arm, Cell
from draftproof.stats.speedup import speedup


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One way to write one workload: sums over prompts; counts are means over repeats, times are medians.

    What an engine does not tell is None.
    """

    workload: str
    arm: Arm
    tokens_per_s: float | None
    speedup: Interval | None
    """None for plain decoding itself, for another text than the plain one, and where too little was measured."""
    target_passes: float | None
    draft_passes: float | None
    proposed: float | None
    discarded: float | None
    acceptance_rate: float | None
    agreement: float | None
    """Estimated alpha."""
    tokens_per_round: float | None
    identical: bool | None

    @property
    def draft(self) -> str | None:
        """Who guesses; None where nobody does."""
        return self.arm.draft

    @property
    def k(self) -> int | None:
        """Most guesses of a round."""
        return self.arm.k

    @property
    def guesses(self) -> bool:
        """Whether this is our own speculation."""
        return self.arm.ours and not self.arm.plain


def bench_rows(cells: Sequence[Cell]) -> list[BenchRow]:
    """Return one row for every workload and arm that was measured, in the order of the cells.

    All rows of ours on a workload speak of the same prompts: those that every measured arm of ours finished. Other
    engines are compared on the prompts that they finished. An arm without any measurement has no row; `doubts` says
    why. Every row's interval is found here, and only here.
    """
    rows = []
    for workload in dict.fromkeys(c.workload for c in cells):
        arms: dict[Arm, dict[int, Cell]] = {}
        for cell in cells:
            if cell.workload == workload and cell.answers and cell.error is None:
                arms.setdefault(cell.arm, {})[cell.prompt] = cell
        plain = next((mine for arm, mine in arms.items() if arm.plain), None)
        if plain is None:
            continue
        common = set.intersection(*(set(mine) for arm, mine in arms.items() if arm.ours))
        for arm, mine in arms.items():
            if prompts := sorted(common if arm.ours else set(mine) & set(plain)):
                rows.append(_row([mine[p] for p in prompts], [plain[p] for p in prompts]))
    return rows


def _row(cells: Sequence[Cell], plain: Sequence[Cell]) -> BenchRow:
    arm = cells[0].arm
    repeats = max(len(c.answers) for c in cells)
    compared = [c.identical for c in cells if c.identical is not None]
    identical = all(compared) if compared else None
    pairs = [pair for c, p in zip(cells, plain, strict=True) for pair in zip(c.answers, p.answers, strict=False)]
    made = [g for c in cells for g in c.generations]
    replies = [a for c in cells for a in c.answers if isinstance(a, Reply)]
    rounds = [r for g in made for r in g.rounds]
    proposed, accepted, passes = (
        _sum([getattr(g.counts, name) for g in made] + [getattr(a, name) for a in replies])
        for name in ("proposed", "accepted", "target_passes")
    )
    tokens = _sum([None if a.tokens is None else len(a.tokens) for c in cells for a in c.answers])
    return BenchRow(
        workload=cells[0].workload,
        arm=arm,
        tokens_per_s=tokens_per_s(c.answers for c in cells),
        speedup=None if arm.plain or identical is False else speedup(pairs),
        target_passes=None if passes is None else passes / repeats,
        draft_passes=None if replies else sum(g.counts.draft_passes for g in made) / repeats,
        proposed=None if proposed is None else proposed / repeats,
        discarded=None if proposed is None or accepted is None else (proposed - accepted) / repeats,
        acceptance_rate=accepted / proposed if proposed and accepted is not None else None,
        agreement=cost.agreement(rounds),
        tokens_per_round=tokens / passes if passes and tokens is not None else None,
        identical=identical,
    )


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum, or None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def tokens_per_s(runs: Iterable[Sequence[Answer]]) -> float | None:
    """Return tokens a second over several prompts, each with the median of its repeats; None if nothing was measured,
    or an engine does not tell its tokens.
    """
    tokens, seconds = 0.0, 0.0
    for repeats in runs:
        known = [(len(a.tokens), a.total_s) for a in repeats if a.tokens is not None]
        if len(known) < len(repeats):
            return None
        written = sum(n for n, _ in known) / len(known)
        tokens += written
        seconds += written * median(total_s / max(1, n) for n, total_s in known)
    return tokens / seconds if seconds else None
