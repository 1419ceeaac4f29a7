"""Recipes: written by tune, taken by every command and by Python, refused with a line where they are none."""

from __future__ import annotations

import tomllib

import pytest

from draftproof import ConfigError, Speculator
from draftproof.recipe import read_recipe, to_toml
from tests.test_cli import invoke

SETTINGS = {"target": "demo-target", "draft": "ngram", "k": "auto", "draft_weights": None}


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(SETTINGS, ['because: 1.2 × "plain"'], {"measured": None, "tried": [{"k": 1}]}, {}))
    return file


def test_a_recipe_is_what_was_written(recipe):
    assert read_recipe(recipe) == {"target": "demo-target", "draft": "ngram", "k": "auto"}
    assert recipe.read_text().startswith('# because: 1.2 × "plain"\n')
    assert tomllib.loads(recipe.read_text())["evidence"] == {"tried": [{"k": 1}]}


def test_python_takes_it(recipe):
    speculator = Speculator.from_recipe(recipe)
    assert (speculator.guesses_by, speculator.policy) == ("ngram", "auto")
    assert Speculator.from_recipe(str(recipe), k=2).k == 2


def test_commands_take_it_and_what_is_given_goes_before(recipe):
    said = ("--prompt", "The for statement", "--max-new-tokens", 12)
    out = invoke("run", "--recipe", recipe, *said)
    assert out.exit_code == 0, out.output
    assert "speculative, auto" in out.output or "(auto)" in out.output
    out = invoke("run", *said, "--k", 2, "--recipe", recipe)
    assert out.exit_code == 0, out.output
    assert "k = 2" in out.output
    out = invoke("bench", "--recipe", recipe, "--only", "prose,code", "--limit", 1, "--k", 1, "--max-new-tokens", 12)
    assert out.exit_code == 0, out.output
    assert "workloads at k = auto" in out.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not TOML"),
        ("", "is no recipe"),
        ("version = 1", "is no recipe"),
        ("version = 9\n[speculator]\ntarget = 'x'", "upgrade"),
        ("version = 1\n[speculator]\ntarget = 'x'\ngamma = 2", "'gamma'"),
        ("version = 1\n[speculator]\ntarget = 3", "must be a name"),
        ("version = 1\n[speculator]\ntarget = 'x'\nk = 99", "k is 99"),
        ("version = 1\n[speculator]\ntarget = 'x'\nk = 'fast'", "k is 'fast'"),
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path, text, says):
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_recipe(file)
    assert says in str(caught.value) and "r.toml" in str(caught.value)
    out = invoke("run", "--recipe", file, "--prompt", "x")
    assert out.exit_code == 2 and "--recipe" in out.output
