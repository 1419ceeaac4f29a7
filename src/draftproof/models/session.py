"""A model that reads one growing sequence. It is handed the tokens to stand on, and runs only what it has not read."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import PreTrainedModel

from draftproof.errors import CacheError, ConfigError, first_line
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.runner import Runner, TransformersRunner
from draftproof.models.span import Span
from draftproof.models.support import refuse_unsupported
from draftproof.models.windows import attention_windows, window_of

CHUNK = 512
"""A long prompt is read in passes of this many tokens, so that masks and logits stay small."""


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

    def reset(self, reserve: int = 0) -> None:
        """Forget everything read; expect a text of about `reserve` tokens."""
        ...

    def read(self, sequence: Sequence[int], last: int = 1) -> torch.Tensor:
        """Stand on `sequence`, and return the logits at its final `last` positions, `[last, width]`."""
        ...

    def write(self, sequence: Sequence[int], count: int, ends: Collection[int] = ()) -> tuple[list[int], list[float]]:
        """Stand on `sequence`, then on its `count` most likely next tokens, one pass each; all but the last are read.

        Behind one of `ends` it may stop earlier.
        Returns those tokens and their logits; of equal logits the lowest id is taken, and NaN counts as the largest.
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
        self.cache = self.runner.cache()
        self.passes = 0
        """Forward passes since the session was made."""
        self._lock = threading.Lock()
        self.held: list[int] = []

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

    def reset(self, reserve: int = 0) -> None:
        with self._lock:
            self.held = []
            self.cache.reserve(min(reserve, self._window or reserve))

    def read(self, sequence: Sequence[int], last: int = 1) -> torch.Tensor:
        assert 0 < last <= len(sequence)
        with self._lock, torch.inference_mode():
            return self._read(sequence, last)

    def _read(self, sequence: Sequence[int], last: int) -> torch.Tensor:
        self._refuse_beyond(len(sequence))
        start = min(common_prefix(self.held, sequence), len(sequence) - last)
        while True:
            left = len(sequence) - start
            end = len(sequence) if left <= max(CHUNK, last) else start + min(CHUNK, left - last)
            del self.held[start:]  # should the pass be interrupted, nothing half-written counts as read
            wanted = last if end == len(sequence) else 0
            (rows,) = self.runner.run([Span(self.cache, sequence[start:end], start, wanted)])
            self.passes += 1
            self.held.extend(sequence[start:end])
            if end == len(sequence):
                return rows.logits
            start = end

    def _refuse_beyond(self, length: int) -> None:
        if self._window is not None and length > self._window:
            raise ConfigError(f"a text of {length} tokens does not fit: {beyond(self._window)}.")

    def write(self, sequence: Sequence[int], count: int, ends: Collection[int] = ()) -> tuple[list[int], list[float]]:
        assert sequence and count > 0
        with self._lock, torch.inference_mode():
            self._refuse_beyond(len(sequence) + count - 1)
            start = min(common_prefix(self.held, sequence), len(sequence) - 1)
            if len(sequence) - start > CHUNK:
                self._read(sequence[:-1], 1)
                start = len(sequence) - 1
            del self.held[start:]
            tokens, logits = self.runner.write(self.cache, sequence[start:], start, count, ends)
            self.passes += len(tokens)
            self.held.extend([*sequence[start:], *tokens[:-1]])
            return tokens, logits


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


SMALL_WINDOW = 64
"""The check at load crosses a sliding window of at most this many tokens; larger ones take too long for a check."""
ROUNDING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}
"""How much of the largest logit the shape of a pass may round away before something is wrong."""


def refuse_given_up(model: PreTrainedModel) -> None:
    """Raise `ConfigError` for a model whose weights are not in memory: only compiled passes hold them, or nobody."""
    if getattr(model, "weights_given_up", False):
        raise ConfigError("this model's weights were given up for compiled passes; load it with keep_weights=True.")
    if model.device.type != "meta":
        return
    if any(getattr(getattr(module, "_hf_hook", None), "offload", False) for module in model.modules()):
        raise ConfigError(
            "this model's weights are offloaded (device_map), its embeddings too, so no device is left to run it on; "
            "load it without device_map, or with one that keeps the embeddings in memory."
        )
    raise ConfigError("this model's weights hold no numbers (its device is 'meta'); load it with from_pretrained.")


@dataclass(frozen=True, slots=True)
class Sample:
    """A few tokens, and the logits of one plain pass of transformers over them, `[tokens, width]`."""

    ids: list[int]
    logits: torch.Tensor


@torch.inference_mode()
def sample_of(model: PreTrainedModel) -> Sample:
    """Return what other passes of the model have to agree with: six tokens, or as many as cross a small window, but
    no more than the model reads.

    Raises `CacheError` for a model that cannot read them.
    """
    refuse_given_up(model)
    if model.training:
        raise ConfigError("the model is in training mode, where dropout makes every pass another; call model.eval().")
    session = ModelSession(model)
    small = [w for w in session.attention_windows if w is not None and w <= SMALL_WINDOW]
    ids = [(11 + 7 * i) % session.width for i in range(max(small, default=0) + 6)][: session.window]
    device = model.get_input_embeddings().weight.device
    try:
        return Sample(ids, model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0].float())
    except Exception as error:  # whatever an architecture raises here, it is not one that the loop can work with
        raise CacheError(f"{model.config.model_type!r} cannot be run: {first_line(error)}") from error


@torch.inference_mode()
def agrees(session: ModelSession, sample: Sample) -> bool:
    """Whether reading the sample in pieces, with a step back between them, gives its logits but for rounding.

    A quantised model jumps where a last digit moves an input over an edge, by as much as quantising moved it: there
    the logits have to go together, no more.
    """
    ids, plain = sample.ids, sample.logits
    if not plain.isfinite().all():
        return True  # there is nothing to compare; whoever uses such logits is told
    last = min(3, len(ids))
    aside = [*ids[:-last], ids[0], ids[0]][: len(ids)]
    session.read(aside, last=min(2, len(aside)))
    pieces = session.read(ids, last=last).float()
    if is_quantised(session.model):
        together = torch.corrcoef(torch.stack([pieces.flatten(), plain[-last:].flatten()]))[0, 1]
        return bool(together > 0.8)
    scale = plain.abs().max().clamp(min=1e-6)
    return bool((pieces - plain[-last:]).abs().max() <= session.rounding * scale)


def check_cache(model: PreTrainedModel, sample: Sample | None = None) -> None:
    """Raise `CacheError` unless reading in pieces, with a step back between them, gives the logits of one plain pass.

    Architectures differ in how they use masks and positions; a few tokens through each path tell whether this one
    does what the loop relies on. `sample` is what `sample_of` returned, if that is known.
    """
    sample = sample or sample_of(model)
    name = repr(model.config.model_type)
    try:
        same = agrees(ModelSession(model), sample)
    except CacheError:
        raise
    except Exception as error:
        raise CacheError(f"{name} does not work with a position-addressed cache: {first_line(error)}") from error
    if not same:
        raise CacheError(
            f"{name} gives other logits when it reads a text in pieces than in one pass, "
            "so its cache cannot be addressed by position and guesses could not be taken back."
        )


def is_quantised(model: PreTrainedModel) -> bool:
    """Whether weights are stored in fewer bits than they are computed with, by torchao or by the checkpoint."""
    if any(hasattr(weight, "qdata") for weight in model.parameters()):
        return True
    stored = getattr(model.config, "quantization_config", None)
    return stored is not None and not getattr(stored, "dequantize", False)
