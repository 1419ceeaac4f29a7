"""What records say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof import Generation, Round, Seconds, Speculator
from draftproof.models.load import load
from draftproof.records import acceptance_by_position, count
from draftproof.report.terminal import ledger


def a_round(proposed, accepted):
    return Round(tuple(range(proposed)), accepted, tuple(range(accepted + 1)), 0, proposed, 0.1, 0.2, 0.05)


ROUNDS = (a_round(3, 3), a_round(3, 1), a_round(3, 0), a_round(1, 1), a_round(0, 0))


def made(**changes):
    tokens = tuple(token for one in ROUNDS for token in one.tokens)
    seconds = Seconds(prompt_s=3.0, draft_s=0.5, target_s=1.0, overhead_s=0.5, total_s=5.0)
    whole = Generation("<b>&", tokens, "length", None, 7, 3, ROUNDS, count(ROUNDS), seconds)
    return replace(whole, **changes)


def test_acceptance_by_position_is_of_the_rounds_that_proposed_so_many():
    assert acceptance_by_position(ROUNDS) == (3 / 4, 1 / 3, 1 / 3)
    assert made().counts.acceptance_by_position == made().acceptance_by_position == (3 / 4, 1 / 3, 1 / 3)
    assert acceptance_by_position([a_round(0, 0)]) == ()


def test_the_rate_behind_the_prompt_leaves_out_reading_it():
    assert made().tokens_per_s == 10 / 5
    assert made().decode_tokens_per_s == 10 / 2
    assert made(tokens=()).decode_tokens_per_s is None
    rows = dict(ledger(made()).rows)
    assert rows["tokens per second"] == "2.00"
    assert rows["  behind the prompt"] == "5.00"
    assert rows["  by position in the round"] == "75% 33% 33%"


@pytest.mark.parametrize("thing", [made(), made(text="word " * 500, rounds=ROUNDS * 100), count(ROUNDS)])
def test_a_repr_is_a_line(thing):
    assert len(repr(thing)) < 200
    assert "\n" not in repr(thing)


def test_models_and_pairs_have_short_reprs():
    target = load("demo-target", dtype="float32", device="cpu")
    assert repr(target) == "<Loaded 'demo-target': llama on cpu in float32, transformers>"
    speculator = Speculator(target, "demo-draft", k=2, compile="off")
    assert repr(speculator) == "<Speculator 'demo-target' with 'demo-draft': k 2, cpu in float32, numerics fast>"


def test_a_notebook_shows_a_table_and_runs_nothing_of_the_text():
    html = made(text="<script>alert(1)</script>", identical=True)._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "<tr><th>accepted</th><td>50%</td></tr>" in html
    assert "<tr><th>identical</th><td>yes</td></tr>" in html
