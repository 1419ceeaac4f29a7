"""Results files hold everything, never NaN, and can be read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof import ResultError, Speculator
from draftproof.options import Options
from draftproof.records import Interval, Placement
from draftproof.report.html import page
from draftproof.results import (
    SCHEMA_VERSION,
    Recipe,
    RunResult,
    check_writable,
    from_json,
    read_machine,
    to_json,
    write,
)

OLD = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def result(model):
    speculator = Speculator(model, model, k=3)
    generation, plain = (speculator.generate([5, 9, 7], max_new_tokens=12, k=k) for k in (3, 0))
    here = Placement("cpu", "float32", "asked for")
    recipe = Recipe("t", "d", 3, "p", False, Options(max_new_tokens=12), True, 1, here, here, 256, 64)
    return RunResult(
        machine=read_machine(),
        recipe=recipe,
        generation=generation,
        plain=plain,
        speedup=Interval(1.5, 1.4, 1.6),
        divergence=None,
    )


def test_what_is_written_is_read_again(result, tmp_path):
    write(result, tmp_path / "r.json")
    assert from_json((tmp_path / "r.json").read_text()) == result
    assert list(tmp_path.iterdir()) == [tmp_path / "r.json"]


def test_the_generation_stands_at_the_top_level(result):
    data = json.loads(to_json(result))
    assert data["schema_version"] == SCHEMA_VERSION
    for name in ("text", "tokens", "finish_reason", "identical", "rounds", "counts", "seconds"):
        assert name in data
    assert data["counts"]["acceptance_rate"] == 1.0
    assert data["machine"]["torch"]


def test_infinity_and_nan_never_reach_a_file(result):
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            to_json(replace(result, speedup=Interval(bad, 1.0, 1.0)))


@pytest.mark.parametrize("file", sorted(OLD.glob("*.json")), ids=lambda f: f.name)
def test_old_files_load_after_an_upgrade_and_can_be_drawn(file):
    loaded = from_json(file.read_text())
    assert loaded.kind == file.stem.rpartition("-")[0]
    assert from_json(to_json(loaded)) == loaded
    assert loaded.machine.cpu in page([(file.name, loaded)])


def test_there_is_an_old_file_of_every_kind():
    kinds = {file.stem.rpartition("-")[0] for file in OLD.glob("*.json")}
    assert kinds == {"run", "one-pass", "precondition", "bench", "drafts", "certify", "forecast"}


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not a draftproof"), ("{}", "not a draftproof"), ('{"schema_version": 99}', "upgrade")]
)
def test_other_files_are_refused_in_words(text, says):
    with pytest.raises(ResultError, match=says):
        from_json(text)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(ResultError, match="folder"):
        check_writable(tmp_path)
    with pytest.raises(ResultError, match="does not exist"):
        check_writable(tmp_path / "a" / "b.json")
    check_writable(tmp_path / "new.json")


def test_a_pipe_and_a_link_are_written_to_and_not_replaced(result, tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    write(result, link)
    assert link.is_symlink()
    assert from_json(real.read_text()) == result
    check_writable(Path("/dev/null"))
    write(result, Path("/dev/null"))
    assert not Path("/dev/null").is_file()
