"""`draftproof run`: one text, speculatively, with its ledger and its proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.batch import write_prompts
from draftproof.cli.bench import read_prompts
from draftproof.cli.options import RecipeFile, doubt_escapes, read_options, with_options, with_settings
from draftproof.cli.prompts import CHAT_HELP, MESSAGES_HELP, read_messages, read_prompt, render
from draftproof.errors import ConfigError
from draftproof.reading import STANDARD
from draftproof.settings import SETTINGS

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.bench.race import Pair
    from draftproof.engines.local import Speculator
    from draftproof.records import Generation, Interval
    from draftproof.results import Recipe, RunResult


@with_options()
@with_settings(*SETTINGS)
def run(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model whose text is wanted.")],
    recipe_file: RecipeFile = None,
    draft: Annotated[str | None, typer.Option(help="The same for the small model that guesses; none: plain.")] = None,
    prompt: Annotated[str | None, typer.Option(help="The prompt; without one it is read from standard input.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(help="File with the prompt (one final newline is dropped).")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help=CHAT_HELP)] = False,
    messages_file: Annotated[Path | None, typer.Argument(metavar="[MESSAGES]", help=MESSAGES_HELP)] = None,
    prompts_file: Annotated[
        Path | None, typer.Option("--prompts", help="File of prompts, as --workload of bench: all are written at once.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File for their texts, a line of JSON each; goes on where it ends.")
    ] = None,
    at_once: Annotated[int, typer.Option(help="Texts of --prompts that share passes at most.")] = 16,
    memory: Annotated[
        int | None, typer.Option(help="Bytes that the caches of --prompts may have; texts wait for room.")
    ] = None,
    n: Annotated[int, typer.Option(help="Texts to write, each from its own stream of chance.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    text_file: Annotated[
        Path | None, typer.Option("--text", help="File for the text alone (- is standard output, and nothing else).")
    ] = None,
    check: Annotated[bool, typer.Option(help="Write the text plainly too, compare, and time both.")] = True,
    repeats: Annotated[int, typer.Option(help="Interleaved pairs of runs behind the speedup.")] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say where everything ran, and why.")] = False,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Write a text speculatively, prove that it is plain decoding's, and print the ledger."""
    with shell.errors_in_one_line() as progress:
        wanted = read_options(options)
        shell.check_counts(repeats=repeats, n=n)
        if prompts_file is not None:
            given: dict[str, Any] = {
                "--prompt": prompt,
                "--prompt-file": prompt_file,
                "MESSAGES": messages_file,
                "--json": json_file,
            }
            given |= {"--text": text_file, "--n": n if n != 1 else None}
            if other := next((name for name, value in given.items() if value is not None), None):
                raise ConfigError(f"{other} is for one prompt, and --prompts names many; leave one of them out.")
            if out_file is None:
                raise ConfigError("--prompts needs a file for the texts; give --out FILE.jsonl.")
            shell.check_counts(at_once=at_once, **({} if memory is None else {"memory": memory}))
            shell.check_models(target, draft, **settings)
            workloads = read_prompts(prompts_file, None, None)
            pair = shell.load(progress, target, draft, **settings)
            write_prompts(progress, pair, workloads, wanted, out_file, at_once=at_once, memory=memory)
            return
        if out_file is not None:
            raise ConfigError("--out is for the texts of --prompts; for one text use --text or --json.")
        talk = read_messages(chat, messages_file, prompt, prompt_file)
        text = "" if talk else read_prompt(prompt, prompt_file)
        shell.check_models(target, draft, **settings)
        shell.check_outputs(json_file, text_file, n)
        from draftproof.results import Recipe

        speculator = shell.load(progress, target, draft, **settings)
        from draftproof.control import policy_of

        chosen = speculator.controller_for(wanted, None)
        recipe = Recipe(
            target=target,
            draft=draft,
            k=chosen.most,
            policy=policy_of(chosen),
            prompt=render(speculator.target.tokenizer, talk) if talk else text,
            chat=chat,
            options=wanted,
            n=n,
            check=check and draft is not None and speculator.k > 0,
            repeats=repeats,
            target_placement=speculator.target.placement,
            draft_placement=None if speculator.draft is None else speculator.draft.placement,
            target_window=speculator.target_window,
            draft_window=speculator.draft_window,
            draft_context=speculator.draft_context,
            **({} if talk is None else asdict(talk)),
        )
        _run(progress, speculator, recipe, json_file, text_file, verbose=verbose)


def _run(
    progress: Console,
    speculator: Speculator,
    recipe: Recipe,
    json_file: Path | None,
    text_file: Path | None,
    *,
    verbose: bool,
) -> None:
    from dataclasses import replace

    from draftproof.bench.race import PLAIN, SPECULATIVE, compare, duel, judge_pair
    from draftproof.report import terminal
    from draftproof.report.grid import draw
    from draftproof.stats.speedup import speedup

    if recipe.messages is None:
        ids = speculator.encode(recipe.prompt, chat=recipe.chat)
    else:
        tail = recipe.continue_final_message
        ids = speculator.encode(messages=recipe.messages, tools=recipe.tools, continue_final_message=tail)
    with progress.status("warming up"):
        speculator.warm_up(len(ids))
    options = recipe.options.seeded()
    race = duel(speculator, ids, options, plain=recipe.check)
    samples: list[Generation] = []
    aside = json_file == STANDARD
    with shell.interruptible(race.cancel) as interrupted:
        shell.show((chunk.text for arm, chunk in race if arm == SPECULATIVE), aside=aside)
    shell.show([race.streams[SPECULATIVE].readable(), "" if text_file == STANDARD else "\n\n"], aside=aside)

    generation = race.streams[SPECULATIVE].generation
    shell.write_text(generation.text, text_file)
    plain = race.streams[PLAIN].generation if recipe.check else None
    pairs: list[Pair] = []
    compared = None
    if plain is not None and not interrupted:
        pairs.append(judge_pair(speculator, ids, generation, plain, options))
    for i in range(1, 1 if interrupted else recipe.n):
        race = duel(speculator, ids, options, plain=recipe.check, sample=i)
        shell.show([f"--- text {i + 1} of {recipe.n}\n"], aside=aside)
        with shell.interruptible(race.cancel) as interrupted:
            shell.show((chunk.text for arm, chunk in race if arm == SPECULATIVE), aside=aside)
        made = race.streams[SPECULATIVE].generation
        samples.append(made)
        shell.show([race.streams[SPECULATIVE].readable(), "\n\n"], aside=aside)
        if interrupted:
            break
        if recipe.check:
            pairs.append(judge_pair(speculator, ids, made, race.streams[PLAIN].generation, options))
            samples[-1] = replace(made, identical=pairs[-1].divergence is None if options.same_text else None)
    if pairs and not interrupted:
        with shell.interruptible(lambda: None) as interrupted, progress.status("measuring again") as status:
            for i in range(1, recipe.repeats):
                status.update(f"measuring again, both ways turn by turn: {i + 1} of {recipe.repeats}")
                pairs.append(compare(speculator, ids, options, plain_first=i % 2 == 1))
        compared = speedup([(p.speculative, p.plain) for p in pairs])

    result = _result(speculator, recipe, ids, generation, plain, compared, pairs, samples)
    shell.write_json(result, json_file)
    out = shell.results_console(json_file, text_file)
    out.print(draw(terminal.ledger(generation, plain)))
    if samples:
        out.print(f"the table is of text 1; what is said of all {1 + len(samples)} texts stands below", style="dim")
    for line in terminal.endings(generation):
        out.print(line, markup=False)
    reasons = _usual(speculator)
    for note in (*result.notes, *generation.warnings):
        if verbose or note not in reasons:
            shell.tell(out, "note", note)
    if not verbose:
        shell.tell(out, "note", _in_short(speculator))
    if pairs:
        shell.conclude(out, speculator, pairs, compared)
    if interrupted:
        out.print("interrupted: the figures above are of what was done until then")
        raise typer.Exit(shell.INTERRUPTED)


def _result(
    speculator: Speculator,
    recipe: Recipe,
    prompt: Sequence[int],
    generation: Generation,
    plain: Generation | None,
    compared: Interval | None,
    pairs: Sequence[Pair],
    samples: Sequence[Generation],
) -> RunResult:
    from dataclasses import replace

    from draftproof.bench.race import first_divergence
    from draftproof.models.tokens import pieces
    from draftproof.results import RunResult, read_machine
    from draftproof.stats.trust import doubt_loop

    tokenizer = speculator.target.tokenizer
    found = first_divergence(pairs)
    told: list[str] = []
    if generation.seed is not None:
        again = f"--seed {generation.seed} writes it again"
        if not recipe.options.same_text:
            again = f"--seed {generation.seed}, with this draft and k, writes it again"
            if recipe.policy is not None:
                again = f"seed {generation.seed}; k goes by the clock, so another run may write another"
        how = f"temperature {recipe.options.temperature:g} under the {generation.verify} rule"
        told.insert(0, f"sampled at {how}; {again}")
    if recipe.policy is not None:
        asked = [r.asked or 0 for r in generation.rounds]
        mean = sum(asked) / max(1, len(asked))
        told.insert(
            0, f"k was chosen anew for every round ({recipe.policy}): {mean:.1f} on average, at most {recipe.k}"
        )
    if idle := recipe.options.idle():
        told.insert(0, f"temperature is 0 (greedy), so {', '.join(idle)} cannot matter")
    if recipe.n > 1 and generation.seed is None:
        told.insert(0, f"temperature is 0 (greedy), so all {recipe.n} texts are the same")
    if recipe.repeats > 1 and not recipe.check:
        told.insert(0, f"repeats is {recipe.repeats}, and nothing is timed without the check")
    told = [*doubt_escapes(recipe.options.stop), *told]
    return RunResult(
        machine=read_machine(),
        recipe=recipe,
        generation=replace(generation, identical=found is None if pairs and recipe.options.same_text else None),
        plain=plain,
        speedup=compared,
        divergence=found,
        repeats=tuple((p.speculative, p.plain) for p in pairs[1 + len(samples) :]),
        samples=tuple(samples),
        plain_samples=tuple(p.plain for p in pairs[1 : 1 + len(samples)]),
        notes=(*told, *_reasons(speculator), *speculator.notes, *doubt_loop(generation)),
        pieces=pieces(tokenizer, prompt, generation.tokens),
        guesses={t: tokenizer.decode([t]) for r in generation.rounds for t in r.proposed},
    )


def _reasons(speculator: Speculator) -> list[str]:
    """Return why everything ran where and how it did."""
    found = [f"target on {speculator.target.placement.reason}"]
    if speculator.draft is not None:
        found.append(f"draft on {speculator.draft.placement.reason}")
    return [*found, f"numerics {speculator.numerics.kind}: {speculator.numerics.reason}"]


def _usual(speculator: Speculator) -> list[str]:
    """Return those reasons that nobody needs to read twice.

    Not among them are those of a model that was changed by an adapter or runs its own code, and of numerics that cost
    something or promise less.
    """
    *reasons, numerics = _reasons(speculator)
    models = [one.placement for one in (speculator.target, speculator.draft) if one is not None]
    found = [why for why, where in zip(reasons, models, strict=True) if not (where.adapter or where.own_code)]
    exact = models[0].passes == "compiled" or models[0].dtype == "float32"
    return [*found, numerics] if exact and speculator.numerics.shape is None else found


def _in_short(speculator: Speculator) -> str:
    """Return in one line where and how everything ran."""
    told = {}
    for role, loaded in (("target", speculator.target), ("draft", speculator.draft)):
        if loaded is not None:
            where = loaded.placement
            weights = f" with {where.weights} weights" if where.weights else ""
            told[role] = f"on {where.device} in {where.dtype}{weights}, passes {_PASSES[where.passes]}"
    alike = len(set(told.values())) == 1
    models = f"{' and '.join(told)} {told['target']}" if alike else "; ".join(f"{r} {how}" for r, how in told.items())
    return f"{models}; numerics {speculator.numerics.kind}; -v says why"


_PASSES = {"compiled": "compiled", "graphs": "captured as graphs", "transformers": "through transformers"}
