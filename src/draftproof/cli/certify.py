"""`draftproof certify`: the law of the output, proven on small vocabularies and tested on your own pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError
from draftproof.options import RULES, Options, Rule
from draftproof.settings import check_k, check_settings

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.engines.local import Speculator
    from draftproof.results import LawRow, TwoSamples


PROMPT = "Once upon a time"


USUAL: dict[str, Any] = {"max_new_tokens": 4, "temperature": 0.7, "seed": 0}
K, SAMPLES = 3, 500


@with_options(**USUAL, verify=None, without=("logprobs", "top_logprobs"))
@with_settings("draft_dtype", "weights", "draft_weights", "adapter", "draft_adapter", "compile", "numerics")
def certify(
    *,
    target: Annotated[str | None, typer.Option(help="Your target, to be sampled too; without one: the walk.")] = None,
    draft: Annotated[str | None, typer.Option(help="Your draft.")] = None,
    k: Annotated[int, typer.Option(help="Guesses a round, in the samples; the walk takes 0 to 3.")] = K,
    prompt: Annotated[str, typer.Option(help="What every sample continues.")] = PROMPT,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    samples: Annotated[int, typer.Option(help="Texts on each side.")] = SAMPLES,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Prove that sampled text follows the target's law: walk every outcome of small models, then sample your pair.

    All three rules are looked at, or the one of --verify. The options of the request are those of the samples.
    """
    with shell.errors_in_one_line() as progress:
        rules: Sequence[Rule] = RULES if options["verify"] is None else [options["verify"]]
        wanted = read_options(options)
        if wanted.temperature == 0:
            raise ConfigError("--temperature is 0, where nothing is random: use draftproof run, which compares texts.")
        if (target is None) != (draft is None):
            raise ConfigError("--target and --draft belong together; give both, or neither for the walk alone.")
        usual = Options(**USUAL, verify=wanted.verify)
        if target is None and (wanted != usual or (k, prompt, chat, samples) != (K, PROMPT, False, SAMPLES)):
            raise ConfigError("options of the samples were given, and no pair to sample; add --target and --draft.")
        shell.check_counts(samples=samples)
        check_k(k, least=1)
        how = {"k": k, **settings}
        if target is None:
            check_settings(**how)
        else:
            shell.check_models(target, draft, **how)
        shell.check_json(json_file)
        from draftproof.report import certificate
        from draftproof.report.grid import draw
        from draftproof.results import CertifyResult, read_machine

        rows = _walk(progress, rules)
        out = shell.results_console(json_file)
        out.print(draw(certificate.law_table(rows)))
        tests: list[TwoSamples] = []
        interrupted: list[str] = []
        notes: tuple[str, ...] = ()
        if target is not None:
            speculator = shell.load(progress, target, draft, **how)
            ids = speculator.encode(prompt, chat=chat)
            with shell.interruptible(lambda: None) as interrupted:
                for rule in rules:
                    tests += _sample(progress, speculator, ids, replace(wanted, verify=rule), samples)
            out.print(draw(certificate.samples_table(tests)))
            notes = (*_placements(speculator), *speculator.notes)
            said = f"k = {k}, temperature {wanted.temperature:g}, seed {wanted.seed}, after {prompt!r}"
            shell.tell(out, "note", said)
        result = CertifyResult(
            machine=read_machine(),
            rows=tuple(rows),
            target=target,
            draft=draft,
            k=k,
            prompt=None if target is None else prompt,
            options=None if target is None else wanted,
            tests=tuple(tests),
            notes=notes,
        )
        shell.write_json(result, json_file)
        for note in notes:
            out.print(f"note: {note}", style="dim", markup=False)
        for sentence in certificate.certificate(result):
            out.print(sentence, style="bold", markup=False)
        if interrupted:
            out.print("interrupted: the figures above are of what was done until then")
            raise typer.Exit(shell.INTERRUPTED)
        if not certificate.holds(result):
            raise typer.Exit(1)


def _placements(speculator: Speculator) -> list[str]:
    roles = (("target", speculator.target), ("draft", speculator.draft))
    return [f"{role} on {one.placement.reason}" for role, one in roles if one is not None]


def _walk(progress: Console, rules: Sequence[Rule]) -> list[LawRow]:
    from draftproof.bench.certify import jobs, walk

    todo = list(jobs(rules))
    rows = []
    with shell.bar(progress, "walking every outcome", len(todo)) as advance:
        for job in todo:
            rows.append(walk(*job))
            advance()
    return rows


def _sample(
    progress: Console, speculator: Speculator, prompt: Sequence[int], options: Options, samples: int
) -> Sequence[TwoSamples]:
    from draftproof.bench.two_samples import compare_samples, draw_pairs

    pairs = []
    with shell.bar(progress, f"sampling, {options.verify}", samples) as advance:
        try:
            for pair in draw_pairs(speculator, prompt, options, samples):
                pairs.append(pair)
                advance()
        except KeyboardInterrupt:
            if len(pairs) < 2:
                raise
    return compare_samples(pairs, options.verify)
