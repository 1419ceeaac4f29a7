"""Speculative decoding on this machine, in five lines of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from draftproof.control import Controller, controller_of, reproducible
from draftproof.decode.divergence import attribute, describe, same_text
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.engines.batch import AT_ONCE, Batch, write_many
from draftproof.engines.pair import ModelPair
from draftproof.engines.prompt import Messages
from draftproof.engines.request import end_tokens_for, sampler_of, seeded_as, stop_of
from draftproof.engines.stream import Stream, finish
from draftproof.errors import ConfigError, DivergenceError
from draftproof.options import Options
from draftproof.propose.base import Proposer, Terms, Unmade
from draftproof.records import Divergence, Generation
from draftproof.sampling.processors import Processor


class Speculator(ModelPair):
    """A target and its draft, ready to write.

    `target` and `draft` are hub names, folders, `.gguf` files, what `models.load.load` returned, or transformers models
    (then give `tokenizer`, and `draft_tokenizer` to have the pair checked). Instead of a draft model, `draft` may name
    a proposer that needs none (`"ngram"`), or be one of your own: what makes a `propose.base.Proposer` of the `Terms`
    of each request, or a proposer, for one request at a time. Without a draft, or with `k=0`, it writes plainly. `k` is
    the number of guesses a round; `"auto"`, which asks for as many as pay and for none where none do (under rules that
    draw guesses it asks for 5, so that a seed writes its text again); or a `control.Controller` of your own. `device`
    and `dtype` are decided once for each model; the draft follows the target's device unless told otherwise. `compile`
    is `"auto"`, `"wait"`, `"on"` or `"off"`, as in `models.load.load`; models that are handed over loaded keep the
    passes they have unless it is `"on"`.
    `numerics` is `"fixed"` (the same bits with speculation on and off; unless they are compiled, all passes then take
    `k + 1` tokens), `"fast"` (each pass in its cheapest shape) or `"auto"` (fixed in 16 bits and for quantised weights,
    fast in 32); `.numerics` says which it is, why, and at what price. `weights="int8"` quantises what is loaded here;
    the quantised target then is the target. The draft follows, unless `draft_weights` says `"none"`. `adapter` and
    `draft_adapter` are LoRA adapters, by folder or hub name, merged into what is loaded here; a `PeftModel` is taken as
    it is. Code that lies among a model's files runs only with `trust_remote_code`. Of a prompt the draft reads the last
    `draft_context` tokens (None: 512, or 16 for each token that may be written, if that is more), and never more than
    `draft_window` of the text at once.

    Raises `LoadError`, `CacheError`, `PairError` or `ConfigError` before anything is generated.
    """

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        options: Options | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        k: int | str | Controller | None = None,
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
        over the cache.
        """
        wanted = Options.of(options, **changes).seeded()
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        ids = self.encode(prompt, chat=chat, **talk)
        controller = self.controller_for(wanted, k)
        rule, parts = self.parts_of(ids, wanted, controller, sample, processors)
        session = self._plain_session if controller.most == 0 else self._target_session
        return Stream(Decoding(session, ids, k=controller, **parts), rule)

    def controller_for(self, wanted: Options, k: int | str | Controller | None) -> Controller:
        """Return what chooses the guesses of a request's rounds. Raises `ConfigError`."""
        controller = self._controller if k is None else controller_of(k)
        if not wanted.same_text:
            controller = reproducible(controller)
        most = controller.most
        if self.numerics.shape is not None and most > self.k:
            raise ConfigError(
                f"k is {most}, and the numerics are fixed for {self.k} guesses at most; use a Speculator with "
                f"k={most}, or with numerics='fast'."
            )
        if most > self.k == 0 and self._making is not None and self.would_be_fixed:
            raise ConfigError(
                f"k is {most}, and this Speculator was opened with k=0, so its numerics are not fixed; use one with "
                f"k={most}, or with numerics='fast'."
            )
        return controller

    def _proposer(self, terms: Terms) -> Proposer | None:
        try:
            return None if self._making is None else self._making(terms)
        except Exception as error:  # whatever it is, the text does not need it
            return Unmade(error)

    def parts_of(
        self,
        ids: Sequence[int],
        wanted: Options,
        controller: Controller,
        sample: int = 0,
        processors: Sequence[Processor] = (),
    ) -> tuple[Stop, dict[str, Any]]:
        """Return what ends a request's text, and everything else that a `Request` takes. Raises `ConfigError`."""
        session = self._target_session
        sampler = sampler_of(self.target, session.width, wanted, len(ids), sample, processors)
        rule = stop_of(self.target, ids, wanted, session.window)
        terms = Terms(session.width, frozenset(end_tokens_for(self.target, wanted)), sampler)
        return rule, {
            "proposer": None if controller.most == 0 else self._proposer(terms),
            "stop": rule,
            "clock": self.clock,
            "sampler": sampler,
            "logprobs": wanted.top_logprobs if wanted.logprobs else None,
            "seed": None if wanted.rule == "greedy" else wanted.seed,
            "sample": sample,
        }

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        options: Options | None = None,
        *,
        chat: bool = False,
        messages: Messages | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        k: int | str | Controller | None = None,
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
        generation = finish(self.stream(ids, wanted, k=k, sample=sample, processors=processors))
        if not check:
            return generation
        plain = finish(self.stream(ids, wanted, k=0, sample=sample, processors=processors))
        if not same_text(generation, plain):
            found = self.attribute(ids, generation, plain, wanted, processors)
            raise DivergenceError(describe(found, self.target))
        return replace(generation, identical=True)

    def generate_many(
        self,
        prompts: Sequence[str | Sequence[int]],
        options: Options | None = None,
        *,
        chat: bool = False,
        k: int | str | Controller | None = None,
        at_once: int = AT_ONCE,
        memory: int | None = None,
        processors: Sequence[Processor] = (),
        **changes: Any,
    ) -> list[Generation]:
        """Write a text after each prompt, `at_once` of them in shared passes; return the records in their order.

        Compiled, and under fixed numerics, each is the text that `generate` writes, bit for bit. Seconds in a record
        are the text's shares of passes. `memory` is how many bytes the caches may have. `engines.batch.Batch` hands
        texts out while they are written, takes others with options of their own, and goes on where one fails; here the
        first error is raised when the others are done.
        """
        batch = Batch(self, at_once=at_once, memory=memory)
        given: dict[str, Any] = {"chat": chat, "k": k, "processors": processors, **changes}
        texts = dict(write_many(batch, prompts, options, **given))
        if failed := next((text.error for _, text in sorted(texts.items()) if text.error is not None), None):
            raise failed
        return [texts[i].generation for i in range(len(prompts))]

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
        k: int | str | Controller | None = None,
        check: bool = False,
        processors: Sequence[Processor] = (),
        **changes: Any,
    ) -> list[Generation]:
        """Write `n` texts after `prompt`, each from its own stream of chance; the rest is as in `generate`.

        The first is the text that `generate` writes with the same seed. Compiled, and without `check`, they share
        passes, and the prompt is read once.
        """
        if not isinstance(n, int) or n < 1:
            raise ConfigError(f"n is {n!r}; it must be a whole number, at least 1.")
        if "sample" in changes:
            raise ConfigError("samples() numbers its samples from 0; for one of them use generate(…, sample=i).")
        wanted = Options.of(options, **changes).seeded()
        talk: Any = {"messages": messages, "tools": tools, "continue_final_message": continue_final_message}
        ids = self.encode(prompt, chat=chat, **talk)
        given: dict[str, Any] = {"k": k, "processors": processors}
        if not check and n > 1 and self.target.decoder is not None:
            batch = Batch(self)
            texts = [batch.add(ids, wanted, sample=i, **given) for i in range(n)]
            while batch.busy:
                batch.step()
            if failed := next((text.error for text in texts if text.error is not None), None):
                raise failed
            return [text.generation for text in texts]
        given["check"] = check
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
