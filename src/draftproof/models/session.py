"""A model that reads one growing sequence. It is handed the tokens to stand on, and runs only what it has not read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import torch
from transformers import PreTrainedModel

from draftproof.errors import ConfigError
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.quantise import is_quantised
from draftproof.models.runner import Runner, TransformersRunner
from draftproof.models.span import Cache, Rows, Span
from draftproof.models.support import refuse_unsupported
from draftproof.models.windows import attention_windows, window_of

CHUNK = 512
"""A long prompt is read in passes of this many tokens, so that masks and logits stay small."""


class Whole(NamedTuple):
    """A text as its passes have to know it, so that it is read alike whenever it is."""

    reserve: int = 0
    """About how many tokens it will have."""
    prompt: int = 0
    """How many of its first tokens are read before any other."""


class Session(Protocol):
    """What proposers and the loop need of a model."""

    @property
    def window(self) -> int | None:
        """Most tokens the model can read, or None when it sets no limit."""
        ...

    @property
    def width(self) -> int:
        """Number of logits in a row; every token id read must be below it."""
        ...

    @property
    def rounding(self) -> float:
        """How much of the largest logit the shape of a pass may round away before something is wrong."""
        ...

    def begin(self, prompt: Sequence[int], reserve: int) -> int:
        """Begin a text of about `reserve` tokens, of which `prompt` are read before any other; return how many of them
        are held from an earlier text, and need not be read."""
        ...

    def forget(self) -> None:
        """Forget everything read."""
        ...

    def read(self, sequence: Sequence[int], last: int = 1, whole: Whole | None = None) -> torch.Tensor:
        """Stand on `sequence`, and return the logits at its final `last` positions, `[last, width]`.

        `whole` says what text it is of, where that may not be the one that was begun last.
        """
        ...

    def write(
        self, sequence: Sequence[int], count: int, ends: Collection[int] = (), floor: float = 0.0
    ) -> tuple[list[int], list[float]]:
        """Stand on `sequence`, then on its `count` most likely next tokens, one pass each; all but the last are read.

        Behind one of `ends` it may stop earlier, and where the product of their probabilities falls below `floor`.
        Returns those tokens, of equal logits the lowest id, and the model's probability of each, NaN where its logits
        are not numbers.
        """
        ...


class ModelSession:
    """A `Session` over a decoder-only transformers model, with a position-addressed cache.

    `window` lowers the model's own limit; raising it is a `ConfigError`. With `decoder`, passes are its compiled ones;
    without, they are transformers' own; `shape` and `graphs` are then as in `TransformersRunner`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        window: int | None = None,
        *,
        decoder: NativeDecoder | None = None,
        shape: int | None = None,
        graphs: bool = False,
    ) -> None:
        self.model = model
        config = model.config.get_text_config(decoder=True)
        refuse_unsupported(model.config, type(model))
        self._windows = attention_windows(config)
        self._window = _checked_window(window_of(config), window)
        if decoder is not None:
            self.runner: Runner = NativeRunner(decoder)
        else:
            self.runner = TransformersRunner(model, shape, graphs=graphs)
        self.shape = None if decoder is not None else shape
        self.cache: Cache = self.runner.cache()
        self.passes = 0
        """Forward passes since the session was made."""
        self.held: list[int] = []
        self._lock = threading.Lock()
        self._whole = Whole()

    @property
    def window(self) -> int | None:
        return self._window

    @property
    def width(self) -> int:
        return self.runner.width

    @property
    def attention_windows(self) -> list[int | None]:
        """The attention window of each kind of layer, None for layers that see everything."""
        return list(self._windows.values())

    @property
    def rounding(self) -> float:
        """How much of the largest logit the shape of a pass may round away before something is wrong."""
        if is_quantised(self.model):
            return 0.5  # one input on the edge between two whole numbers may fall to either side, in every product
        return ROUNDING.get(self.model.dtype, 0.1)

    def another(self) -> ModelSession:
        """Return a session for another request, whose spans may stand in one pass with this one's."""
        twin = copy.copy(self)
        twin.cache, twin.passes, twin.held = self.runner.cache(), 0, []
        twin._lock, twin._whole = threading.Lock(), Whole()
        return twin

    def branch(self, count: int) -> ModelSession:
        """Return a session for another request, which holds a copy of this one's first `count` tokens."""
        twin = self.another()
        twin.cache, twin.held = self.cache.copy(count), self.held[:count]
        return twin

    def forget(self) -> None:
        with self._lock:
            self.held = []

    def begin(self, prompt: Sequence[int], reserve: int) -> int:
        """As in `Session`. Compiled passes find what any text before had in common with this one: a row has the same
        bits however its text was read, and packed weights stay as they are. Elsewhere nothing is held."""
        with self._lock:
            if not self.runner.steady:
                self.held = []
            self._stand(Whole(reserve, len(prompt)))
            return common_prefix(self.held, prompt)

    def _stand(self, whole: Whole) -> None:
        whole = Whole(min(whole.reserve, self._window or whole.reserve), whole.prompt)
        if whole != self._whole:
            self._whole = whole
            self.cache.reserve(whole.reserve)
            del self.held[whole.reserve :]  # what lay there may have been given back
            if not self.runner.steady:
                self.held = []

    def plan(self, sequence: Sequence[int], last: int = 1, *, most: int = CHUNK, states: bool = False) -> Span:
        """Return what has to be read next so that the model stands on `sequence`, `most` tokens at a time at most.

        `last` rows of logits are wanted at its end. Whoever runs the span tells `commit`; until then what it overwrites
        counts as not read. The last piece ends where the sequence does.
        """
        assert 0 < last <= len(sequence)
        self._refuse_beyond(len(sequence))
        start = self._start(sequence, last)
        del self.held[start:]  # should the pass be interrupted, nothing half-written counts as read
        end = self._end(start, len(sequence), last, most)
        whole = end == len(sequence)
        return Span(self.cache, sequence[start:end], start, last if whole else 0, states=states and whole)

    def _start(self, sequence: Sequence[int], last: int) -> int:
        """Where reading has to begin: unless rows are steady, never inside a piece of the prompt."""
        start = min(common_prefix(self.held, sequence), len(sequence) - last)
        if self.runner.steady or start >= self._whole.prompt:
            return start
        return start // CHUNK * CHUNK

    def _end(self, start: int, length: int, last: int, most: int) -> int:
        prompt, most = self._whole.prompt, max(most, last)
        if start < prompt < length:
            length, last = prompt, 1  # what follows the prompt is read apart from it, whoever reads it again
        elif self.shape is not None and start >= prompt:
            most = max(self.shape, last)
        left = length - start
        return length if left <= most else start + min(most, left - last)

    def commit(self, span: Span) -> None:
        """Take what a span of `plan`'s said as read."""
        self.passes += 1
        self.held.extend(span.tokens)

    def read(self, sequence: Sequence[int], last: int = 1, whole: Whole | None = None) -> torch.Tensor:
        return self.rows(sequence, last, whole).logits

    def rows(self, sequence: Sequence[int], last: int = 1, whole: Whole | None = None, *, states: bool = False) -> Rows:
        """As `read`; with `states` there come also the final hidden states of the tokens that were read last, at least
        of `last` tokens."""
        with self._lock, torch.inference_mode():
            self._stand(whole or self._whole)
            return self._read(sequence, last, states=states)

    def _read(self, sequence: Sequence[int], last: int, *, states: bool = False) -> Rows:
        while True:
            span = self.plan(sequence, last, states=states)
            (rows,) = self.runner.run([span])
            self.commit(span)
            if span.end == len(sequence):
                return rows

    def _refuse_beyond(self, length: int) -> None:
        if self._window is not None and length > self._window:
            raise ConfigError(f"a text of {length} tokens does not fit: {beyond(self._window)}.")

    def write(
        self, sequence: Sequence[int], count: int, ends: Collection[int] = (), floor: float = 0.0
    ) -> tuple[list[int], list[float]]:
        assert sequence and count > 0
        with self._lock, torch.inference_mode():
            self._refuse_beyond(len(sequence) + count - 1)
            start = min(common_prefix(self.held, sequence), len(sequence) - 1)
            if len(sequence) - start > CHUNK:
                self._read(sequence[:-1], 1)
                start = len(sequence) - 1
            del self.held[start:]
            tokens, sure = self.runner.write(self.cache, sequence[start:], start, count, ends, floor)
            self.passes += len(tokens)
            self.held.extend([*sequence[start:], *tokens[:-1]])
            return tokens, sure


def common_prefix(held: Sequence[int], wanted: Sequence[int]) -> int:
    """Return how many leading tokens the two sequences share."""
    low, high = 0, min(len(held), len(wanted))
    while low < high:  # halve: slices compare at the speed of C
        middle = (low + high + 1) // 2
        if list(held[low:middle]) == list(wanted[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def beyond(window: int) -> str:
    """Say that a model's window is full, and what to do."""
    return f"this model reads {window} tokens; shorten the prompt, or ask for fewer new tokens"


def _checked_window(own: int | None, wanted: int | None) -> int | None:
    if wanted is None:
        return own
    if wanted < 1 or (own is not None and wanted > own):
        raise ConfigError(f"a window of {wanted} tokens is not possible; the model allows 1 to {own or 'any number'}.")
    return wanted


ROUNDING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}
"""How much of the largest logit the shape of a pass may round away before something is wrong."""
