"""Speculative decoding on this machine, in five lines of Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from draftproof.clock import Clock, DeviceClock
from draftproof.decode.divergence import attribute, describe, same_text
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.engines.opening import check_numerics, open_model, settle_numerics
from draftproof.errors import ConfigError, DivergenceError
from draftproof.models.load import Loaded
from draftproof.models.session import ModelSession
from draftproof.models.tokens import TextStream, compare_vocabularies, encode
from draftproof.propose.draft import Draft
from draftproof.records import MAX_K, Divergence, Generation, Round


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one round added to a streamed text."""

    text: str
    """Newly readable text; it is final, and may be empty."""
    round: Round


class Stream:
    """A text as it is written. Iterate it; `generation` is its record, at the end or (`cancelled`) before."""

    def __init__(self, decoding: Decoding, stop: Stop) -> None:
        self._decoding = decoding
        self._stop = stop

    def __iter__(self) -> Iterator[Chunk]:
        for round_ in self._decoding:
            yield Chunk(self._stop.readable(), round_)

    @property
    def generation(self) -> Generation:
        return self._decoding.generation()

    def cancel(self) -> Generation:
        """End the text here, and return its record."""
        return self._decoding.cancel()

    def readable(self) -> str:
        """Text that became final and was not handed out yet: after `cancel`, what was held back."""
        return self._stop.readable()


class Speculator:
    """A target and its draft, ready to write.

    `target` and `draft` are hub names, folders, `.gguf` files, what `models.load.load` returned, or transformers models
    (then give `tokenizer`, and `draft_tokenizer` to have the pair checked). Without a draft, or with `k=0`, it writes
    plainly. `device` and `dtype` are decided once for each model; the draft follows the target's device unless told
    otherwise. `compile` is `"auto"`, `"on"` or `"off"`, as in `models.load.load`; models that are handed over loaded
    keep the passes they have unless it is `"on"`. `numerics` is `"fixed"` (the same bits with speculation on and off;
    unless they are compiled, all passes then take `k + 1` tokens), `"fast"` (each pass in its cheapest shape) or
    `"auto"` (fixed where it costs next to nothing here); `.numerics` says which it is and why. `weights="int8"`
    quantises what is loaded here; the quantised target then is the target. The draft follows, unless `draft_weights`
    says `"none"`.

    Raises `LoadError`, `CacheError`, `PairError` or `ConfigError` before anything is generated.
    """

    def __init__(
        self,
        target: str | Path | PreTrainedModel | Loaded,
        draft: str | Path | PreTrainedModel | Loaded | None = None,
        k: int = 5,
        *,
        device: str = "auto",
        dtype: str = "auto",
        draft_device: str | None = None,
        draft_dtype: str | None = None,
        revision: str | None = None,
        draft_revision: str | None = None,
        draft_window: int | None = None,
        weights: str | None = None,
        draft_weights: str | None = None,
        tokenizer: Any = None,
        draft_tokenizer: Any = None,
        compile: str = "auto",
        numerics: str = "auto",
        keep_weights: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.k = check_k(k)
        check_numerics(numerics)
        self._may_drop_padding = numerics == "auto"
        of_the_draft = (draft_device, draft_dtype, draft_revision, draft_window, draft_weights, draft_tokenizer)
        if draft is None and of_the_draft != (None,) * 6:
            raise ConfigError("settings for a draft were given, and no draft; name one, or leave them out.")
        passes: dict[str, Any] = {"compile": compile, "keep_weights": keep_weights}
        self.target = open_model(target, tokenizer, device, dtype, revision, weights=weights, **passes)
        self.draft: Loaded | None = None
        self.notes: list[str] = list(self.target.notes)
        self.numerics = settle_numerics(numerics, self.target, self.k, alone=draft is None or self.k == 0)
        self._plain_session = self._session(self.numerics.shape)
        self._target_session = self._session(self.numerics.shape)
        self._draft_session: ModelSession | None = None
        devices = [self.target.placement.device]
        if draft is not None:
            loaded_here = isinstance(draft, str | Path)
            where, why = (draft_device, "asked for") if draft_device else (devices[0], "as the target")
            self.draft = open_model(
                draft,
                draft_tokenizer,
                where if loaded_here or draft_device else "auto",
                draft_dtype or (dtype if loaded_here else "auto"),
                draft_revision,
                why,
                weights=draft_weights or (weights if loaded_here else None),
                **passes,
            )
            self._draft_session = self.draft.session(draft_window)
            self._check_pair(self.target, self.draft)
            devices.append(self.draft.placement.device)
        self.notes += [one.why_not_compiled for one in (self.target, self.draft) if one and one.why_not_compiled]
        self.clock = clock or DeviceClock(*devices)

    def _session(self, shape: int | None) -> ModelSession:
        return self.target.session(shape=shape)

    def _check_pair(self, target: Loaded, draft: Loaded) -> None:
        if target.tokenizer is not None and draft.tokenizer is not None:
            note = compare_vocabularies(target.tokenizer, draft.tokenizer)
            self.notes += [note] if note else []
        assert self._draft_session is not None
        if self._draft_session.width != self._target_session.width:
            self.notes.append(
                f"output sizes {self._target_session.width} (target) and {self._draft_session.width} (draft) differ: "
                "rows padded for speed; the tokenizers decide"
            )

    @property
    def target_window(self) -> int | None:
        """Most tokens the target can read, or None when it sets no limit."""
        return self._target_session.window

    @property
    def draft_window(self) -> int | None:
        """Most tokens the draft will read, or None without a draft or a limit."""
        return None if self._draft_session is None else self._draft_session.window

    def encode(self, prompt: str | Sequence[int], *, chat: bool = False) -> list[int]:
        """Return the prompt's token ids; ids are checked against the target's range. Raises `ConfigError`."""
        if isinstance(prompt, str):
            if self.target.tokenizer is None:
                raise ConfigError(
                    "this Speculator has no tokenizer; pass tokenizer=…, or give the prompt as token ids."
                )
            return encode(self.target.tokenizer, prompt, chat=chat)
        if chat:
            raise ConfigError("a chat prompt must be text; token ids are taken as they are.")
        ids = [int(i) for i in prompt]
        if not ids:
            raise ConfigError("the prompt holds no tokens; give at least one.")
        if bad := next((i for i in ids if not 0 <= i < self._target_session.width), None):
            raise ConfigError(f"token id {bad} is outside the target's range 0..{self._target_session.width - 1}.")
        return ids

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 128,
        stop: str | Sequence[str] = (),
        chat: bool = False,
        k: int | None = None,
        bare: bool = False,
    ) -> Stream:
        """Write after `prompt`, round by round.

        `max_new_tokens` is at least 1; the text also ends where the target's window does. `stop` holds strings that end
        the text before them. `k` overrides the number of guesses a round; 0 writes plainly. Plain and speculative
        streams may run side by side; of two streams of one kind, the newer takes over the cache. With `bare`, passes
        are not padded, whatever the numerics: plain decoding as fast as it goes here.
        """
        ids = self.encode(prompt, chat=chat)
        session = self._plain_session if k == 0 else self._target_session
        k = self.k if k is None else check_k(k)
        if self.numerics.shape is not None:
            if k >= self.numerics.shape and not (bare or self._may_drop_padding):
                raise ConfigError(
                    f"k is {k}, and the numerics are fixed for {self.k} guesses at most; use a Speculator with k={k}."
                )
            if bare or k >= self.numerics.shape:
                session = self._session(None)
        window = self._target_session.window
        if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens is {max_new_tokens}; it must be a whole number, at least 1.")
        if window is not None and len(ids) >= window:
            raise ConfigError(
                f"the prompt has {len(ids)} tokens and the target's window holds {window}; shorten the prompt."
            )
        limit = max_new_tokens if window is None else min(max_new_tokens, window - len(ids))
        tokenizer = self.target.tokenizer
        rule = Stop(
            limit=limit,
            end_tokens=self.target.end_tokens,
            strings=(stop,) if isinstance(stop, str) else tuple(stop),
            text=None if tokenizer is None else TextStream(tokenizer, ids),
        )
        proposer = None
        if k and self._draft_session is not None:
            proposer = Draft(self._draft_session, self._target_session.width)
        return Stream(Decoding(session, ids, proposer=proposer, k=k, stop=rule, clock=self.clock), rule)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 128,
        stop: str | Sequence[str] = (),
        chat: bool = False,
        k: int | None = None,
        check: bool = False,
    ) -> Generation:
        """Write after `prompt` and return the record; the options are those of `stream`.

        With `check`, plain decoding writes the text again, and a difference raises `DivergenceError`.
        """
        ids = self.encode(prompt, chat=chat)
        stream = self.stream(ids, max_new_tokens=max_new_tokens, stop=stop, k=k)
        for _ in stream:
            pass
        generation = stream.generation
        if not check:
            return generation
        shape = self.numerics.shape
        unpadded = shape is not None and generation.k >= shape
        plain = self.stream(ids, max_new_tokens=max_new_tokens, stop=stop, k=0, bare=unpadded)
        for _ in plain:
            pass
        if not same_text(generation, plain.generation):
            raise DivergenceError(describe(self.attribute(ids, generation, plain.generation), self.target))
        return replace(generation, identical=True)

    def attribute(self, prompt: Sequence[int], speculative: Generation, plain: Generation) -> Divergence:
        """Say where two generations of `prompt` part, and why."""
        referee = None
        if self.target.decoder is None:
            widest = max(len(r.proposed) for made in (speculative, plain) for r in made.rounds)
            referee = self._session(self.numerics.shape or widest + 1)
        return attribute(self._target_session, prompt, speculative, plain, referee)

    def warm_up(self, prompt_tokens: int = 8, repeats: int = 2) -> None:
        """Run passes of the shapes that a request uses, so that first-time costs fall outside what is measured."""
        for session, widths in ((self._target_session, (self.k + 1, 1)), (self._draft_session, (2, 1))):
            if session is not None:
                for width in widths * repeats:
                    text = [0] * (prompt_tokens + width)
                    if session.window is not None:
                        text = text[: session.window]
                    session.reset()
                    if len(text) > width:
                        session.read(text[:-width])
                    session.read(text, last=min(width, len(text)))
                session.reset()


def check_k(k: int) -> int:
    """Return `k` if it is in range; raise `ConfigError` if not."""
    if not isinstance(k, int) or not 0 <= k <= MAX_K:
        raise ConfigError(f"k is {k}; it must be a whole number between 0 (plain decoding) and {MAX_K}.")
    return k
