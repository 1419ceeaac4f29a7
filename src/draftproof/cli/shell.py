"""What every command shares: loading with progress, errors in one line, Ctrl-C, and writing text safely."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer

from draftproof.cli.options import in_switches
from draftproof.errors import ConfigError, DivergenceError, DraftproofError, ResultError
from draftproof.files.adapter import check_here
from draftproof.files.find import find
from draftproof.reading import STANDARD
from draftproof.settings import WITHOUT_MODEL, check_draft_is_named, check_settings

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.bench.race import Pair
    from draftproof.engines.local import Speculator
    from draftproof.models.load import Loaded
    from draftproof.records import Interval
    from draftproof.results import AnyResult

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@contextmanager
def errors_in_one_line() -> Iterator[Console]:
    """Yield the console for progress; turn errors of ours, and running out of memory, into a line and an exit code."""
    from draftproof.report.terminal import console

    progress = console(errors=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows "?" for what it cannot show

    def leave(message: str, code: int) -> NoReturn:
        progress.print(f"error: {message}", style="red", markup=False)
        raise typer.Exit(code)

    try:
        yield progress
    except DraftproofError as error:
        leave(in_switches(str(error)), error.exit_code)
    except KeyboardInterrupt:
        leave("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate" in str(error)):
            raise
        leave("out of memory; choose a smaller model, a shorter text, or --dtype bfloat16", 1)


@contextmanager
def interruptible(cancel: Callable[[], object]) -> Iterator[list[str]]:
    """Let Ctrl-C end the work inside, and keep what is done; the yielded list is not empty if that happened."""
    state: list[str] = []
    try:
        yield state
    except KeyboardInterrupt:
        cancel()
        state.append("interrupted")


def check_counts(**counts: int) -> None:
    """Raise `ConfigError` for a count below 1, before anything is loaded."""
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be at least 1.")


def check_models(target: str, draft: str | None = None, **settings: Any) -> None:
    """Raise what is wrong with a pair and its settings as far as that shows without loading anything.

    Settings are named as `Speculator` names them; with `draft=None` none may be of the draft.
    """
    check_settings(**settings)
    of_the_draft = {name: value for name, value in settings.items() if name.startswith("draft_")}
    check_draft_is_named(draft, **of_the_draft)
    check_here(target, settings.get("revision"), settings.get("adapter"))
    if draft is not None and draft not in WITHOUT_MODEL:
        check_here(draft, settings.get("draft_revision"), settings.get("draft_adapter"))


def check_json(path: Path | None) -> None:
    """Raise `ResultError` if a result could not be written there, before anything is measured."""
    if path is not None and path != STANDARD:
        from draftproof.results import check_writable

        check_writable(path)


def write_json(result: AnyResult, path: Path | None) -> None:
    """Write the result, if a file was asked for; `-` is standard output."""
    if path == STANDARD:
        from draftproof.results import to_json

        speak_utf8()
        show([to_json(result), "\n"])
    elif path is not None:
        from draftproof.results import write

        write(result, path)


def check_outputs(json_file: Path | None, text_file: Path | None, n: int) -> None:
    """Raise a `DraftproofError` if the result or the text of a run could not be written there, before anything runs."""
    if json_file is not None and json_file == text_file:
        raise ConfigError("--json and --text name the same place; give two.")
    if text_file is not None and n > 1:
        raise ConfigError(f"--text takes one text and --n asks for {n}; use --json, which holds them all.")
    for path in (json_file, text_file):
        check_json(path)
    if text_file == STANDARD:
        speak_utf8()


def write_text(text: str, path: Path | None) -> None:
    """Write a text alone, if a file was asked for; on standard output it stands already."""
    if path is not None and path != STANDARD:
        from draftproof.results import write_text as write_file

        write_file(text, path)


def speak_utf8() -> None:
    """Let standard output carry UTF-8 whatever the locale, and lines as they are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="")


def results_console(*files: Path | None) -> Console:
    """Return the console for what a person reads: standard error, where one of `files` is standard output."""
    from draftproof.report.terminal import console

    return console(errors=STANDARD in files)


@contextmanager
def bar(progress: Console, title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar with the time left; yield what moves it on by one step."""
    from rich.progress import Progress

    with Progress(console=progress, transient=True) as shown:
        task = shown.add_task(title, total=steps)
        yield lambda: shown.advance(task)


@contextmanager
def steps(progress: Console, title: str) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a progress bar whose length is known later; yield what says how many steps there are, and what moves it."""
    from rich.progress import Progress

    with Progress(console=progress, transient=True) as shown:
        task = shown.add_task(title, total=None)
        yield lambda total: shown.update(task, total=total), lambda: shown.advance(task)


JSON_HELP = "File for everything found (- is standard output, which then holds nothing else)."


def load_model(progress: Console, name: str, *, compile: str = "off", **options: Any) -> Loaded:
    """Load one model to be measured, showing that something happens; `auto` waits for the compiler."""
    with progress.status(f"loading {name}"):
        find(name, code=options.get("trust_remote_code", False))
        from draftproof.models.load import load as load_one

        _quieten()
        return load_one(name, compile="wait" if compile == "auto" else compile, **options)


def _quieten() -> None:
    """Leave out transformers' own bars and advice; downloads from the hub still show theirs."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load(progress: Console, target: str, draft: str | None, **options: Any) -> Speculator:
    """Load a pair, showing that something happens."""
    names = target if draft is None else f"{target} and {draft}"
    with progress.status(f"loading {names}"):
        _look_up(target, draft, **options)
        from draftproof.engines.local import Speculator

        _quieten()
        return Speculator(target, draft, **options)


def _look_up(target: str, draft: str | None = None, **options: Any) -> None:
    """Have what comes from the hub here before anything heavy is imported; a wrong name shows at once."""
    for name, revision in ((target, options.get("revision")), (draft, options.get("draft_revision"))):
        if name is not None and name not in WITHOUT_MODEL:
            find(name, revision, code=options.get("trust_remote_code", False))


def tell_placements(out: Console, result: AnyResult) -> None:
    """Print where each model ran and how, as far as the result says."""
    told = [("target", getattr(result, "target_placement", None)), ("draft", getattr(result, "draft_placement", None))]
    told += [(f"{times.role} {times.model}", times.placement) for times in getattr(result, "passes", ())]
    told += [(f"draft {fact.draft}", fact.placement) for fact in getattr(result, "facts", ())]
    for role, placement in told:
        if placement is not None:
            tell(out, "note", f"{role} on {placement.reason}")


def tell(out: Console, kind: Literal["note", "warning"], text: str) -> None:
    """Print a note or a warning, with options as they are called here."""
    out.print(f"{kind}: {in_switches(text)}", style="dim" if kind == "note" else "yellow", markup=False)


def show(pieces: Iterable[str], *, aside: bool = False) -> None:
    """Write text as it comes, or to standard error if `aside`; terminals are shown control characters, not given."""
    out = sys.stderr if aside else sys.stdout
    try:
        for piece in pieces:
            out.write(piece.translate(_VISIBLE) if out.isatty() else piece)
            out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # what is still held would fail again at the end
        raise ResultError(f"cannot write to standard {'error' if aside else 'output'}: {error.strerror}.") from error


_VISIBLE = {i: 0x2400 + i for i in range(32) if chr(i) not in "\n\t"} | {127: 0x2421}


def conclude(out: Console, speculator: Speculator, pairs: Sequence[Pair], compared: Interval | None) -> None:
    """Print whether the texts are identical and how the speed compares; raise `DivergenceError` if they are not."""
    from draftproof.bench.race import first_divergence
    from draftproof.decode.divergence import describe
    from draftproof.report import terminal
    from draftproof.verify import JUDGES

    found = first_divergence(pairs)
    rule = pairs[0].speculative.verify
    if JUDGES[rule].draws:
        out.print(
            f"texts: not compared, as plain decoding draws another one under the {rule} rule (draftproof certify is "
            "about its law); speeds are for a token",
            style="bold",
        )
        out.print(terminal.verdict(compared, identical=True))
        return
    why = "" if found is None else " (numeric tie, not a bug)" if found.kind == "numeric tie" else " (a bug)"
    out.print(f"identical: {'no' if found else 'yes'}{why}", style="bold red" if found else "bold green")
    out.print(terminal.verdict(compared, identical=found is None))
    if found:
        raise DivergenceError(describe(found, speculator.target))
