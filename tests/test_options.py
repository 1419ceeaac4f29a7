"""Options outside their range are one clear error that names the option and the range."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from draftproof import ConfigError, Options
from draftproof.cli import app
from draftproof.options import OPTIONS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be a number, at least 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": 1e-9}, "it must be 0 (greedy) or at least 1e-06"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_k": -1}, "top_k is -1; it must be a whole number, at least 0"),
        ({"top_k": 2.5}, "top_k is 2.5; it must be a whole number"),
        ({"top_k": True}, "top_k is True"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be a number, above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p is 1.1; it must be a number, above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p is 1.5; it must be a number, at least 0 and at most 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0; it must be a number, above 0"),
        ({"presence_penalty": 3}, "presence_penalty is 3; it must be a number, at least -2 and at most 2"),
        ({"frequency_penalty": -2.5}, "frequency_penalty is -2.5"),
        ({"logit_bias": {5: 200}}, "logit_bias holds 5: 200"),
        ({"logit_bias": {-5: 2}}, "logit_bias holds -5: 2"),
        ({"logit_bias": [(5, 1), (5, 2)]}, "logit_bias names a token twice"),
        ({"logit_bias": {5: "much"}}, "it must map token ids to numbers"),
        ({"bad_words": [""]}, "bad_words holds an empty one"),
        ({"bad_words": [[]]}, "bad_words holds an empty one"),
        ({"bad_words": [[-1]]}, "bad_words holds -1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be a whole number, at least 1"),
        ({"min_new_tokens": -1}, "min_new_tokens is -1"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens is 9; it must be at most max_new_tokens, 8"),
        ({"end_tokens": [1, -2]}, "end_tokens holds -2"),
        ({"stop": [3]}, "stop holds 3; it must hold texts"),
        ({"seed": -1}, "seed is -1; it must be a whole number, at least 0 and below 2**64"),
        ({"seed": 2**64}, "below 2**64"),
        (
            {"top_logprobs": 21, "logprobs": True},
            "top_logprobs is 21; it must be a whole number, at least 0",
        ),
        ({"top_logprobs": 2}, "it needs logprobs=True"),
        ({"verify": "greedy"}, "verify is 'greedy'; choose one of ratio, block, coupled"),
        ({"json_schema": "{}", "regex": "a"}, "exclude each other"),
        ({"temperature": 10**400}, "it must be a number, at least 0 and at most 1e+06"),
        ({"logit_bias": {1.5: 1}}, "it must map token ids to numbers"),
        ({"logit_bias": {float("inf"): 1}}, "it must map token ids to numbers"),
        ({"stop": 5}, "stop is 5; it must be a list"),
        ({"bad_words": 5}, "bad_words is 5; it must be a list"),
        ({"stop": "\udcff"}, "half a character"),
        ({"regex": 5}, "regex is 5; it must be a text"),
        ({"json_schema": 5}, "json_schema is 5; it must be a text"),
        ({"logprobs": 5}, "How many alternatives is top_logprobs"),
        ({"options": {"temperature": 1}}, "give an Options, or the options by name"),
        ({"max_tokens": 3}, "there is no option 'max_tokens'; use max_new_tokens"),
        ({"n": 3}, "use samples(prompt, n, …)"),
        ({"top_k": -1}, "at least 0 (0: all)"),
        ({"temprature": 1}, "there is no option 'temprature'; the options are max_new_tokens"),
    ],
)
def test_what_is_out_of_range_is_named_with_its_range(given, says):
    with pytest.raises(ConfigError) as error:
        Options.of(**given)
    assert says in str(error.value)


def test_what_people_write_is_understood():
    options = Options(stop="\n", logit_bias={5: -3}, bad_words="damn", end_tokens=7)
    assert (options.stop, options.logit_bias, options.bad_words, options.end_tokens) == (
        ("\n",),
        ((5, -3.0),),
        ("damn",),
        (7,),
    )
    assert Options(stop=None, bad_words=None, logit_bias=None) == Options()
    assert Options(json_schema={"type": "object"}).json_schema == '{"type": "object"}'
    assert Options(bad_words=[[1, 2], "x"]).bad_words == ((1, 2), "x")
    assert Options(end_tokens=()).end_tokens == ()
    assert Options(seed=2**64 - 1).seed == 2**64 - 1


def test_numbers_of_numpy_are_numbers():
    options = Options(top_k=np.int64(5), temperature=np.float32(0.5), end_tokens=np.array([1, 2]), seed=np.uint64(3))
    assert (options.top_k, options.temperature, options.end_tokens, options.seed) == (5, 0.5, (1, 2), 3)
    assert {type(options.top_k), type(options.temperature), type(options.end_tokens[0])} == {int, float}


def test_temperature_zero_is_greedy_whatever_the_rule():
    assert Options(verify="ratio").rule == "greedy"
    assert Options(verify="ratio", temperature=1).rule == "ratio"
    assert Options(seed=5).seeded().seed == 5
    assert Options().seeded().seed is None  # nothing is drawn
    fresh = {Options(temperature=1).seeded().seed for _ in range(20)}
    assert len(fresh) == 20
    assert all(seed < 2**53 for seed in fresh)


def test_every_option_is_described_and_has_a_switch_that_says_the_same():
    assert list(OPTIONS) == [one.name for one in dataclasses.fields(Options)]
    switches = {one.name: one for one in get_command(app).commands["run"].params}
    for name, about in OPTIONS.items():
        switch = switches[name]
        assert about.help.endswith("."), name
        assert about.help.removesuffix(".") in switch.help, name
        assert switch.opts == [f"--{about.switch or name.replace('_', '-')}"]
        assert (switch.multiple, switch.default) == (about.many, None if about.many else about.default), name
        if about.default is not None and not about.many:
            assert about.check(name, about.default) == about.default
        assert about.kind in (int, float, bool, str, Path), name


def test_no_two_options_are_called_the_same_elsewhere():
    theirs = [name for about in OPTIONS.values() for name in about.elsewhere]
    assert len(set(theirs)) == len(theirs)
    assert not set(theirs) & set(OPTIONS)
