"""`draftproof tune`: what it finds, what it leaves, how it goes on, and prices for another machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from draftproof import ConfigError
from draftproof.forecast.choice import Candidate, choose, evidence_of, settings_of
from draftproof.forecast.elsewhere import priced_there
from draftproof.forecast.predict import forecast
from draftproof.forecast.trace import Offer, Sample, Text, Told, Trace, read_trace
from draftproof.options import Options
from draftproof.recipe import read_recipe
from draftproof.records import Placement
from draftproof.report.elsewhere import elsewhere
from draftproof.results import PassTimes, PreconditionResult, Timing, from_json, read_machine
from tests.test_cli import invoke

PLACE = Placement("cpu", "float32", "here")
OPTIONS = Options(max_new_tokens=40, seed=0)


def trace_of(right, *, draft_s=0.1, slope=0.01):
    """A trace of texts of 40 tokens in which one of every `right` + 1 guesses in a row is wrong."""
    offers = tuple(Offer(tuple(int((i + j) % (right + 1) < right) for j in range(12)), (), 12) for i in range(40))
    told = {"d": Told(offers), "ngram": Told(tuple(Offer(()) for _ in range(40)))}
    texts = tuple(Text("w", i, 5, (1,) * 40, (1,) * 12, 99, 0.5, told) for i in range(4))
    rounds = tuple(Sample(n, n, n * draft_s, 1 + n * slope, 0.0) for n in range(13) for _ in range(20))
    plain = (Sample(0, 0, 0.0, 1.0, 0.0),) * 40
    none = tuple(Sample(0, 0, 0.0, 1.0, 0.0) for _ in range(40))
    return Trace(read_machine(), "t", PLACE, 12, OPTIONS, texts, plain, {"d": rounds, "ngram": none})


CANDIDATES = [Candidate("d"), Candidate("ngram")]


def test_what_pays_is_chosen_and_what_does_not_is_not():
    choice = choose(trace_of(9), CANDIDATES)
    assert choice.candidate == Candidate("d") and choice.cell.speedup.low > 1
    assert isinstance(choice.fixed.k, int) and choice.fixed.k >= 5
    assert settings_of(choice, "t", {"dtype": "bfloat16", "compile": "auto", "weights": None}) == {
        "target": "t",
        "draft": "d",
        "draft_weights": None,
        "k": choice.k,
        "dtype": "bfloat16",
    }
    evidence = evidence_of(choice, trace_of(9), OPTIONS)
    assert evidence["texts"] == 4 and evidence["forecast"]["low"] > 1 and len(evidence["tried"]) == 18
    none = choose(trace_of(1, draft_s=1.0), CANDIDATES)
    assert none.candidate is None and none.k == 0
    assert settings_of(none, "t", {}) == {"target": "t", "k": 0}


def passes(role, model, seconds):
    return PassTimes(model, role, PLACE, tuple(Timing(n, (s,) * 3, s) for n, s in seconds.items()))


def result_of(*of):
    return PreconditionResult(machine=replace(read_machine(), cpu="another"), context=9, sweeps=3, passes=of)


def test_costs_of_another_machine_price_the_same_texts():
    trace = trace_of(4)
    sizes = {n: 2.0 + 0.1 * n for n in (1, 2, 4, 8, 16)}
    there = priced_there(trace, result_of(passes("target", "t", sizes), passes("draft", "x", {1: 0.2})))
    for k in (1, 3):
        counts = forecast(trace, "d", "w", k)
        found = forecast(there, "d", "w", k)
        assert (found.rounds, found.accepted) == (counts.rounds, counts.accepted)
        rounds, last = divmod(found.proposed, k)
        assert last == 0 or k == 3  # the last rounds of a text may ask for fewer
    expected = 40 * 4 * 2.1 / (found.draft_passes * 0.2 + found.rounds * 2.0 + 0.1 * (found.rounds + found.proposed))
    assert found.speedup.value == pytest.approx(expected, rel=0.01)
    assert there.machine.cpu == "another" and "another" in there.notes[-1]
    assert rounds > 0
    with pytest.raises(ConfigError, match="no passes of the draft 'd'"):
        priced_there(trace, result_of(passes("target", "t", sizes)))
    with pytest.raises(ConfigError, match="no passes of a target"):
        priced_there(trace, result_of(passes("draft", "d", {1: 0.2})))


def test_other_engines_get_the_same_choice():
    told = elsewhere("T/big", "D/small", 4)
    config = told["vllm"]["settings"].partition("--speculative-config ")[2].strip("'")
    assert json.loads(config) == {"method": "draft_model", "model": "D/small", "num_speculative_tokens": 4}
    assert "--speculative-num-steps 4" in told["sglang"]["settings"]
    assert "--speculative-num-draft-tokens 5" in told["sglang"]["settings"]
    assert "-m big.gguf -md small.gguf --draft-max 4" in told["llama.cpp"]["settings"]
    assert "num_assistant_tokens=4" in told["transformers"]["settings"]
    assert all("measure there" in one["note"] for one in told.values())
    looked_up = elsewhere("T", "ngram", 3)
    assert json.loads(looked_up["vllm"]["settings"].partition("config ")[2].strip("'"))["method"] == "ngram"
    assert "NGRAM" in looked_up["sglang"]["settings"] and "ngram-simple" in looked_up["llama.cpp"]["settings"]
    assert "prompt_lookup_num_tokens=3" in looked_up["transformers"]["settings"]
    assert all("spec" not in one["settings"].replace("T", "") for one in elsewhere("T", None, 0).values())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A tune of the embedded pair on responses, in its folder."""
    here = tmp_path_factory.mktemp("tune")
    lines = [
        {"prompt": "The for statement", "response": " is used to iterate over the elements of a sequence."},
        {"prompt": "class Reader", "response": ":\n    def read(self):\n        return self.data\n"},
        {"prompt": "The with statement", "response": " is used to wrap the execution of a block."},
    ]
    (here / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tune(here, "--responses", here / "r.jsonl", "--minutes", 0.001)  # one text, whatever it takes
    assert out.exit_code in (0, 3), out.output
    return here


def tune(here, *more):
    models = ("--target", "demo-target", "--draft", "demo-draft", "--max-new-tokens", 16)
    return invoke("tune", *models, "--out", here / "out", *more)


def test_it_keeps_within_its_minutes_and_goes_on_from_there(tuned):
    assert len(read_trace(tuned / "out" / "trace.jsonl.gz").texts) == 1
    out = tune(tuned, "--responses", tuned / "r.jsonl", "--minutes", 5)
    assert out.exit_code in (0, 3), out.output
    trace = read_trace(tuned / "out" / "trace.jsonl.gz")
    assert [text.prompt for text in trace.texts] == [0, 1, 2]
    said = " ".join(out.output.split())
    for part in ("over all texts", "vllm: vllm serve demo-target", "written:", "plain"):
        assert part in said
    found = read_recipe(tuned / "out" / "recipe.toml")
    assert found["target"] == "demo-target" and ("draft" in found) == (out.exit_code == 0)
    assert from_json((tuned / "out" / "forecast.json").read_text()).kind == "forecast"
    assert "Forecast: demo-target" in (tuned / "out" / "report.html").read_text()


def test_a_folder_of_another_tune_is_left_alone(tuned):
    for other in (("--draft", "demo-target"), ("--max-new-tokens", 9)):
        out = tune(tuned, "--responses", tuned / "r.jsonl", *other)
        assert out.exit_code == 2 and "--out" in out.output
    (tuned / "s").mkdir()
    for name in ("r.jsonl", "s.jsonl"):  # other prompts by the same name, and others beside them
        (tuned / "s" / name).write_text(json.dumps({"prompt": "Something else entirely, and longer", "response": "b"}))
        out = tune(tuned, "--responses", tuned / "s" / name)
        assert out.exit_code == 2 and "other prompts" in " ".join(out.output.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--minutes", 0), "--minutes is 0"),
        (("--workload", "a", "--responses", "b"), "exclude each other"),
        (("--workload", "/nowhere.jsonl"), "nowhere"),
        (("--cost", "/nowhere.json"), "nowhere"),
        (("--draft-weights", "int3"), "int3"),
    ],
)
def test_misuse_is_one_line(tmp_path, arguments, says):
    out = tune(tmp_path, *arguments)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())
    assert not (tmp_path / "out").exists()
