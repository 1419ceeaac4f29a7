"""A request's logits processors: transformers' own where it has one, in its order."""

from __future__ import annotations

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

from draftproof.errors import ConfigError, EngineError, first_line
from draftproof.options import Options
from draftproof.sampling.copies import copy_together
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
        check_ids("logit_bias", [token for token, _ in options.logit_bias], width)
        found.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in options.logit_bias}))
    if options.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(float(options.repetition_penalty)))
    if options.presence_penalty or options.frequency_penalty:
        found.append(CountPenalties(prompt_tokens, options.presence_penalty, options.frequency_penalty))
    if options.bad_words:
        words = [w for word in options.bad_words for w in _spellings(word, tokenizer)]
        check_ids("bad_words", [token for word in words for token in word], width)
        if ending := [word for word in words if len(word) == 1 and word[0] in ends]:
            raise ConfigError(
                f"bad_words names {ending[0][0]}, which is an end token; use min_new_tokens, or end_tokens without it."
            )
        found.append(NoBadWordsLogitsProcessor(words, eos_token_id=ends or None))
    if options.min_new_tokens and ends:
        found.append(MinNewTokensLengthLogitsProcessor(prompt_tokens, options.min_new_tokens, ends, device=str(device)))
    if options.json_schema is not None or options.regex is not None:
        found.append(Grammar(options, tokenizer, prompt_tokens, end_tokens, width))
    return found


def checked(processor: Processor, ids: Tensor, scores: Tensor, *, ahead: bool = False) -> Tensor:
    """Return what a user's processor makes of the scores. Raises `ConfigError` naming it if that cannot be used.

    With `ahead`, the history may never come true, so what the processor raises is an `EngineError` that ends a look
    ahead and no text.
    """
    shape, broken = list(scores.shape), bool(scores.isnan().any())
    made: Any
    try:
        made = processor(ids, scores)
    except Exception as error:
        if not ahead:
            raise
        raise EngineError(
            f"the logits processor {_name(processor)!r} failed on guesses: {first_line(error)}"
        ) from error
    if not isinstance(made, Tensor) or list(made.shape) != shape:
        what = f"a tensor of shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
    elif not broken and made.isnan().any():
        what = "scores that are not numbers (NaN)"
    else:
        return made
    failed = EngineError if ahead else ConfigError
    raise failed(f"the logits processor {_name(processor)!r} returned {what}; it must return scores, {shape}.")


def _name(processor: Processor) -> str:
    return str(getattr(processor, "__name__", type(processor).__name__))


def clone(processors: Sequence[Processor]) -> list[Processor]:
    """Return copies that share no state with `processors`, so that they may look ahead. Raises `ConfigError`."""
    if not isinstance(processors, Sequence) or not all(callable(one) for one in processors):
        raise ConfigError(f"processors is {processors!r}; give a list of logits processors.")
    try:
        return copy_together(list(processors))
    except Exception as error:
        raise ConfigError(
            f"the logits processor {_culprit(processors)!r} cannot be copied ({first_line(error)}), so it cannot look "
            "ahead over guesses; give it a __deepcopy__, or keep what cannot be copied outside of it."
        ) from error


def _culprit(processors: Sequence[Processor]) -> str:
    for one in processors:
        try:
            copy_together([one])
        except Exception:
            return _name(one)
    return _name(processors[0])


def _spellings(word: str | tuple[int, ...], tokenizer: Any) -> list[list[int]]:
    """The token ids of a bad word, as it begins a text and as it follows a space."""
    if not isinstance(word, str):
        return [list(word)]
    if tokenizer is None:
        raise ConfigError(f"the bad word {word!r} needs a tokenizer; give one, or give the word as token ids.")
    spellings = [tokenizer.encode(text, add_special_tokens=False) for text in (word, " " + word.lstrip())]
    return [list(s) for s in dict.fromkeys(tuple(s) for s in spellings)]


def check_ids(option: str, ids: Collection[int], width: int) -> None:
    """Raise `ConfigError` if an option names a token id beyond the target's `width` logits."""
    if ids and max(ids) >= width:
        raise ConfigError(f"{option} names token id {max(ids)}; the target's ids lie between 0 and {width - 1}.")
