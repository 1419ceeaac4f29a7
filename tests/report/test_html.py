"""The page is one file, loads nothing, draws its charts in a real browser, and shows what was measured."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import draftproof
from draftproof.report import charts
from draftproof.report.html import page
from draftproof.report.names import short_names
from draftproof.results import from_json
from draftproof.stats.rows import bench_rows
from tests.test_cli import invoke

ROOT = Path(draftproof.__file__).parent
BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")) if b), None)
PAIR = ("--target", "demo-target", "--draft", "demo-draft")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One result file of every kind, measured on the embedded pair."""
    folder = tmp_path_factory.mktemp("results")
    short = ("--max-new-tokens", 24, "--json")
    commands = {
        "run": ("run", *PAIR, "--prompt", 'The "with" statement & <b>', *short),
        "bench": ("bench", *PAIR, "--k", "1,3", "--at", 3, "--repeats", 2, "--only", "prose,code", *short),
        "drafts": ("drafts", *PAIR, "--draft", "demo-target", "--k", 2, "--repeats", 2, *short),
        "precondition": ("precondition", "--model", "demo-target", "--sizes", "1,2,4", "--sweeps", 4, "--json"),
        "one-pass": ("one-pass", "--model", "demo-target", "--json"),
    }
    paths = []
    for name, command in commands.items():
        out = invoke(*command, folder / f"{name}.json")
        assert out.exit_code == 0, out.output
        paths.append(folder / f"{name}.json")
    return paths


@pytest.fixture(scope="module")
def html(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    out = invoke("report", *files, "-o", path)
    assert out.exit_code == 0, out.output
    return path


def test_the_page_loads_nothing(html):
    text = html.read_text(encoding="utf-8")
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)|@import|url\(""", own)
    assert 'href="data:,"' in own


def test_the_page_shows_every_kind_and_escapes_what_it_shows(html):
    text = html.read_text(encoding="utf-8")
    for part in ("One text:", "Bench:", "Drafts for", "The precondition", "One pass answers", "raw numbers: run.json"):
        assert part in text
    assert "The &#34;with&#34; statement &amp; &lt;b&gt;" in text
    assert "<b>" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_text_on_the_page_is_the_text(files):
    result = from_json(files[0].read_text())
    shown = re.findall(r'<span class="(?:accepted|own)" title="[^"]*">(.*?)</span>', page([("r", result)]), re.DOTALL)
    import html as entities

    assert entities.unescape("".join(shown)) == result.generation.text
    assert len(shown) == len(result.generation.tokens)
    rejected = re.findall(r'<span class="rejected" title=', page([("r", result)]))
    assert len(rejected) >= sum(bool(r.proposed[r.accepted :]) for r in result.generation.rounds)


def test_results_of_different_machines_are_compared_only_with_a_warning(files):
    result = from_json(files[0].read_text())
    other = replace(result, machine=replace(result.machine, cpu="another"))
    assert "different machines" not in page([("a", result), ("b", result)])
    assert "different machines" in page([("a", result), ("b", other)])


def test_charts_hold_the_numbers_of_the_file(files):
    bench = from_json(files[1].read_text())
    rows = [r for r in bench_rows(bench.cells) if r.workload == "prose"]
    passes = charts.passes_by_k(rows).data
    assert list(passes[0].y) == [r.target_passes for r in rows]
    assert list(passes[1].y) == [r.draft_passes for r in rows]
    measured, expected = charts.speedup_by_k(rows, [c for c in bench.cells if c.workload == "prose"]).data
    assert list(measured.x) == list(expected.x) == [1, 3]
    assert all(0.1 < y < 10 for y in expected.y)
    stacked = charts.round_time([c for c in bench.cells if c.workload == "prose"]).data
    assert [bar.name for bar in stacked] == ["draft", "target", "everything else"]
    assert charts.workloads(bench.k, bench_rows(bench.cells)).data[0].x == ("prose", "code")


def test_the_rounds_of_a_text_are_drawn_along_it(files):
    generation = from_json(files[0].read_text()).generation
    kept, lost, asked, *_ = charts.round_by_round(generation).data
    assert list(kept.y) == [r.accepted for r in generation.rounds]
    assert [a + b for a, b in zip(kept.y, lost.y, strict=True)] == [len(r.proposed) for r in generation.rounds]
    assert kept.x[0] == 0 and kept.x[-1] == len(generation.tokens) - len(generation.rounds[-1].tokens)
    assert list(asked.y) == [r.asked for r in generation.rounds]


@pytest.mark.skipif(
    BROWSER is None and "DRAFTPROOF_BROWSER" not in os.environ, reason="no Chromium here; DRAFTPROOF_BROWSER insists"
)
def test_a_real_browser_draws_every_chart_without_a_complaint(html, tmp_path):
    assert BROWSER, "DRAFTPROOF_BROWSER is set, and no Chromium was found"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    log = ["--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=10000", "--dump-dom"]
    out = subprocess.run(
        [BROWSER, *flags, *log, html.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in out.stderr
    charts_in_page = html.read_text(encoding="utf-8").count('<div class="chart">')
    assert charts_in_page == 9
    assert len(re.findall(r'<svg class="main-svg"[^>]*><defs', out.stdout)) >= charts_in_page
    assert out.stdout.count('class="plot-container plotly"') == charts_in_page


@pytest.mark.parametrize(
    ("content", "says"), [("{", "not a draftproof result"), (None, "cannot read"), ('{"schema_version": 9}', "upgrade")]
)
def test_files_that_are_no_results_are_named(tmp_path, content, says):
    file = tmp_path / "bad.json"
    if content is not None:
        file.write_text(content)
    out = invoke("report", file, "-o", tmp_path / "r.html")
    assert out.exit_code == 2
    assert says in " ".join(out.output.split())
    assert "bad.json" in "".join(out.output.split())
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a/model", "b/model/"], ["a/model", "b/model"]),
        (["/x/a/m", "/y/a/m", "/y/b"], ["x/a/m", "y/a/m", "b"]),
        (["m", "./m", "owner/m"], ["m", "./m", "owner/m"]),
        (["demo-draft"], ["demo-draft"]),
    ],
)
def test_models_of_one_name_are_told_apart(names, shown):
    assert list(short_names(names).values()) == shown


def test_drafts_in_folders_of_one_name_stand_apart_everywhere(tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        shutil.copytree(ROOT / "pair" / "draft", tmp_path / folder / "model")
    drafts = [option for folder in ("first", "second") for option in ("--draft", tmp_path / folder / "model")]
    few = ("--k", 2, "--repeats", 1, "--limit", 1, "--max-new-tokens", 8)
    out = invoke("drafts", "--target", "demo-target", *drafts, *few, "--json", tmp_path / "d.json")
    assert out.exit_code == 0, out.output
    result = from_json((tmp_path / "d.json").read_text())
    assert len({fact.draft for fact in result.facts}) == 2
    for shown in (out.stdout, page([("d.json", result)])):
        own = re.sub(r"<script>.*?</script>|<pre>.*?</pre>", "", shown, flags=re.DOTALL)
        for folder in ("first", "second"):
            assert f"{folder}/model" in own
        assert not re.search(r"(?<!/)\bmodel +\d", own)
