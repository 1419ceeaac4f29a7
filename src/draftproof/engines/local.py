"""Speculative decoding on this machine, in five lines of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from transformers import PreTrainedModel

from draftproof.clock import Clock, DeviceClock
from draftproof.decode.divergence import attribute, describe, same_text
from draftproof.decode.loop import Decoding
from draftproof.engines.opening import check_pair, open_model, settle_numerics, warm_up
from draftproof.engines.prompt import Messages, prompt_ids
from draftproof.engines.request import end_tokens_for, sampler_of, seeded_as, stop_of
from draftproof.engines.stream import Stream, finish
from draftproof.errors import ConfigError, DivergenceError
from draftproof.models.load import Loaded, notes_of, why_not_compiled
from draftproof.models.session import ModelSession
from draftproof.models.tokens import doubt_end
from draftproof.options import Options
from draftproof.propose.draft import Draft
from draftproof.records import Divergence, Generation
from draftproof.sampling.processors import Processor
from draftproof.settings import check_draft_is_named, check_k, check_settings, refuse_unknown


class Speculator:
    """A target and its draft, ready to write.

    `target` and `draft` are hub names, folders, `.gguf` files, what `models.load.load` returned, or transformers models
    (then give `tokenizer`, and `draft_tokenizer` to have the pair checked). Without a draft, or with `k=0`, it writes
    plainly. `device` and `dtype` are decided once for each model; the draft follows the target's device unless told
    otherwise. `compile` is `"auto"`, `"wait"`, `"on"` or `"off"`, as in `models.load.load`; models that are handed over
    loaded keep the passes they have unless it is `"on"`. `numerics` is `"fixed"` (the same bits with speculation on and
    off; unless they are compiled, all passes then take `k + 1` tokens), `"fast"` (each pass in its cheapest shape) or
    `"auto"` (fixed in 16 bits and for quantised weights, fast in 32); `.numerics` says which it is, why, and at what
    price. `weights="int8"` quantises what is loaded here; the quantised target then is the target. The draft follows,
    unless `draft_weights` says `"none"`. `adapter` and `draft_adapter` are LoRA adapters, by folder or hub name, merged
    into what is loaded here; a `PeftModel` is taken as it is. Code that lies among a model's files runs only with
    `trust_remote_code`. Of a prompt the draft reads the last `draft_context` tokens (None: 512, or 16 for each token
    that may be written, if that is more), and never more than `draft_window` of the text at once.

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
        draft_context: int | None = None,
        weights: str | None = None,
        draft_weights: str | None = None,
        adapter: str | Path | None = None,
        draft_adapter: str | Path | None = None,
        tokenizer: Any = None,
        draft_tokenizer: Any = None,
        compile: str = "auto",
        numerics: str = "auto",
        keep_weights: bool = False,
        trust_remote_code: bool = False,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown)
        self.k = check_k(k)
        of_the_draft: dict[str, Any] = {"draft_device": draft_device, "draft_dtype": draft_dtype}
        of_the_draft |= {"draft_weights": draft_weights, "draft_window": draft_window, "draft_revision": draft_revision}
        of_the_draft |= {"draft_context": draft_context}
        self.draft_context = draft_context
        check_settings(device=device, dtype=dtype, weights=weights, compile=compile, numerics=numerics, **of_the_draft)
        check_draft_is_named(draft, **of_the_draft, draft_adapter=draft_adapter, draft_tokenizer=draft_tokenizer)
        passes: dict[str, Any] = {
            "compile": compile,
            "keep_weights": keep_weights,
            "trust_remote_code": trust_remote_code,
        }
        self.target = open_model(target, tokenizer, device, dtype, revision, weights=weights, adapter=adapter, **passes)
        self.draft: Loaded | None = None
        self.notes: list[str] = [*self.target.notes, *doubt_end(self.target.tokenizer, self.target.end_tokens)]
        self.numerics = settle_numerics(numerics, self.target, self.k, alone=draft is None or self.k == 0)
        self._plain_session = self._session(self.numerics.shape)
        self._target_session = self._session(self.numerics.shape)
        self._draft_session: ModelSession | None = None
        self._never: frozenset[int] = frozenset()
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
                adapter=draft_adapter,
                beside=self.target,
                **passes,
            )
            self.notes += [note for note in self.draft.notes if note not in notes_of(self.draft.model)]
            self._draft_session = self.draft.session(draft_window)
            widths = self._target_session.width, self._draft_session.width
            self._never, notes = check_pair(self.target, self.draft, widths)
            self.notes += notes
            devices.append(self.draft.placement.device)
        self.notes = list(dict.fromkeys([*self.notes, *why_not_compiled(self.target, self.draft)]))
        self.clock = clock or DeviceClock(*devices)

    def __repr__(self) -> str:
        pair = f"{self.target.name!r}" + ("" if self.draft is None else f" with {self.draft.name!r}")
        place = f"{self.target.placement.device} in {self.target.placement.dtype}"
        return f"<Speculator {pair}: k {self.k}, {place}, numerics {self.numerics.kind}>"

    def _session(self, shape: int | None) -> ModelSession:
        return self.target.session(shape=shape)

    @property
    def target_window(self) -> int | None:
        """Most tokens the target can read, or None when it sets no limit."""
        return self._target_session.window

    @property
    def draft_window(self) -> int | None:
        """Most tokens the draft will read, or None without a draft or a limit."""
        return None if self._draft_session is None else self._draft_session.window

    def encode(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Return the ids of what a request continues, as in `stream`. Raises `ConfigError`."""
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        return prompt_ids(self.target.tokenizer, self._target_session.width, prompt, chat=chat, **talk)

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        options: Options | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        k: int | None = None,
        bare: bool = False,
        sample: int = 0,
        processors: Sequence[Processor] = (),
        **changes: Any,
    ) -> Stream:
        """Write after `prompt`, round by round.

        `prompt` is text (with `chat`, a user's message) or token ids. Instead of it, `messages` are a conversation as
        OpenAI's interface writes it, put through the target's chat template with `tools`; the answer is written, or
        with `continue_final_message` the rest of the last message.

        Options are given as an `Options`, by name (`temperature=0.7, stop=["\\n"]`), or both. The text also ends where
        the target's window does. `k` overrides the number of guesses a round; 0 writes plainly. `sample` says which of
        several texts of one seed this is. `processors` are transformers' logits processors, or functions that take ids
        `[1, length]` and scores `[1, width]` and return scores; each position of the text is given to copies of them
        once, in order. Plain and speculative streams may run side by side; of two streams of one kind, the newer takes
        over the cache. With `bare`, passes are not padded, whatever the numerics: plain decoding as fast as it goes
        here.
        """
        wanted = Options.of(options, **changes).seeded()
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        ids = self.encode(prompt, chat=chat, **talk)
        session = self._plain_session if k == 0 else self._target_session
        k = self.k if k is None else check_k(k)
        if self.numerics.shape is not None:
            if k > self.k and not bare:
                raise ConfigError(
                    f"k is {k}, and the numerics are fixed for {self.k} guesses at most; use a Speculator with k={k}, "
                    "or with numerics='fast'."
                )
            if bare:
                session = self._session(None)
        sampler = sampler_of(self.target, session.width, wanted, len(ids), sample, processors)
        rule = stop_of(self.target, ids, wanted, session.window)
        proposer = None
        if k and self._draft_session is not None:
            ends = end_tokens_for(self.target, wanted)
            proposer = Draft(self._draft_session, session.width, sampler, ends, self.draft_context, never=self._never)
        decoding = Decoding(
            session,
            ids,
            proposer=proposer,
            k=k,
            stop=rule,
            clock=self.clock,
            sampler=sampler,
            logprobs=wanted.top_logprobs if wanted.logprobs else None,
            seed=None if wanted.rule == "greedy" else wanted.seed,
            sample=sample,
        )
        return Stream(decoding, rule)

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        options: Options | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        k: int | None = None,
        bare: bool = False,
        check: bool = False,
        sample: int = 0,
        processors: Sequence[Processor] = (),
        **changes: Any,
    ) -> Generation:
        """Write after `prompt` and return the record; all but `check` is as in `stream`.

        With `check`, plain decoding writes the text again, and a difference raises `DivergenceError`. Greedy and
        coupled texts can be checked; under the other rules plain decoding draws another text from the same law.
        """
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        ids = self.encode(prompt, chat=chat, **talk)
        wanted = Options.of(options, **changes).seeded()
        if check and not wanted.same_text:
            raise ConfigError(
                f"check compares texts, and under verify={wanted.verify!r} plain decoding draws another one; "
                "choose verify='coupled', or prove the law with draftproof certify."
            )
        generation = finish(self.stream(ids, wanted, k=k, bare=bare, sample=sample, processors=processors))
        if not check:
            return generation
        plain = finish(self.stream(ids, wanted, k=0, bare=bare, sample=sample, processors=processors))
        if not same_text(generation, plain):
            found = self.attribute(ids, generation, plain, wanted, processors)
            raise DivergenceError(describe(found, self.target))
        return replace(generation, identical=True)

    def samples(
        self,
        prompt: str | Sequence[int] | None = None,
        n: int = 1,
        options: Options | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        k: int | None = None,
        bare: bool = False,
        check: bool = False,
        processors: Sequence[Processor] = (),
        **changes: Any,
    ) -> list[Generation]:
        """Write `n` texts after `prompt`, each from its own stream of chance; the rest is as in `generate`.

        The first is the text that `generate` writes with the same seed.
        """
        if not isinstance(n, int) or n < 1:
            raise ConfigError(f"n is {n!r}; it must be a whole number, at least 1.")
        if "sample" in changes:
            raise ConfigError("samples() numbers its samples from 0; for one of them use generate(…, sample=i).")
        wanted = Options.of(options, **changes).seeded()
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        ids = self.encode(prompt, chat=chat, **talk)
        given: dict[str, Any] = {"k": k, "bare": bare, "check": check, "processors": processors}
        return [self.generate(ids, wanted, sample=i, **given) for i in range(n)]

    def attribute(
        self,
        prompt: Sequence[int],
        speculative: Generation,
        plain: Generation,
        options: Options | None = None,
        processors: Sequence[Processor] = (),
    ) -> Divergence:
        """Say where two generations of `prompt`, written with these options, part, and why."""
        referee = None
        if self.target.decoder is None:
            widest = max(len(r.proposed) for made in (speculative, plain) for r in made.rounds)
            referee = self._session(self.numerics.shape or widest + 1)
        session = self._target_session
        wanted = seeded_as(speculative, options)
        sampler = sampler_of(self.target, session.width, wanted, len(prompt), speculative.sample, processors)
        return attribute(session, prompt, speculative, plain, referee, sampler.scores_with_noise)

    def warm_up(self, prompt_tokens: int = 8, repeats: int = 2) -> None:
        """Run passes of the shapes that a request uses, so that first-time costs fall outside what is measured."""
        warm_up(self._target_session, (self.k + 1, 1), prompt_tokens, repeats)
        if self._draft_session is not None:
            warm_up(self._draft_session, (2, 1), prompt_tokens, repeats)
