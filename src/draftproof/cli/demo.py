"""`draftproof demo`: see it work, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import shell
from draftproof.settings import check_k

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from draftproof.bench.race import Race
    from draftproof.engines.local import Speculator

PROMPT = 'The "for" statement'


def demo(
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = PROMPT,
    k: Annotated[int, typer.Option(help="Guesses a round.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to write at most.")] = 160,
    repeats: Annotated[int, typer.Option(help="Interleaved pairs of runs behind the speedup.")] = 5,
) -> None:
    """Write a text plainly and speculatively, side by side, on the pair that ships inside the package."""
    with shell.errors_in_one_line() as progress:
        shell.check_counts(max_new_tokens=max_new_tokens, repeats=repeats)
        check_k(k)
        speculator = shell.load(progress, "demo-target", "demo-draft", k=k, compile="on")
        from draftproof.bench.race import compare, duel
        from draftproof.report import terminal
        from draftproof.report.grid import draw
        from draftproof.stats.speedup import speedup
        from draftproof.stats.trust import doubt_machine

        out = terminal.console()
        doubts = doubt_machine()
        ids = speculator.encode(prompt)
        with progress.status("warming up"):
            speculator.warm_up(len(ids))
        _watch(out, duel(speculator, ids, max_new_tokens=max_new_tokens, even="time"), prompt, speculator)
        pairs = []
        with progress.status("measuring") as status:
            for i in range(repeats):
                status.update(f"measuring, both ways turn by turn: {i + 1} of {repeats}")
                pairs.append(compare(speculator, ids, max_new_tokens=max_new_tokens, plain_first=i % 2 == 1))
        pairs.sort(key=lambda p: p.plain.seconds.total_s / p.speculative.seconds.total_s)
        middle = pairs[len(pairs) // 2]
        out.print(f"\nmeasured {repeats} times, both ways turn by turn; this is the pair in the middle:", style="dim")
        out.print(draw(terminal.ledger(middle.speculative, middle.plain)))
        shell.conclude(out, speculator, pairs, speedup([(p.speculative, p.plain) for p in pairs]))
        for warning in doubts:
            shell.tell(out, "warning", warning)


def _watch(out: Console, contest: Race, prompt: str, speculator: Speculator) -> None:
    """Show both texts as they are written, and then the first rounds guess by guess."""
    from rich.live import Live

    from draftproof.report import terminal

    def decode(tokens: Sequence[int]) -> str:
        return str(speculator.target.tokenizer.decode(tokens, skip_special_tokens=True))

    pages = {arm: terminal.Page(arm, prompt, decode) for arm in ("plain", "speculative")}
    height = max(12, min(out.height - 12, 24))
    rounds = []

    def frame() -> Table:
        return terminal.side_by_side(out, pages["plain"], pages["speculative"], height)

    with Live(console=out, refresh_per_second=20, get_renderable=frame):
        for arm, chunk in contest:
            pages[arm].add(chunk.round)
            if arm == "speculative":
                rounds.append(chunk.round)
    out.print()
    out.print(terminal.legend())
    for i, done in enumerate(rounds[:4]):
        out.print(terminal.fates(f"round {i + 1}:", done, decode))
