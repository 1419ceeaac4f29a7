"""Many texts at once: `draftproof bench --batch`, and `draftproof run --prompts`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from draftproof.cli import shell
from draftproof.errors import ConfigError, ResultError
from draftproof.reading import STANDARD, read_text

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.engines.batch import Text
    from draftproof.engines.local import Speculator
    from draftproof.options import Options
    from draftproof.results import Workload

KS = "3,auto"


def read_sizes(text: str, name: str = "--batch") -> list[int]:
    """Return numbers of texts at once, from a switch. Raises `ConfigError`."""
    if not re.fullmatch(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*", text):
        raise ConfigError(f"{name} is {text!r}; give whole numbers from 1, with commas, such as 1,2,4,8.")
    return sorted({int(one) for one in text.split(",")})


def bench_batches(
    progress: Console,
    speculator: Speculator,
    names: tuple[str, str],
    workloads: Sequence[Workload],
    options: Options,
    sizes: Sequence[int],
    ks: Sequence[int | str],
    repeats: int,
    json_file: Path | None,
) -> None:
    """Measure many texts at once, and print what was found."""
    from draftproof.bench.batches import batches
    from draftproof.report import batch as report
    from draftproof.report.grid import draw

    result = None
    steps = repeats * len(sizes) * (1 + len(ks))
    with shell.interruptible(lambda: None) as interrupted, shell.bar(progress, "writing", steps) as advance:
        for result in batches(
            speculator, names, workloads, options, sizes=sizes, ks=ks, repeats=repeats, on_cell=advance
        ):
            shell.write_json(result, None if json_file == STANDARD else json_file)
    if result is None:
        raise KeyboardInterrupt
    if json_file == STANDARD:
        shell.write_json(result, json_file)
    out = shell.results_console(json_file)
    out.print(draw(report.batch_table(result), out.width))
    for sentence in report.verdicts(result):
        out.print(sentence, style="bold", markup=False)
    shell.tell_placements(out, result)
    for warning in result.notes:
        shell.tell(out, "warning", warning)
    if interrupted:
        progress.print("interrupted: the figures above are of the repeats that were finished", markup=False)
        raise typer.Exit(shell.INTERRUPTED)
    if not all(cell.identical for cell in result.cells):
        raise typer.Exit(1)


def write_prompts(
    progress: Console,
    speculator: Speculator,
    workloads: Sequence[Workload],
    options: Options,
    file: Path,
    *,
    at_once: int,
    memory: int | None,
) -> None:
    """Write a text after every prompt, a line of JSON each as they come; what `file` holds is not written again."""
    from draftproof.engines.batch import Batch
    from draftproof.engines.ours import Ours

    encode = Ours(speculator).prompt
    prompts = [(w.name, prompt, w.chat) for w in workloads for prompt in w.prompts]
    asked = json.dumps([speculator.target.name, str(options)])
    key = sha256(asked.encode()).hexdigest()[:12]
    done = _done(file, key, [prompt for _, prompt, _ in prompts])
    batch = Batch(speculator, at_once=at_once, memory=memory)
    texts: dict[int, Text] = {}
    wrong: dict[int, str] = {}
    for i, (_, prompt, chat) in enumerate(prompts):
        if i not in done:
            try:
                texts[i] = batch.add(list(encode(prompt, chat=chat).ids), options)
            except ConfigError as error:
                wrong[i] = str(error)
    written, proposed, accepted, failed = 0, 0, 0, len(wrong)
    with (
        file.open("a", encoding="utf-8") as out,
        shell.interruptible(lambda: None) as interrupted,
        shell.bar(progress, f"writing {len(texts)} texts, {at_once} at once", len(texts)) as advance,
    ):

        def tell(i: int, **found: Any) -> None:
            name, prompt, _ = prompts[i]
            line = {"index": i, "workload": name, "prompt": prompt, **found, "asked": key}
            out.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            out.flush()

        for i, message in wrong.items():
            tell(i, error=message)
        started = speculator.clock.now()
        while texts:
            batch.step()
            for i in [i for i, text in texts.items() if text.over]:
                text, made = texts[i], texts.pop(i).generation
                advance()
                if text.error is not None:
                    failed += 1
                    tell(i, error=str(text.error), text=made.text)
                    continue
                written += len(made.tokens)
                proposed += made.counts.proposed
                accepted += made.counts.accepted
                tell(
                    i,
                    text=made.text,
                    finish_reason=made.finish_reason,
                    prompt_tokens=made.prompt_tokens,
                    tokens=len(made.tokens),
                    rounds=made.counts.rounds,
                    proposed=made.counts.proposed,
                    accepted=made.counts.accepted,
                    seed=made.seed,
                )
        spent = speculator.clock.now() - started
    said = f"{len(prompts) - len(texts) - failed} of {len(prompts)} texts in {str(file)!r}"
    said += f", {len(done)} of them from before" if done else ""
    if written:
        said += f"; {written} tokens in {spent:.1f} s, {written / spent:.1f} a second in all"
    if proposed:
        said += f"; {accepted} of {proposed} guesses accepted"
    progress.print(said, markup=False)
    if failed:
        progress.print(f"{failed} failed; their lines say why, and the same command tries them again", markup=False)
    if interrupted:
        progress.print("interrupted: the same command goes on with the rest", markup=False)
        raise typer.Exit(shell.INTERRUPTED)
    if failed:
        raise typer.Exit(1)


def _done(file: Path, key: str, prompts: Sequence[Any]) -> set[int]:
    """Return which texts a file holds already, and leave in it nothing else. Raises `ResultError`."""
    if not file.exists():
        return set()
    found: set[int] = set()
    kept: list[str] = []
    for line in read_text(file, "--out", ResultError).splitlines():
        try:
            one = json.loads(line)
            same = one["asked"] == key and one["prompt"] == json.loads(json.dumps(prompts[one["index"]]))
        except (ValueError, KeyError, IndexError, TypeError):
            if kept and line is not None and not line.endswith("}"):
                continue  # the last line of a run that was killed
            raise ResultError(f"{str(file)!r} holds something else; give --out another name.") from None
        if not same:
            raise ResultError(
                f"{str(file)!r} holds texts of other prompts, another target or other options; give --out another name."
            )
        if "error" not in one:
            found.add(one["index"])
            kept.append(line)
    from draftproof.results import write_text

    write_text("".join(f"{line}\n" for line in kept), file)
    return found
