"""What a request may ask for, in one frozen record that is valid or was never made."""

from __future__ import annotations

import dataclasses
import json
import operator
import secrets
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from draftproof.about import About, no_such
from draftproof.errors import ConfigError

Rule = Literal["greedy", "ratio", "block", "coupled"]
RULES: tuple[Rule, ...] = ("ratio", "block", "coupled")
"""How guesses are judged when the temperature is above 0; at 0 the rule is `greedy`."""
_DRAWING: tuple[Rule, ...] = ("ratio", "block")
"""The rules that draw in turn: `verify.JUDGES` says the same of itself, and is too heavy to be asked here."""

NO_OPTIONS = {
    "num_speculative_tokens": "k",
    "num_assistant_tokens": "k",
    "assistant_model": "Speculator(target, draft)",
    "n": "samples(prompt, n, …)",
    "num_return_sequences": "samples(prompt, n, …)",
    "logits_processor": "processors",
    "logits_processors": "processors",
}
"""What is no option of a request here, though others have it among theirs, and what to use."""

if TYPE_CHECKING:
    Given = TypeVar("Given", contravariant=True)
    Kept = TypeVar("Kept", covariant=True)

    class _Settled(Generic[Given, Kept]):
        """A field that takes more than it keeps, as type checkers see it."""

        def __get__(self, one: object, kind: object = None) -> Kept: ...
        def __set__(self, one: object, value: Given) -> None: ...

    Texts = _Settled[str | Iterable[str] | None, tuple[str, ...]]
    Ids = _Settled[int | Iterable[int] | None, tuple[int, ...] | None]
    Words = _Settled[str | Iterable[str | int | Iterable[int]] | None, tuple[str | tuple[int, ...], ...]]
    Biases = _Settled[Mapping[int, float] | Iterable[tuple[int, float]] | None, tuple[tuple[int, float], ...]]
    Schema = _Settled[str | Mapping[str, Any] | None, str | None]
else:
    Texts = tuple[str, ...]
    Ids = tuple[int, ...] | None
    Words = tuple[str | tuple[int, ...], ...]
    Biases = tuple[tuple[int, float], ...]
    Schema = str | None


def _option(default: Any, help: str, kind: type | None = None, **more: Any) -> Any:
    """Return a field with all that is known of it."""
    about = About(help=help, default=default, kind=kind or type(default), **more)
    return dataclasses.field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a request. None of them changes its meaning when guesses are in play.

    Logits are transformed in transformers' order: logit bias, repetition penalty, frequency and presence penalty, bad
    words, the least number of tokens, grammar, logits processors, temperature, top-k, top-p, min-p. Making one raises
    `ConfigError` naming the option and its range. `stop` may be one string, `logit_bias` a mapping.
    """

    max_new_tokens: int = _option(
        128,
        "Tokens to write at most.",
        least=1,
        elsewhere=dict.fromkeys(("max_tokens", "max_completion_tokens", "max_length", "n_predict"), ""),
    )
    min_new_tokens: int = _option(
        0,
        "No end token before so many tokens; a stop string still ends the text.",
        least=0,
        elsewhere={"min_tokens": ""},
    )
    stop: Texts = _option((), "String that ends the text before it.", str, many=True, elsewhere={"stop_strings": ""})
    end_tokens: Ids = _option(
        None,
        "Token id that ends the text, instead of the model's own.",
        int,
        many=True,
        least=0,
        switch="end-token",
        elsewhere={
            "stop_token_ids": "end_tokens, which replaces the model's own",
            "eos_token_id": "",
            "ignore_eos": "end_tokens=()",
        },
    )
    temperature: float = _option(
        0.0,
        "0 is greedy; above it tokens are sampled.",
        least=0,
        most=1e6,
        elsewhere={"temp": "", "do_sample": "temperature (0 is greedy)"},
    )
    top_k: int = _option(0, "Sample from so many most likely tokens; 0: from all.", least=0, remark=" (0: all)")
    top_p: float = _option(
        1.0, "Sample from the most likely tokens that together hold so much probability.", least=0, above=True, most=1
    )
    min_p: float = _option(0.0, "Sample from tokens at least so likely, relative to the likeliest.", least=0, most=1)
    repetition_penalty: float = _option(
        1.0,
        "Divides the logits of tokens in prompt or text if they are positive, multiplies them if negative; 1: off.",
        least=0,
        above=True,
        elsewhere={"repeat_penalty": ""},
    )
    presence_penalty: float = _option(
        0.0, "Subtracted once from the logit of every token in the text; the prompt does not count.", least=-2, most=2
    )
    frequency_penalty: float = _option(
        0.0, "Subtracted for every time that the text holds a token; the prompt does not count.", least=-2, most=2
    )
    logit_bias: Biases = _option(
        (),
        "Added to the logit of a token id.",
        float,
        many=True,
        least=-100,
        most=100,
        form="ID=BIAS",
        elsewhere={"sequence_bias": ""},
    )
    bad_words: Words = _option(
        (),
        "Text that must not be written, also behind a space.",
        str,
        many=True,
        switch="bad-word",
        elsewhere={"bad_words_ids": ""},
    )
    json_schema: Schema = _option(
        None,
        "JSON schema that the text must meet; needs llguidance.",
        Path,
        elsewhere={"response_format": "", "guided_json": ""},
    )
    regex: str | None = _option(
        None,
        "Regular expression that the whole text must match; needs llguidance.",
        str,
        elsewhere={"guided_regex": ""},
    )
    seed: int | None = _option(None, "Same seed, same text; none: a fresh one, recorded.", int, least=0, most=2**64 - 1)
    verify: Rule = _option(
        "coupled",
        "Rule for sampled guesses: ratio, block, or coupled (the same text on and off).",
        choices=RULES,
        remark=" (temperature 0 is greedy)",
    )
    logprobs: bool = _option(
        False,
        "Record every token's log-probability under the model's own law, before all transforms.",
        remark=". How many alternatives is top_logprobs",
    )
    top_logprobs: int = _option(0, "Record so many of the likeliest alternatives too.", least=0, most=20)

    def __post_init__(self) -> None:
        settle = object.__setattr__
        for name in ("stop", "bad_words", "logit_bias"):
            if getattr(self, name) is None:
                settle(self, name, ())
        if isinstance(self.json_schema, Mapping):
            settle(self, "json_schema", json.dumps(self.json_schema))
        settle(self, "stop", (self.stop,) if isinstance(self.stop, str) else _texts("stop", self.stop))
        if self.end_tokens is not None:
            settle(self, "end_tokens", _ids("end_tokens", self.end_tokens))
        settle(self, "logit_bias", _biases(self.logit_bias))
        words = (self.bad_words,) if isinstance(self.bad_words, str) else _list("bad_words", self.bad_words)
        settle(self, "bad_words", tuple(w if isinstance(w, str) else _ids("bad_words", w) for w in words))
        for name, about in OPTIONS.items():
            value = getattr(self, name)
            if not about.many and (value is not None or about.default is not None):
                settle(self, name, about.check(name, value))
        texts = (*self.stop, *self.bad_words, self.json_schema, self.regex)
        if any("\ud800" <= c <= "\udfff" for text in texts if isinstance(text, str) for c in text):
            raise ConfigError("a text among the options holds half a character (a lone surrogate); give valid text.")
        if 0 < self.temperature < 1e-6:
            raise ConfigError(f"temperature is {self.temperature!r}; it must be 0 (greedy) or at least 1e-06.")
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
        if unknown := [name for name in changes if name not in OPTIONS]:
            raise no_such("option", unknown[0], OPTIONS, NO_OPTIONS)
        return dataclasses.replace(options or cls(), **changes)

    @property
    def rule(self) -> Rule:
        """How guesses are judged."""
        return "greedy" if self.temperature == 0 else self.verify

    @property
    def same_text(self) -> bool:
        """Whether the text is the same, token for token, with any draft and with none."""
        return self.rule not in _DRAWING

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


OPTIONS: Mapping[str, About] = {one.name: one.metadata["about"] for one in dataclasses.fields(Options)}
"""Every option by its name."""


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
    low, high = OPTIONS["logit_bias"].least, OPTIONS["logit_bias"].most
    for token, bias in biases:
        if token < 0 or not low <= bias <= high:
            raise ConfigError(
                f"logit_bias holds {token}: {bias:g}; ids are numbers from 0, a bias lies between {low:g} and {high:g}."
            )
    if len(dict(biases)) < len(biases):
        raise ConfigError("logit_bias names a token twice; give each once.")
    return biases
