"""Text held to a JSON schema or a regular expression, through llguidance."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import ConfigError, EngineError
from draftproof.options import Options
from draftproof.settings import require_extra

_BLANKS = r"[\x20\x0A]{0,20}"
"""What may stand between two parts of a JSON text, unless its schema says otherwise (`x-guidance`): without a limit a
model at a temperature can write blanks for ever."""


class Grammar:
    """A logits processor that rules out every token after which the text could not meet its grammar any more.

    The matcher stands where the text stands: it goes back over tokens that were taken back, and reads those that are
    new, so it may be asked for any history. Once the grammar is fulfilled, and cannot go on, only end tokens are left.
    """

    def __init__(
        self, options: Options, tokenizer: Any, prompt_tokens: int, end_tokens: Collection[int], width: int
    ) -> None:
        matcher, _ = _library()
        if tokenizer is None:
            raise ConfigError("json_schema and regex need a tokenizer; give one.")
        if not end_tokens:
            raise ConfigError("json_schema and regex need an end token, to end the text when it is complete.")
        self._prompt_tokens = prompt_tokens
        self._ends = torch.tensor(sorted(end_tokens))
        self._matcher = matcher(_tokens_of(tokenizer, tuple(sorted(end_tokens)), width), _grammar(matcher, options))
        if error := self._matcher.get_error():
            raise ConfigError(f"this grammar cannot be used: {' '.join(error.split())}")
        self._read: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._stand_on(input_ids[0, self._prompt_tokens :].tolist())
        mask = None if self._matcher.is_stopped() else self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise EngineError(f"the grammar cannot be followed further: {' '.join(self._matcher.get_error().split())}")
        if mask is None:
            allowed = torch.zeros(scores.shape[-1], dtype=torch.bool)
            allowed[self._ends] = True
        else:
            bits = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
            allowed = (bits[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten()[: scores.shape[-1]].bool()
            if not self._matcher.is_accepting():
                allowed[self._ends] = False  # an end token may be a piece of text to the grammar; here it would end it
        return scores.masked_fill(~allowed.to(scores.device), -torch.inf)

    def __deepcopy__(self, memo: Any) -> Grammar:
        twin = copy.copy(self)
        twin._matcher, twin._read = self._matcher.deep_copy(), list(self._read)
        return twin

    def _stand_on(self, text: list[int]) -> None:
        shared = 0
        while shared < min(len(text), len(self._read)) and text[shared] == self._read[shared]:
            shared += 1
        if shared < len(self._read):
            self._matcher.rollback(len(self._read) - shared)
            del self._read[shared:]
        if not self._matcher.is_stopped():
            # a history may hold what the grammar forbids, such as a guess: what follows it is never used
            self._read += text[shared : shared + self._matcher.try_consume_tokens(text[shared:])]


def _library() -> tuple[Any, Any]:
    require_extra("grammar", "text held to json_schema or regex")
    from llguidance import LLMatcher, hf

    return LLMatcher, hf.from_tokenizer


def _grammar(matcher: Any, options: Options) -> str:
    if options.regex is not None:
        return str(matcher.grammar_from_regex(options.regex))
    try:
        schema = json.loads(options.json_schema or "")
    except ValueError as error:
        raise ConfigError(f"json_schema is not JSON: {error}.") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"json_schema is {options.json_schema!r}; it must be a JSON object.")
    defaults = None if "x-guidance" in schema else {"whitespace_pattern": _BLANKS}
    return str(matcher.grammar_from_json_schema(options.json_schema, defaults=defaults))


@lru_cache(maxsize=4)
def _tokens_of(tokenizer: Any, end_tokens: tuple[int, ...], width: int) -> Any:
    """llguidance's picture of a tokenizer: it takes seconds for a large vocabulary, so it is kept."""
    _, from_tokenizer = _library()
    try:
        return from_tokenizer(tokenizer, n_vocab=max(width, len(tokenizer)), eos_token=list(end_tokens))
    except ValueError as error:
        raise ConfigError(f"this tokenizer cannot be used with a grammar: {str(error).splitlines()[0]}") from error
