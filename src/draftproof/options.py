"""What a request may ask for, in one frozen record that is valid or was never made."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import secrets
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from draftproof.errors import ConfigError

Rule = Literal["greedy", "ratio", "block", "coupled"]
RULES: tuple[Rule, ...] = ("ratio", "block", "coupled")
"""How guesses are judged when the temperature is above 0; at 0 the rule is `greedy`."""
DRAWING: tuple[Rule, ...] = ("ratio", "block")
"""The rules that draw in turn, so that plain decoding writes another text from the same law."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "max_new_tokens": (1, math.inf),
    "min_new_tokens": (0, math.inf),
    "temperature": (0, 1e6),
    "top_k": (0, math.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0, math.inf),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "seed": (0, 2**64 - 1),
    "top_logprobs": (0, 20),
}
_FRACTIONS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_ELSEWHERE = {
    "num_speculative_tokens": "k",
    "num_assistant_tokens": "k",
    "assistant_model": "Speculator(target, draft)",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "max_length": "max_new_tokens",
    "n": "samples(prompt, n, …)",
    "num_return_sequences": "samples(prompt, n, …)",
    "do_sample": "temperature (0 is greedy)",
    "stop_token_ids": "end_tokens, which replaces the model's own",
    "eos_token_id": "end_tokens",
    "ignore_eos": "end_tokens=()",
    "stop_strings": "stop",
    "bad_words_ids": "bad_words",
    "sequence_bias": "logit_bias",
    "response_format": "json_schema",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "logits_processor": "processors",
    "logits_processors": "processors",
}
"""What an option is called here that others call otherwise."""
_NOT_ZERO = ("top_p", "repetition_penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a request. None of them changes its meaning when guesses are in play.

    Logits are transformed in transformers' order: logit bias, repetition penalty, frequency and presence penalty, bad
    words, the least number of tokens, grammar, logits processors, temperature, top-k, top-p, min-p. Making one raises
    `ConfigError` naming the option and its range. `stop` may be one string, `logit_bias` a mapping.
    """

    max_new_tokens: int = 128
    """Tokens to write at most."""
    min_new_tokens: int = 0
    """No end token before so many tokens; a stop string still ends the text."""
    stop: tuple[str, ...] = ()
    """Strings that end the text before them."""
    end_tokens: tuple[int, ...] | None = None
    """Token ids that end the text, instead of the model's own; empty for none."""
    temperature: float = 0.0
    """0 is greedy; above it tokens are sampled."""
    top_k: int = 0
    """Sample from so many most likely tokens; 0: from all."""
    top_p: float = 1.0
    """Sample from the most likely tokens that together hold so much probability."""
    min_p: float = 0.0
    """Sample from tokens that are at least so likely, relative to the likeliest."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens that prompt or text hold if they are positive, multiplies them if negative."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token that the text holds; the prompt does not count."""
    frequency_penalty: float = 0.0
    """Subtracted for every time that the text holds a token; the prompt does not count."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids and what is added to their logits, -100 to 100."""
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    """What must not be written: texts, also behind a space, or sequences of token ids."""
    json_schema: str | None = None
    """A JSON schema that the text must meet, as a text or a mapping; needs llguidance."""
    regex: str | None = None
    """A regular expression that the whole text must match; needs llguidance."""
    seed: int | None = None
    """Same seed, same text; without one each request has its own."""
    verify: Rule = "coupled"
    """The rule for sampled guesses: `ratio`, `block`, or `coupled` (the same text on and off)."""
    logprobs: bool = False
    """Whether to record every token's log-probability under the model's own law, before all transforms."""
    top_logprobs: int = 0
    """How many of the likeliest alternatives to record too."""

    def __post_init__(self) -> None:
        settle = object.__setattr__
        for name in ("stop", "bad_words", "logit_bias"):
            if getattr(self, name) is None:
                settle(self, name, ())
        if isinstance(self.json_schema, Mapping):
            settle(self, "json_schema", json.dumps(self.json_schema))
        for name in ("json_schema", "regex"):
            if not isinstance(getattr(self, name), str | None):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be a text.")
        if not isinstance(self.logprobs, bool):
            raise ConfigError(
                f"logprobs is {self.logprobs!r}; it must be True or False. How many alternatives is top_logprobs."
            )
        settle(self, "stop", (self.stop,) if isinstance(self.stop, str) else _texts("stop", self.stop))
        if self.end_tokens is not None:
            settle(self, "end_tokens", _ids("end_tokens", self.end_tokens))
        settle(self, "logit_bias", _biases(self.logit_bias))
        words = (self.bad_words,) if isinstance(self.bad_words, str) else _list("bad_words", self.bad_words)
        settle(self, "bad_words", tuple(w if isinstance(w, str) else _ids("bad_words", w) for w in words))
        texts = (*self.stop, *self.bad_words, self.json_schema, self.regex)
        if any("\ud800" <= c <= "\udfff" for text in texts if isinstance(text, str) for c in text):
            raise ConfigError("a text among the options holds half a character (a lone surrogate); give valid text.")
        for name in _RANGES:
            if name != "seed" or self.seed is not None:
                settle(self, name, _in_range(name, getattr(self, name)))
        if 0 < self.temperature < 1e-6:
            raise ConfigError(f"temperature is {self.temperature!r}; it must be 0 (greedy) or at least 1e-06.")
        if self.verify not in RULES:
            raise ConfigError(f"verify is {self.verify!r}; choose one of {', '.join(RULES)} (temperature 0 is greedy).")
        if self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                f"min_new_tokens is {self.min_new_tokens}; it must be at most max_new_tokens, {self.max_new_tokens}."
            )
        if self.top_logprobs and not self.logprobs:
            raise ConfigError(f"top_logprobs is {self.top_logprobs}; it needs logprobs=True.")
        if any(not word for word in self.bad_words):
            raise ConfigError("bad_words holds an empty one; every text holds that.")
        if self.json_schema is not None and self.regex is not None:
            raise ConfigError("json_schema and regex exclude each other; give one.")

    @classmethod
    def of(cls, options: Options | None = None, **changes: Any) -> Options:
        """Return `options`, or the defaults, with `changes`. Raises `ConfigError` for an unknown name."""
        if not isinstance(options, Options | None):
            raise ConfigError(f"options is {options!r}; give an Options, or the options by name.")
        names = [one.name for one in dataclasses.fields(cls)]
        if unknown := [name for name in changes if name not in names]:
            hint = (
                f"use {_ELSEWHERE[unknown[0]]}" if unknown[0] in _ELSEWHERE else f"the options are {', '.join(names)}"
            )
            raise ConfigError(f"there is no option {unknown[0]!r}; {hint}.")
        return dataclasses.replace(options or cls(), **changes)

    @property
    def rule(self) -> Rule:
        """How guesses are judged."""
        return "greedy" if self.temperature == 0 else self.verify

    @property
    def same_text(self) -> bool:
        """Whether the text is the same, token for token, with any draft and with none."""
        return self.rule not in DRAWING

    def describe(self) -> str:
        """Say in words what is not as by default; empty if everything is, or if it cannot matter to greedy text."""
        idle = ("max_new_tokens", *(("seed", "verify") if self.rule == "greedy" else ()))
        default = Options()
        told = [
            f"{one.name.replace('_', ' ')} {textwrap.shorten(str(getattr(self, one.name)), 40, placeholder=' …')}"
            for one in dataclasses.fields(self)
            if one.name not in idle and getattr(self, one.name) != getattr(default, one.name)
        ]
        if self.rule != "greedy" and self.verify == default.verify:
            told.append(f"verify {self.verify}")
        return ", ".join(told)

    def idle(self) -> list[str]:
        """Return the options that were given and cannot matter, since greedy text is not sampled."""
        if self.rule != "greedy":
            return []
        default = Options()
        sampling = ("top_k", "top_p", "min_p", "seed", "verify")
        return [name for name in sampling if getattr(self, name) != getattr(default, name)]

    def seeded(self) -> Options:
        """Return the options with a seed: their own, or a fresh one, so that the request can be repeated."""
        if self.seed is not None or self.rule == "greedy":
            return self
        return dataclasses.replace(self, seed=secrets.randbits(53))  # a number that JSON readers keep exactly


def _in_range(name: str, value: Any) -> int | float:
    """Return the value as a plain number, if it is one and in its range; numbers of NumPy are numbers too."""
    low, high = _RANGES[name]
    fractional = name in _FRACTIONS
    above = name in _NOT_ZERO
    known = isinstance(value, Real if fractional else Integral) and not isinstance(value, bool)
    if known and low <= value <= high and not (above and value == low):
        return float(value) if fractional else int(value)
    what = "a number" if fractional else "a whole number"
    least = f"above {low:g}" if above else f"at least {low:g}"
    least += " (0: all)" if name == "top_k" else ""
    most = "" if high == math.inf else f" and at most {high:g}" if high < 2**53 else " and below 2**64"
    raise ConfigError(f"{name} is {value!r}; it must be {what}, {least}{most}.")


def _list(name: str, values: Any) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise ConfigError(f"{name} is {values!r}; it must be a list.") from None


def _texts(name: str, values: Iterable[Any]) -> tuple[str, ...]:
    texts = _list(name, values)
    if bad := [text for text in texts if not isinstance(text, str)]:
        raise ConfigError(f"{name} holds {bad[0]!r}; it must hold texts.")
    return texts


def _ids(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    try:
        ids = tuple(values)
    except TypeError:
        ids = (values,)
    if bad := [i for i in ids if not isinstance(i, Integral) or isinstance(i, bool) or i < 0]:
        raise ConfigError(f"{name} holds {bad[0]!r}; it must hold token ids, whole numbers from 0.")
    return tuple(int(i) for i in ids)


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        biases = tuple((operator.index(token), float(bias)) for token, bias in pairs)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"logit_bias is {given!r}; it must map token ids to numbers.") from None
    for token, bias in biases:
        if token < 0 or not -100 <= bias <= 100:
            raise ConfigError(
                f"logit_bias holds {token}: {bias:g}; ids are numbers from 0, a bias lies between -100 and 100."
            )
    if len(dict(biases)) < len(biases):
        raise ConfigError("logit_bias names a token twice; give each once.")
    return biases
