"""A request's logits processors: transformers' own where it has one, in its order."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation import (
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from draftproof.errors import ConfigError
from draftproof.options import Options
from draftproof.sampling.grammar import Grammar

Processor = Callable[[Tensor, Tensor], Tensor]
"""Takes the ids so far, `[1, length]`, and scores, `[1, width]`; returns the new scores. What transformers calls a
`LogitsProcessor`."""


class CountPenalties(LogitsProcessor):  # type: ignore[misc]
    """Presence and frequency penalties as OpenAI defines them: over the generated tokens, not the prompt."""

    def __init__(self, prompt_tokens: int, presence: float, frequency: float) -> None:
        self._prompt_tokens = prompt_tokens
        self._presence = presence
        self._frequency = frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        tokens, counts = torch.unique(input_ids[0, self._prompt_tokens :], return_counts=True)
        scores = scores.clone()
        scores[0, tokens] -= self._frequency * counts + self._presence
        return scores


def processors_of(
    options: Options,
    *,
    width: int,
    prompt_tokens: int,
    end_tokens: Collection[int],
    tokenizer: Any = None,
    device: str | torch.device = "cpu",
) -> list[Processor]:
    """Return what the options ask for, in transformers' order. None of these keeps a state that matters.

    Raises `ConfigError` for an id beyond the target's `width` logits, and for words or a grammar without a tokenizer.
    """
    found: list[Any] = []
    ends = sorted(end_tokens)
    if options.logit_bias:
        _check_ids("logit_bias", [token for token, _ in options.logit_bias], width)
        found.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in options.logit_bias}))
    if options.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(float(options.repetition_penalty)))
    if options.presence_penalty or options.frequency_penalty:
        found.append(CountPenalties(prompt_tokens, options.presence_penalty, options.frequency_penalty))
    if options.bad_words:
        words = [w for word in options.bad_words for w in _spellings(word, tokenizer)]
        _check_ids("bad_words", [token for word in words for token in word], width)
        found.append(NoBadWordsLogitsProcessor(words, eos_token_id=ends or None))
    if options.min_new_tokens and ends:
        found.append(MinNewTokensLengthLogitsProcessor(prompt_tokens, options.min_new_tokens, ends, device=str(device)))
    if options.json_schema is not None or options.regex is not None:
        found.append(Grammar(options, tokenizer, prompt_tokens, end_tokens, width))
    return found


def clone(processors: Sequence[Processor]) -> list[Processor]:
    """Return copies that share no state with `processors`, so that they may look ahead. Raises `ConfigError`."""
    return [_clone(one) for one in processors]


def _clone(processor: Processor) -> Processor:
    try:
        if isinstance(processor, types.FunctionType):  # deepcopy leaves functions as they are, closures included
            twin = types.FunctionType(
                processor.__code__,
                processor.__globals__,
                processor.__name__,
                copy.deepcopy(processor.__defaults__),
                tuple(types.CellType(copy.deepcopy(cell.cell_contents)) for cell in processor.__closure__ or ()),
            )
            twin.__kwdefaults__ = copy.deepcopy(processor.__kwdefaults__)
            return twin
        return copy.deepcopy(processor)
    except Exception as error:
        name = getattr(processor, "__name__", type(processor).__name__)
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"the logits processor {name!r} cannot be copied ({why}), so it cannot look ahead over guesses; "
            "give it a __deepcopy__, or keep what cannot be copied outside of it."
        ) from error


def _spellings(word: str | tuple[int, ...], tokenizer: Any) -> list[list[int]]:
    """The token ids of a bad word, as it begins a text and as it follows a space."""
    if not isinstance(word, str):
        return [list(word)]
    if tokenizer is None:
        raise ConfigError(f"the bad word {word!r} needs a tokenizer; give one, or give the word as token ids.")
    spellings = [tokenizer.encode(text, add_special_tokens=False) for text in (word, " " + word.lstrip())]
    return [list(s) for s in dict.fromkeys(tuple(s) for s in spellings)]


def _check_ids(option: str, ids: Collection[int], width: int) -> None:
    if ids and max(ids) >= width:
        raise ConfigError(f"{option} names token id {max(ids)}; the target's ids lie between 0 and {width - 1}.")
