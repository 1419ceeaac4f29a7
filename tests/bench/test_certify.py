"""The certificate: what the command says, and what its test on samples can see."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from draftproof.bench import certify
from draftproof.bench.two_samples import compare_samples, draw_pairs, two_samples
from draftproof.cli import app
from draftproof.engines.local import Speculator
from draftproof.options import Options
from draftproof.report.html import page
from draftproof.results import CALLED_DIFFERENT, from_json


@pytest.fixture(autouse=True)
def one_pair_of_tables(monkeypatch):
    monkeypatch.setattr(certify.walk, "__defaults__", (1,))


def run(*arguments):
    return CliRunner().invoke(app, ["certify", *map(str, arguments)])


def test_the_walk_is_printed_and_written(tmp_path):
    file = tmp_path / "c.json"
    out = run("--verify", "block", "--json", file)
    assert out.exit_code == 0, out.output
    assert "0 (exact)" in out.stdout
    assert "the law of the texts is the target's, exactly, over all" in " ".join(out.stdout.split())
    result = from_json(file.read_text())
    assert {row.rule for row in result.rows} == {"block"}
    assert {row.k for row in result.rows} == {0, 1, 2, 3}
    assert all(row.largest_difference == 0 and row.outcomes > 50 for row in result.rows)
    assert "The law of sampled text" in page([("c.json", result)])


def test_a_pair_is_sampled_too(tmp_path):
    file = tmp_path / "c.json"
    pair = ("--target", "demo-target", "--draft", "demo-draft", "--prompt", "The for statement")
    out = run(*pair, "--verify", "ratio", "--samples", 90, "--max-new-tokens", 2, "--temperature", 1.5, "--json", file)
    assert out.exit_code == 0, out.output
    assert "nine times in ten" in " ".join(out.stdout.split())
    data = json.loads(file.read_text())
    assert [(t["rule"], t["of"], t["samples"]) for t in data["tests"]] == [
        ("ratio", "the first", 90),
        ("ratio", "the first two", 90),
    ]
    assert data["options"]["temperature"] == 1.5
    assert "chi-square" in page([("c.json", from_json(file.read_text()))])


def test_a_fault_fails_the_walk(monkeypatch):
    from draftproof.verify import block

    monkeypatch.setattr(block, "residual", lambda p, q: p)
    out = run("--verify", "block")
    assert out.exit_code == 1
    assert "the law is NOT the target's" in out.stdout


def test_a_fault_fails_the_samples(monkeypatch, model):
    """Every guess is kept: the text is the draft's."""
    from draftproof.testing import noisy
    from draftproof.verify import ratio

    speculator = Speculator(model, noisy(model, 1.5), k=2)
    options = Options(temperature=1.0, verify="ratio", max_new_tokens=3, seed=0)
    right = compare_samples(list(draw_pairs(speculator, [5], options, 100)), "ratio")
    assert all(test.p_value > CALLED_DIFFERENT for test in right)
    monkeypatch.setattr(ratio, "at_most_one", lambda p, q: 1)
    wrong = compare_samples(list(draw_pairs(speculator, [5], options, 100)), "ratio")
    assert wrong[0].p_value < CALLED_DIFFERENT


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--temperature", "0"), "--temperature is 0, where nothing is random"),
        (("--target", "demo-target"), "--target and --draft belong together"),
        (("--target", "t", "--draft", "d", "--samples", "0"), "--samples is 0"),
        (("--samples", "9"), "no pair to sample; add --target and --draft"),
        (("--top-p", "0.9"), "no pair to sample; add --target and --draft"),
        (("--verify", "greedy"), "--verify is 'greedy'; choose one of"),
    ],
)
def test_misuse_is_one_clear_line(arguments, says):
    out = run(*arguments)
    assert out.exit_code == 2
    assert says in " ".join(out.output.split())


def draws(law, n, source):
    return [(int(token),) for token in source.choice(len(law), n, p=law)]


def test_one_law_is_rarely_called_two():
    source = np.random.default_rng(1)
    law = np.array([0.4, 0.3, 0.2, 0.06, 0.03, 0.01])
    found = [two_samples(draws(law, 300, source), draws(law, 300, source), "", "").p_value for _ in range(400)]
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.03)


def test_a_difference_of_the_size_that_is_called_visible_is_found_nine_times_in_ten():
    source = np.random.default_rng(2)
    law = np.array([0.25, 0.25, 0.25, 0.25])
    visible = two_samples(draws(law, 500, source), draws(law, 500, source), "", "").visible
    other = law + np.array([1, 1, -1, -1]) * visible / 2
    assert np.abs(law - other).sum() / 2 == pytest.approx(visible)
    found = [two_samples(draws(law, 500, source), draws(other, 500, source), "", "").p_value for _ in range(300)]
    assert np.mean(np.array(found) < CALLED_DIFFERENT) == pytest.approx(0.9, abs=0.06)


def test_a_single_kind_tests_nothing_and_says_so():
    found = two_samples([(1,)] * 50, [(1,)] * 50, "ratio", "first tokens")
    assert (found.bins, found.p_value, found.visible) == (1, 1.0, None)
