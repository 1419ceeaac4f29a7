"""How one request turns a row of logits into a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from draftproof.errors import EngineError
from draftproof.options import Options, Rule
from draftproof.sampling.chance import Chance
from draftproof.sampling.laws import law_of, truncate
from draftproof.sampling.processors import Processor, checked, clone


class Sampler(Protocol):
    """What proposers and the loop need to turn rows into tokens; `certify` brings one that works in fractions.

    A history is all tokens before a position, prompt included.
    """

    rule: Rule

    @property
    def chance(self) -> Chance:
        """Where draws come from."""
        ...

    @property
    def keeps_state(self) -> bool:
        """Whether every position of the text has to be asked about once, and in order."""
        ...

    @property
    def untouched(self) -> bool:
        """Whether a token is nothing but the largest logit of its row."""
        ...

    def law(self, row: Any, history: Sequence[int]) -> Any:
        """Return the probabilities of the next token, `[width]`, for the rules that draw."""
        ...

    def token(self, row: Any, history: Sequence[int]) -> int:
        """Return the next token, for the rules under which row and position decide it (greedy and coupled)."""
        ...

    def share(self, row: Any, token: int) -> float:
        """Return how likely the row itself holds a token, before all transforms; 0 for one that it does not know."""
        ...

    def look_ahead(self) -> Sampler:
        """Return a sampler that may be asked for histories that never come true, without changing this one."""
        ...


class RowSampler:
    """A request's options applied to rows of logits, each with the history that it really has.

    `width` is the target's number of logits; shorter rows are filled up, longer ones cut. `processors` come from the
    options and are asked for any history, in any order; `custom` ones may keep a state, so they see every position of
    the text once and in order, and only copies of them look ahead.
    """

    def __init__(
        self,
        options: Options,
        chance: Chance,
        *,
        width: int,
        device: str | torch.device = "cpu",
        processors: Sequence[Processor] = (),
        custom: Sequence[Processor] = (),
    ) -> None:
        self.rule: Rule = options.rule
        self._chance = chance
        self._options = options
        self._width = width
        self._device = device
        self._processors = processors
        self._custom = custom
        self._ahead: RowSampler | None = None
        self._is_ahead = False

    @property
    def chance(self) -> Chance:
        return self._chance

    @property
    def untouched(self) -> bool:
        return self.rule == "greedy" and not self._processors and not self._custom

    def scores_with_noise(self, row: Tensor, history: Sequence[int]) -> Tensor:
        """Return what `token` takes the largest of, `[width]`."""
        scores = self._scores(row, history)
        return scores if self.rule != "coupled" else self._chance.noisy(scores, len(history))

    def law(self, row: Tensor, history: Sequence[int]) -> Tensor:
        scores = self._scores(row, history)
        law = law_of(scores)
        if law[0].isnan():  # one broken logit breaks the whole law
            raise self._broken(row, scores)
        return law

    def token(self, row: Tensor, history: Sequence[int]) -> int:
        scores = self._scores(row, history)
        best = float(scores.max())
        if best != best or best == -torch.inf or (best == torch.inf and self.rule != "greedy"):
            raise self._broken(row, scores)
        return int(scores.argmax()) if self.rule == "greedy" else self._chance.couple(scores, len(history))

    def share(self, row: Tensor, token: int) -> float:
        if token >= len(row):
            return 0.0
        return float((row[token].float() - row.float().logsumexp(-1)).exp())

    @property
    def keeps_state(self) -> bool:
        return bool(self._custom)

    def look_ahead(self) -> RowSampler:
        if not (self._processors or self._custom):
            return self
        if self._ahead is None:
            self._ahead = RowSampler(self._options, self._chance, width=self._width, device=self._device)
            self._ahead._processors, self._ahead._is_ahead = clone(self._processors), True
        if self._custom:
            self._ahead._custom = clone(self._custom)
        return self._ahead

    def _scores(self, row: Tensor, history: Sequence[int]) -> Tensor:
        scores = self._transformed(row, history)
        return scores if self.rule == "greedy" else truncate(scores, self._options)

    def _transformed(self, row: Tensor, history: Sequence[int]) -> Tensor:
        scores = row.to(self._device, torch.float32)
        if len(scores) != self._width:
            scores = pad(scores[: self._width], (0, max(0, self._width - len(scores))), value=-torch.inf)
        if self._processors or self._custom:
            ids = torch.tensor([history], device=self._device)
            batch = scores[None].clone()  # a processor may write into what it is given
            for processor in self._processors:
                batch = processor(ids, batch)
            for processor in self._custom:
                batch = checked(processor, ids, batch, ahead=self._is_ahead)
            scores = batch[0]
        return scores

    def _broken(self, row: Tensor, scores: Tensor) -> EngineError:
        if row.isnan().any() or row.max() == torch.inf:
            return EngineError(  # of a draft too, where nobody reads it: it only guesses less
                "the target's logits are not numbers (NaN or infinite); try another dtype, or check the weights."
            )
        if scores.isnan().any() or scores.max() == torch.inf:
            return EngineError("scores are infinite once the options have transformed them; look at the processors.")
        asked = ("bad_words", "logit_bias", "min_new_tokens", "json_schema", "regex")
        names = [name for name in asked if getattr(self._options, name)] + ["processors"] * bool(self._custom)
        return EngineError(f"the options rule out every token here; loosen {' or '.join(names) or 'them'}.")
