"""`draftproof forecast`: priced from one reading, kept, priced again without models, checked against the loop."""

from __future__ import annotations

import gzip
import json

import pytest

from draftproof.forecast.predict import forecast
from draftproof.forecast.trace import read_trace
from draftproof.report.forecast import accuracy, verdicts
from draftproof.report.html import page
from draftproof.results import from_json
from tests.test_cli import invoke


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A forecast with a check, its trace and its result."""
    here = tmp_path_factory.mktemp("forecast")
    (here / "w.jsonl").write_text(json.dumps({"name": "w", "prompts": ["The for statement", "class Reader"]}))
    drafts = ("--draft", "demo-draft", "--draft", "ngram")
    files = ("--workload", here / "w.jsonl", "--trace", here / "t.jsonl.gz", "--json", here / "f.json")
    asked = ("--k", "1,3,auto", "--max-new-tokens", 24, "--repeats", 2, "--check")
    out = invoke("forecast", "--target", "demo-target", *drafts, *files, *asked)
    assert out.exit_code in (0, 3), out.output
    (here / "said.txt").write_text(out.stdout)
    return here


def test_forecast_and_measured_stand_side_by_side(folder):
    said = " ".join((folder / "said.txt").read_text().split())
    for part in ("forecast: × plain decoding", "best k", "check", "off by", "forecast against measured in 6 cells"):
        assert part in said
    result = from_json((folder / "f.json").read_text())
    drafts, ks = ("demo-draft", "ngram"), (1, 3, "auto")
    assert [(cell.draft, cell.k) for cell in result.cells] == [(d, k) for d in drafts for k in ks]
    for cell in result.cells:
        assert cell.speedup.low <= cell.speedup.value <= cell.speedup.high
        assert cell.measured is not None and cell.texts == 2
    for cell in (c for c in result.cells if c.k != "auto"):  # counts are the live loop's
        mine = [c for c in result.measured if (c.arm.draft, c.arm.asks) == (cell.draft, cell.k)]
        live = [c.generations[0].counts for c in mine]
        assert cell.rounds == sum(one.rounds for one in live)
        assert cell.accepted == sum(one.accepted for one in live)
        assert cell.draft_passes == sum(one.draft_passes for one in live)
    shown = page([("f.json", result)])
    assert "Forecast: demo-target" in shown and "Forecast against measured" in shown


def test_a_trace_is_priced_again_without_models(folder):
    out = invoke("forecast", "--from", folder / "t.jsonl.gz", "--k", "1,2,3")
    assert out.exit_code in (0, 3), out.output
    assert "k=2" in out.stdout
    trace = read_trace(folder / "t.jsonl.gz")
    assert forecast(trace, "ngram", "w", 3).speedup.confidence == 0.9


def test_what_pays_is_told_by_the_exit_code(folder):
    head, *texts = gzip.decompress((folder / "t.jsonl.gz").read_bytes()).decode().splitlines()
    slow = json.loads(head)
    for samples in slow["rounds"].values():
        for one in samples:
            one["target_s"] *= 50
    file = folder / "slow.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join([json.dumps(slow), *texts]).encode()))
    out = invoke("forecast", "--from", file, "--k", "1,3")
    assert out.exit_code == 3
    assert "does not pay" in out.stdout and "use none (k = 0)" in " ".join(out.stdout.split())


def test_verdicts_say_how_right_a_forecast_was(folder):
    result = from_json((folder / "f.json").read_text())
    assert accuracy(result.cells) in verdicts(result)
    assert accuracy([]) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give --target and --draft, or --from"),
        (("--target", "demo-target"), "give --target and --draft, or --from"),
        (("--from", "t", "--target", "demo-target"), "leave out --target"),
        (("--from", "/nowhere.gz"), "cannot read '/nowhere.gz'"),
        (("--from", __file__), "cannot read"),
        (("--target", "demo-target", "--draft", "demo-draft", "--k", "fast"), "--k is 'fast'"),
        (("--target", "demo-target", "--draft", "ngram", "--draft", "ngram"), "named twice"),
        (("--target", "demo-target", "--draft", "ngram", "--probes", "0"), "--probes is 0"),
    ],
)
def test_misuse_is_one_line(arguments, says):
    out = invoke("forecast", *arguments)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a trace"),
        (b"{}", "not a trace"),
        (b'{"kind": "trace", "version": 9}', "upgrade"),
        (b"[1]", "not a trace"),
    ],
)
def test_other_files_are_no_traces(tmp_path, content, says):
    file = tmp_path / "t.gz"
    file.write_bytes(gzip.compress(content))
    out = invoke("forecast", "--from", file)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())


def test_a_batch_and_overlapped_schemes_are_priced_beside_it(tmp_path):
    (tmp_path / "w.jsonl").write_text(json.dumps({"name": "w", "prompts": ["The for statement", "class Reader"]}))
    files = ("--workload", tmp_path / "w.jsonl", "--trace", tmp_path / "t.jsonl.gz", "--json", tmp_path / "f.json")
    asked = ("--k", "1,3", "--max-new-tokens", 16, "--batch", "1,4", "--overlap")
    out = invoke("forecast", "--target", "demo-target", "--draft", "demo-draft", *files, *asked)
    assert out.exit_code in (0, 3), out.output
    said = " ".join(out.output.split())
    for part in ("PEARL", "speculative speculative", "oracle", "texts at once", "at once, of 1, 4"):
        assert part in said.replace("at none of the batch sizes", "at once"), said
    again = invoke("forecast", "--from", tmp_path / "t.jsonl.gz", "--k", "1,3", "--batch", "2")
    assert "texts at once" in again.output
    shown = page([("f.json", from_json((tmp_path / "f.json").read_text()))])
    assert "Best fixed k, controller, oracle" in shown and "Texts at once, priced" in shown
    assert "give whole numbers" in invoke("forecast", "--from", tmp_path / "t.jsonl.gz", "--batch", "0").output
