"""The ledger and the text as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from draftproof.records import Generation, Interval, Round
from draftproof.report.grid import Column, Grid, grid

POSITIONS = 5
"""Most places of a round whose acceptance stands in the ledger."""
ACCEPTED, OWN, REJECTED = "green", "bold blue", "red strike"


def ledger(speculative: Generation, plain: Generation | None = None) -> Grid:
    """Return the essay's table: counts, rates and times, plain decoding beside speculative where it was run."""
    arms = [g for g in (plain, speculative) if g is not None]
    heads = [f"speculative, {_asked(g)}" if g.k else "plain" for g in arms]
    rows = [(name, *(value(g) for g in arms)) for name, value in _ROWS]
    rows = [row for row in rows if any(cell != "–" for cell in row[1:])]  # those that say something
    c = cost_coefficient(speculative, plain)
    if c is not None:
        rows.append(("c: a draft pass / a plain target pass", *[""] * (len(arms) - 1), f"{c:.2f}"))
    return grid("", [Column("", left=True), *map(Column, heads)], rows)


def _asked(generation: Generation) -> str:
    """Say how many guesses a round was asked for."""
    fixed = all(r.asked in (None, generation.k) for r in generation.rounds)
    return f"k = {generation.k}" if fixed else f"k up to {generation.k}"


def cost_coefficient(speculative: Generation, plain: Generation | None) -> float | None:
    """Return seconds of one draft pass / seconds of one plain target pass, or None if one of them was not run."""
    draft, target = speculative.draft_pass_s, None if plain is None else plain.target_pass_s
    return draft / target if draft is not None and target else None


def _rate(tokens_per_s: float | None) -> str:
    return "–" if tokens_per_s is None else f"{tokens_per_s:.2f}"


def _by_position(shares: Sequence[float]) -> str:
    """Name the share of kept guesses for the first places, and the last."""
    told = [f"{share:.0%}" for share in shares]
    return " ".join(told if len(told) <= POSITIONS else [*told[: POSITIONS - 1], "…", told[-1]]) if told else "–"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _optional(value: int) -> str:
    return f"{value:,}" if value else "–"


_ROWS: Sequence[tuple[str, Callable[[Generation], str]]] = (
    ("tokens written", lambda g: f"{g.counts.tokens:,}"),
    ("seconds, prompt included", lambda g: f"{g.seconds.total_s:.2f}"),
    ("tokens per second", lambda g: _rate(g.tokens_per_s)),
    ("  behind the prompt", lambda g: _rate(g.decode_tokens_per_s)),
    ("target passes (rounds)", lambda g: f"{g.counts.target_passes:,}"),
    ("draft passes", lambda g: _optional(g.counts.draft_passes)),
    ("guesses", lambda g: _optional(g.counts.proposed)),
    ("accepted", lambda g: f"{g.counts.accepted:,}" if g.counts.proposed else "–"),
    ("discarded", lambda g: f"{g.counts.discarded:,}" if g.counts.proposed else "–"),
    (
        "acceptance rate (accepted / guesses)",
        lambda g: "–" if g.counts.acceptance_rate is None else f"{g.counts.acceptance_rate:.1%}",
    ),
    ("  by position in the round", lambda g: _by_position(g.acceptance_by_position)),
    (
        "tokens per round",
        lambda g: "–" if g.counts.tokens_per_round is None or not g.k else f"{g.counts.tokens_per_round:.2f}",
    ),
    ("one target pass (median)", lambda g: _ms(g.target_pass_s)),
    ("one draft pass (median)", lambda g: _ms(g.draft_pass_s)),
    ("reading the prompt", lambda g: _ms(g.seconds.prompt_s)),
    ("  of its tokens, held from before", lambda g: _optional(g.prompt_tokens_reused)),
    ("everything but the passes", lambda g: _ms(g.seconds.overhead_s)),
)


def endings(generation: Generation) -> list[str]:
    """Say why a text ended, and how likely the target held it, if that was recorded."""
    why = {"stop": f"stop ({generation.stop!r})", "length": "length (cut off)", "cancelled": "cancelled"}
    lines = [f"ended by: {why[generation.finish_reason]}"]
    known = [one.logprob for one in generation.logprobs or () if one.logprob is not None]
    if known:
        mean = sum(known) / len(known)
        lines.append(f"log-probability: {mean:.3f} nats a token (mean); every token's is in the result's file")
    return lines


def verdict(speedup: Interval | None, *, identical: bool) -> Text:
    """Say how the speed compares, and call it faster or slower only if the interval leaves no doubt."""
    if not identical:
        return Text("speed: the texts differ, so there is no speedup to speak of", style="bold red")
    if speedup is None:
        return Text("speed: too few rounds to tell; write more tokens, or repeat it", style="bold")
    span = f"{speedup.value:.2f} × plain (95 % interval {speedup.low:.2f} – {speedup.high:.2f})"
    if speedup.low > 1:
        return Text(f"speedup: {span}: faster", style="bold green")
    if speedup.high < 1:
        return Text(f"speedup: {span}: slower than plain decoding here", style="bold yellow")
    return Text(f"speedup: {span}: no difference that this run can tell", style="bold")


class Page:
    """A text that grows round by round, each token in the colour of its fate."""

    def __init__(self, title: str, prompt: str, decode: Callable[[Sequence[int]], str]) -> None:
        self._title = title
        self._decode = decode
        self._tokens: list[int] = []
        self._rounds = 0
        self.text = Text(prompt, style="dim")

    @property
    def title(self) -> str:
        """What is shown above the text."""
        return f"{self._title}: {self._rounds} target passes"

    def add(self, done: Round) -> None:
        """Add a round's tokens."""
        self._rounds += 1
        for i, token in enumerate(done.tokens):
            before = self._decode(self._tokens[-16:])
            self._tokens.append(token)
            piece = self._decode(self._tokens[-17:])[len(before) :]
            self.text.append(piece, style=ACCEPTED if i < done.drafted else OWN)


def fates(title: str, done: Round, decode: Callable[[Sequence[int]], str]) -> Text:
    """Return one round in one line: accepted guesses, rejected guesses, the target's own token."""
    line = Text(title)
    for i, token in enumerate(done.proposed):
        style, mark = (ACCEPTED, "✓") if i < done.accepted else (REJECTED, "✗")
        line.append(" ").append(repr(decode([token])), style=style).append(mark)
    if len(done.tokens) > done.drafted:
        line.append(" → ").append(repr(decode([done.tokens[-1]])), style=OWN)
    return line


def legend() -> Text:
    """Explain the colours."""
    return Text.assemble(
        ("accepted guess", ACCEPTED), " ✓   ", ("rejected guess", REJECTED), " ✗   → ", ("the target's own token", OWN)
    )


def side_by_side(out: Console, left: Page, right: Page, height: int) -> Table:
    """Return two pages of equal width, next to each other, each showing its last lines."""
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    width = (out.width - 8) // 2
    bodies = [Text("\n").join(page.text.wrap(out, width)[-(height - 2) :]) for page in (left, right)]
    titles = [page.title for page in (left, right)]
    grid.add_row(*(Panel(b, title=t, height=height, title_align="left") for b, t in zip(bodies, titles, strict=True)))
    return grid


def console(*, errors: bool = False) -> Console:
    """Return the console for results, or the one for progress and errors."""
    return Console(stderr=errors, highlight=False, soft_wrap=errors)
