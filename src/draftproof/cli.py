"""The command line: parse, call one function, print. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from draftproof import __version__
from draftproof.errors import ConfigError, DivergenceError, DraftproofError
from draftproof.records import MAX_K

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from draftproof.bench.speedup import Pair, Race
    from draftproof.engines.local import Speculator
    from draftproof.records import Generation, Interval
    from draftproof.results import Recipe, RunResult

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Speculative decoding that proves the output did not change. Start with: draftproof demo",
)

INTERRUPTED = 130
DEMO_PROMPT = 'The "with" statement'


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        sys.stdout.write(f"draftproof {__version__}\n")
        raise typer.Exit


@app.command()
def demo(
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = DEMO_PROMPT,
    k: Annotated[int, typer.Option(help="Guesses a round.", min=0, max=MAX_K)] = 4,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to write at most.", min=1)] = 160,
    repeats: Annotated[int, typer.Option(help="Interleaved pairs of runs behind the speedup.", min=1)] = 5,
) -> None:
    """Write a text plainly and speculatively, side by side, on the pair that ships inside the package."""
    with _errors_in_one_line() as progress:
        speculator = _load(progress, "demo-target", "demo-draft", k=k)
        from draftproof.bench.speedup import Race, race, speedup
        from draftproof.report import terminal

        out = terminal.console()
        ids = speculator.encode(prompt)
        with progress.status("warming up"):
            speculator.warm_up()
        _watch(out, Race(speculator, ids, max_new_tokens=max_new_tokens, even="time"), prompt, speculator)
        with progress.status("measuring") as status:
            pairs = []
            for i in range(repeats):
                status.update(f"measuring, both ways turn by turn: {i + 1} of {repeats}")
                pairs.append(race(speculator, ids, max_new_tokens=max_new_tokens))
        out.print(terminal.ledger(pairs[-1].speculative, pairs[-1].plain))
        _conclude(out, speculator, pairs, speedup([(p.speculative, p.plain) for p in pairs]))


@app.command()
def run(
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model whose text is wanted.")],
    draft: Annotated[str | None, typer.Option(help="The same for the small model that guesses; none: plain.")] = None,
    k: Annotated[int, typer.Option(help="Guesses a round; 0 is plain decoding.", min=0, max=MAX_K)] = 5,
    prompt: Annotated[str | None, typer.Option(help="The prompt; without one it is read from standard input.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="File that holds the prompt.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to write at most.", min=1)] = 128,
    stop: Annotated[list[str] | None, typer.Option(help="String that ends the text; may be given again.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    draft_device: Annotated[str | None, typer.Option(help="Device of the draft, if not the target's.")] = None,
    draft_dtype: Annotated[str | None, typer.Option(help="Number format of the draft, if not as --dtype.")] = None,
    draft_window: Annotated[int | None, typer.Option(help="Use only so much of the draft's window.")] = None,
    revision: Annotated[str | None, typer.Option(help="Hub revision of the target.")] = None,
    draft_revision: Annotated[str | None, typer.Option(help="Hub revision of the draft.")] = None,
    seed: Annotated[int, typer.Option(help="Recorded; greedy text does not depend on it.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything measured to this file.")] = None,
    check: Annotated[bool, typer.Option(help="Write the text plainly too, compare, and time both.")] = True,
    repeats: Annotated[int, typer.Option(help="Interleaved pairs of runs behind the speedup.", min=1)] = 1,
) -> None:
    """Write a text speculatively, prove that it is plain decoding's, and print the ledger."""
    with _errors_in_one_line() as progress:
        text = _read_prompt(prompt, prompt_file)
        from draftproof.results import Recipe, check_writable

        if json_file is not None:
            check_writable(json_file)
        speculator = _load(
            progress,
            target,
            draft,
            k=k,
            device=device,
            dtype=dtype,
            draft_device=draft_device,
            draft_dtype=draft_dtype,
            draft_window=draft_window,
            revision=revision,
            draft_revision=draft_revision,
        )
        recipe = Recipe(
            target=target,
            draft=draft,
            k=k,
            prompt=text,
            chat=chat,
            max_new_tokens=max_new_tokens,
            stop=tuple(stop or ()),
            seed=seed,
            check=check,
            repeats=repeats,
            target_placement=speculator.target.placement,
            draft_placement=None if speculator.draft is None else speculator.draft.placement,
        )
        _run(progress, speculator, recipe, json_file)


def _run(progress: Console, speculator: Speculator, recipe: Recipe, json_file: Path | None) -> None:
    from draftproof.bench.speedup import Race, race, speedup
    from draftproof.report import terminal

    out = terminal.console()
    ids = speculator.encode(recipe.prompt, chat=recipe.chat)
    options: dict[str, Any] = {"max_new_tokens": recipe.max_new_tokens, "stop": recipe.stop}
    with progress.status("warming up"):
        speculator.warm_up()
    pairs: list[Pair] = []
    if not recipe.check:
        stream = speculator.stream(ids, **options)
        with _interruptible(stream.cancel) as state:
            _show(chunk.text for chunk in stream)
        _show([stream.readable()], end="\n\n")
        generation, plain, compared = stream.generation, None, None
    else:
        contest = Race(speculator, ids, **options)
        streams = contest.streams
        with _interruptible(lambda: [s.cancel() for s in streams.values()]) as state:
            _show(chunk.text for arm, chunk in contest if arm == "speculative")
        _show([streams["speculative"].readable()], end="\n\n")
        generation, plain, compared = streams["speculative"].generation, streams["plain"].generation, None
        if not state:
            pairs.append(contest.pair())
            with _interruptible(lambda: None) as state, progress.status("measuring again") as status:
                for i in range(1, recipe.repeats):
                    status.update(f"measuring again, both ways turn by turn: {i + 1} of {recipe.repeats}")
                    pairs.append(race(speculator, ids, **options))
            compared = speedup([(p.speculative, p.plain) for p in pairs])
    result = _result(speculator, recipe, generation, plain, compared, pairs)
    out.print(terminal.ledger(result.generation, plain))
    if json_file is not None:
        from draftproof.results import write

        write(result, json_file)
    for note in (*result.notes, *generation.warnings):
        out.print(f"note: {note}", style="dim", markup=False)
    if state:
        out.print("interrupted: the ledger above is of what was written until then; nothing was compared")
        raise typer.Exit(INTERRUPTED)
    if compared is not None:
        _conclude(out, speculator, pairs, compared)


def _result(
    speculator: Speculator,
    recipe: Recipe,
    generation: Generation,
    plain: Generation | None,
    compared: Interval | None,
    pairs: Sequence[Pair],
) -> RunResult:
    from dataclasses import replace

    from draftproof.results import RunResult, read_machine

    found = next((p.divergence for p in pairs if p.divergence), None)
    placements = [f"target on {recipe.target_placement.reason}"]
    if recipe.draft_placement is not None:
        placements.append(f"draft on {recipe.draft_placement.reason}")
    return RunResult(
        machine=read_machine(),
        recipe=recipe,
        generation=replace(generation, identical=found is None if pairs else None),
        plain=plain,
        speedup=compared,
        divergence=found,
        repeats=tuple((p.speculative, p.plain) for p in pairs[1:]),
        notes=(*placements, *speculator.notes),
    )


def _conclude(out: Console, speculator: Speculator, pairs: Sequence[Pair], compared: Interval) -> None:
    """Print whether the texts are identical and how the speed compares; raise if they are not."""
    from draftproof.engines.local import describe
    from draftproof.report import terminal

    found = next((p.divergence for p in pairs if p.divergence), None)
    out.print(f"identical: {'no' if found else 'yes'}", style="bold red" if found else "bold green")
    out.print(terminal.verdict(compared, identical=found is None))
    if found:
        raise DivergenceError(describe(found, speculator.target))


def _watch(out: Console, contest: Race, prompt: str, speculator: Speculator) -> None:
    """Show both texts as they are written, and then the first rounds guess by guess."""
    from rich.live import Live

    from draftproof.report import terminal

    def decode(tokens: Sequence[int]) -> str:
        return str(speculator.target.tokenizer.decode(tokens, skip_special_tokens=True))

    pages = {arm: terminal.Page(arm, prompt, decode) for arm in ("plain", "speculative")}
    rounds = []
    height = max(12, min(out.height - 12, 24))

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


def _load(progress: Console, target: str, draft: str | None, **options: Any) -> Speculator:
    names = target if draft is None else f"{target} and {draft}"
    with progress.status(f"loading {names}"):
        from draftproof.engines.local import Speculator

        _quieten_libraries()
        return Speculator(target, draft, **options)


def _quieten_libraries() -> None:
    """Keep transformers' own bars and advice out of the output; hub downloads still show theirs."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt is not None and prompt_file is not None:
        raise ConfigError("--prompt and --prompt-file exclude each other; give one.")
    if prompt is not None:
        return prompt
    if prompt_file is not None:
        try:
            return prompt_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --prompt-file {str(prompt_file)!r}: {error}.") from error
    if sys.stdin.isatty():
        raise ConfigError("no prompt; give --prompt, --prompt-file, or text on standard input.")
    return sys.stdin.read()


def _show(pieces: Iterator[str] | Sequence[str], end: str = "") -> None:
    """Write text as it comes; on a terminal, control characters are shown instead of obeyed."""
    for piece in (*pieces, end) if isinstance(pieces, list) else pieces:
        sys.stdout.write(piece.translate(_VISIBLE) if sys.stdout.isatty() else piece)
        sys.stdout.flush()


_VISIBLE = {i: 0x2400 + i for i in range(32) if chr(i) not in "\n\t"} | {127: 0x2421}


@contextmanager
def _interruptible(cancel: Callable[[], object]) -> Iterator[list[str]]:
    """Let Ctrl-C end the work inside, and keep what is done; the yielded list is not empty if that happened."""
    state: list[str] = []
    try:
        yield state
    except KeyboardInterrupt:
        cancel()
        state.append("interrupted")


@contextmanager
def _errors_in_one_line() -> Iterator[Console]:
    """Yield the console for progress; turn errors of ours, and running out of memory, into a line and an exit code."""
    from draftproof.report.terminal import console

    progress = console(errors=True)

    def leave(message: str, code: int) -> NoReturn:
        progress.print(f"error: {message}", style="red", markup=False)
        raise typer.Exit(code)

    try:
        yield progress
    except DraftproofError as error:
        leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        leave("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (MemoryError, RuntimeError) as error:
        if "out of memory" not in str(error) and "alloc" not in str(error) and not isinstance(error, MemoryError):
            raise
        leave("out of memory; choose a smaller model, a shorter text, or --dtype bfloat16", 1)


def main() -> None:
    """The `draftproof` command."""
    app()


if __name__ == "__main__":
    main()
