"""What clients send: completions and chats as OpenAI's interface has them, checked, and turned into texts to write."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from draftproof.engines.local import Speculator
from draftproof.errors import ConfigError
from draftproof.options import Options
from draftproof.server.problems import ApiError
from draftproof.server.texts import Wanted

MOST_N, MOST_PROMPTS, MOST_STOPS, LONGEST_STOP, LARGEST_SCHEMA = 128, 128, 16, 1000, 1 << 16
"""Limits of a request: texts of a prompt, prompts, stop strings, characters of one, bytes of a schema or expression."""
LARGEST_BIAS = 1024
COMPLETION_TOKENS = 16
"""What a completion writes at most unless it says how much, as OpenAI's interface has it; a chat writes to its end."""
UNBOUNDED = 4096
"""Tokens that a chat may write where the target sets no window."""

Count = Annotated[int, Field(ge=0)]
Stop = str | list[str] | None


class StreamOptions(BaseModel):
    """What a stream holds beside text."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    include_rounds: bool = False
    """Ours: with every chunk what was guessed and kept."""


class Guesses(BaseModel):
    """How many guesses a round."""

    model_config = ConfigDict(extra="forbid")
    k: Count


class Asked(BaseModel):
    """What both interfaces take."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_N)] | None = 1
    max_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: Stop = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    bad_words: list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    regex: str | None = None
    verify: Literal["coupled", "ratio", "block"] | None = None
    speculative: StrictBool | Literal["auto"] | Guesses | None = None
    """Ours: false writes plainly, {"k": 3} guesses three a round, "auto" (and true) as many as pay."""
    include_metrics: bool = False
    """Ours: `metrics.speculative_decoding` with the answer."""
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def k(self) -> int | str | None:
        """What `Speculator` takes for the guesses."""
        asked = self.speculative
        if isinstance(asked, Guesses):
            return asked.k
        return 0 if asked is False else "auto" if asked == "auto" else None

    def options(self, speculator: Speculator, limit: int, logprobs: int | None) -> Options:
        """Return the options of its texts, `limit` tokens long at most. Raises `ApiError` and `ConfigError`."""
        stops = [self.stop] if isinstance(self.stop, str) else (self.stop or [])
        if len(stops) > MOST_STOPS or any(len(one) > LONGEST_STOP for one in stops):
            raise ApiError(400, f"stop holds more than {MOST_STOPS} strings, or one that is too long.", param="stop")
        if len(self.logit_bias or {}) > LARGEST_BIAS:
            raise ApiError(400, f"logit_bias holds more than {LARGEST_BIAS} tokens.", param="logit_bias")
        given: dict[str, Any] = {
            "max_new_tokens": max(1, limit),
            "min_new_tokens": self.min_tokens,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k in (None, -1) else self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "logit_bias": tuple((_token(key), value) for key, value in (self.logit_bias or {}).items()),
            "seed": None if self.seed is None else self.seed % 2**64,
            "stop": tuple(stops),
            "bad_words": tuple(self.bad_words or ()),
            "json_schema": _schema(self.response_format),
            "regex": self.regex,
            "verify": self.verify,
            "logprobs": logprobs is not None,
            "top_logprobs": logprobs,
        }
        own = () if self.ignore_eos else tuple(speculator.target.end_tokens)
        if self.ignore_eos or self.stop_token_ids:
            given["end_tokens"] = tuple(dict.fromkeys((*own, *(self.stop_token_ids or ()))))
        if len(given["regex"] or "") > LARGEST_SCHEMA or len(given["json_schema"] or "") > LARGEST_SCHEMA:
            raise ApiError(
                400, f"a schema or expression may have {LARGEST_SCHEMA} characters.", param="response_format"
            )
        return Options(**{name: value for name, value in given.items() if value is not None})


class Completion(Asked):
    """`POST /v1/completions`."""

    prompt: str | list[int] | list[str] | list[list[int]]
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: int | None = None
    suffix: None = None

    def wanted(self, speculator: Speculator) -> list[Wanted]:
        """Return its texts, those of a prompt beside each other. Raises `ApiError` and `ConfigError`."""
        n = self.n or 1
        if self.best_of not in (None, n):
            raise ApiError(400, f"best_of is {self.best_of}; here it can only be n.", param="best_of")
        prompts: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if prompts and isinstance(prompts[0], int):
            prompts = [prompts]
        if not 1 <= len(prompts) <= MOST_PROMPTS:
            raise ApiError(400, f"prompt holds {len(prompts)} prompts; give 1 to {MOST_PROMPTS}.", param="prompt")
        asked = COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        if asked == 0 and not self.echo:
            raise ApiError(400, "max_tokens is 0; without echo there would be nothing to answer.", param="max_tokens")
        found = []
        for prompt in prompts:
            ids = _ids(speculator, prompt, None)
            room = _room(speculator, ids, asked, "prompt")
            found += texts(
                self,
                ids,
                self.options(speculator, room, self.logprobs),
                n,
                self.logprobs if self.echo else None,
                asked > 0,
            )
        return found


class JsonTool(BaseModel):
    """A function that may be called."""

    model_config = ConfigDict(extra="allow")
    type: Literal["function"] = "function"
    function: dict[str, Any]


class Chat(Asked):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[JsonTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    continue_final_message: bool = False

    @property
    def forced(self) -> list[dict[str, Any]]:
        """The functions of which one has to be called; empty where none has to."""
        functions = [tool.function for tool in self.tools or []]
        if self.tool_choice == "required":
            return functions
        if isinstance(self.tool_choice, dict):
            name = (self.tool_choice.get("function") or {}).get("name")
            chosen = [one for one in functions if one.get("name") == name]
            if not chosen:
                raise ApiError(400, f"tool_choice names {name!r}, which is none of the tools.", param="tool_choice")
            return chosen
        return []

    def wanted(self, speculator: Speculator) -> list[Wanted]:
        """Return its texts. Raises `ApiError` and `ConfigError`."""
        tools = None if not self.tools or self.tool_choice == "none" else [one.model_dump() for one in self.tools]
        forced = self.forced
        given = {"tools": tools, "continue_final_message": self.continue_final_message}
        try:
            ids = speculator.encode(messages=self.messages, **given)  # type: ignore[arg-type]
        except ConfigError as error:
            raise ApiError(400, str(error), param="messages") from error
        asked = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        room = _room(speculator, ids, asked, "messages")
        if asked == 0:
            raise ApiError(400, "max_tokens is 0; a chat writes at least one token.", param="max_tokens")
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
        options = self.options(speculator, room, (self.top_logprobs or 0) if self.logprobs else None)
        if forced:
            calls = [_call_schema(one) for one in forced]
            schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
            options = Options.of(options, json_schema=json.dumps(schema))
        return texts(self, ids, options, self.n or 1, None, writes=True)


def texts(asked: Asked, ids: list[int], options: Options, n: int, scores: int | None, writes: bool) -> list[Wanted]:
    """Return the `n` texts of one prompt, with one seed: only the first looks at the prompt's log-probabilities."""
    seeded = options.seeded()
    return [Wanted(ids, seeded, asked.k, i, scores, writes) for i in range(n)]


def _ids(speculator: Speculator, prompt: str | list[int], param: str | None) -> list[int]:
    try:
        return speculator.encode(prompt)
    except ConfigError as error:
        raise ApiError(400, str(error), param=param or "prompt") from error


def _room(speculator: Speculator, ids: list[int], asked: int | None, param: str) -> int:
    """Return how many tokens may follow, of those that are asked for. Raises `ApiError` where there is no room."""
    window = speculator.target_window
    room = UNBOUNDED if window is None else window - len(ids)
    if room <= 0:
        raise ApiError(
            400,
            f"This model's maximum context length is {window} tokens, and the prompt has {len(ids)}; shorten it.",
            param=param,
            code="context_length_exceeded",
        )
    return room if asked is None else min(asked, room)


def _token(key: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise ApiError(400, f"logit_bias is given for {key!r}; its keys are token ids.", param="logit_bias") from None


def _schema(wanted: dict[str, Any] | None) -> str | None:
    """Return the JSON schema that `response_format` asks for."""
    kind = "text" if wanted is None else wanted.get("type")
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return json.dumps({"type": "object"})
    schema = (wanted.get("json_schema") or {}).get("schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise ApiError(
            400,
            "response_format must be of type text, json_object, or json_schema with a schema.",
            param="response_format",
        )
    return json.dumps(schema)


def _call_schema(function: dict[str, Any]) -> dict[str, Any]:
    """Return what a call of this function looks like."""
    arguments = function.get("parameters") or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": function.get("name")}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
