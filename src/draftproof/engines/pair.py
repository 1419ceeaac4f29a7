"""A target and who guesses for it, opened: models, caches, numerics, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Never, Self, cast

from transformers import PreTrainedModel

from draftproof.clock import Clock, DeviceClock
from draftproof.control import Controller, controller_of, policy_of
from draftproof.control.auto import Auto, Costs
from draftproof.engines.draft_model import DraftModel
from draftproof.engines.opening import making_of, name_of, open_model, rounds_coarsely, settle_numerics, warm_up
from draftproof.engines.prompt import Messages, prompt_ids
from draftproof.models.load import Loaded, why_not_compiled
from draftproof.models.session import ModelSession
from draftproof.models.tokens import doubt_end
from draftproof.propose.base import Making, Proposer
from draftproof.recipe import read_recipe
from draftproof.settings import USUAL_K, check_draft_is_named, check_settings, refuse_unknown


class ModelPair:
    """A target, and who guesses for it if anybody does, opened and checked. `Speculator` says what the settings are."""

    def __init__(
        self,
        target: str | Path | PreTrainedModel | Loaded,
        draft: str | Path | PreTrainedModel | Loaded | Making | Proposer | None = None,
        k: int | str | Controller = "auto",
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
        self._asked_numerics = numerics
        self.draft_context = draft_context
        of_the_draft: dict[str, Any] = {"draft_device": draft_device, "draft_dtype": draft_dtype}
        of_the_draft |= {"draft_weights": draft_weights, "draft_window": draft_window, "draft_revision": draft_revision}
        of_the_draft |= {"draft_context": draft_context}
        check_settings(device=device, dtype=dtype, weights=weights, compile=compile, numerics=numerics, **of_the_draft)
        making = making_of(draft)
        needs_model: dict[str, Any] = {
            **of_the_draft,
            "draft_adapter": draft_adapter,
            "draft_tokenizer": draft_tokenizer,
        }
        check_draft_is_named(None if making else draft, **needs_model)
        passes: dict[str, Any] = {
            "compile": compile,
            "keep_weights": keep_weights,
            "trust_remote_code": trust_remote_code,
        }
        self.target = open_model(target, tokenizer, device, dtype, revision, weights=weights, adapter=adapter, **passes)
        self.notes: list[str] = [*self.target.notes, *doubt_end(self.target.tokenizer, self.target.end_tokens)]
        padded = self.target.decoder is None and numerics != "fast"
        # a padded pass costs its whole shape, however many guesses a round then has
        self._controller: Controller = controller_of(k)
        if k == "auto" and padded:
            self._controller = cast("Controller", Auto(most=USUAL_K))
        self.numerics = settle_numerics(numerics, self.target, self.k, alone=draft is None or self.k == 0)
        self._plain_session = self._session(self.numerics.shape)
        self._target_session = self._session(self.numerics.shape)
        self._making: Making | None = making
        self._model: DraftModel | None = None
        if draft is not None and making is None:
            loaded_here = isinstance(draft, str | Path)
            self._making = self._model = DraftModel(
                cast("str | Path | PreTrainedModel | Loaded", draft),
                self.target,
                self._target_session.width,
                device=draft_device,
                window=draft_window,
                context=draft_context,
                tokenizer=draft_tokenizer,
                dtype=draft_dtype or (dtype if loaded_here else "auto"),
                revision=draft_revision,
                weights=draft_weights or (weights if loaded_here else None),
                adapter=draft_adapter,
                **passes,
            )
            self.notes += self._model.notes
        models = [loaded for loaded in (self.target, self.draft) if loaded is not None]
        self.notes = list(dict.fromkeys([*self.notes, *why_not_compiled(self.target, self.draft)]))
        self.clock = clock or DeviceClock(*(loaded.placement.device for loaded in models))

    @classmethod
    def from_recipe(cls, recipe: str | Path, **changes: Any) -> Self:
        """Open the pair that a recipe of `draftproof tune` holds; `changes` are settings that replace its own.

        Raises `ConfigError` for a file that is no recipe, and what opening raises.
        """
        return cls(**{**read_recipe(recipe), **changes})

    def __repr__(self) -> str:
        pair = f"{self.target.name!r}" + ("" if self.guesses_by is None else f" with {self.guesses_by!r}")
        place = f"{self.target.placement.device} in {self.target.placement.dtype}"
        return f"<Speculator {pair}: k {self.k}, {place}, numerics {self.numerics.kind}>"

    def _session(self, shape: int | None) -> ModelSession:
        return self.target.session(shape=shape)

    @property
    def k(self) -> int:
        """The most guesses of a round."""
        return self._controller.most

    @property
    def policy(self) -> str | None:
        """What chooses the guesses of a round, by name; None where their number is fixed."""
        return policy_of(self._controller)

    @property
    def draft(self) -> Loaded | None:
        """The draft model, where one guesses."""
        return None if self._model is None else self._model.loaded

    @property
    def guesses_by(self) -> str | None:
        """Who guesses, by name; None where nobody does."""
        if self._model is not None:
            return self._model.loaded.name
        return None if self._making is None else name_of(self._making)

    @property
    def target_window(self) -> int | None:
        """Most tokens the target can read, or None when it sets no limit."""
        return self._target_session.window

    @property
    def target_width(self) -> int:
        """Token ids that the target may write: those below it."""
        return self._target_session.width

    @property
    def draft_window(self) -> int | None:
        """Most tokens the draft will read, or None without a draft or a limit."""
        return None if self._model is None else self._model.session.window

    @property
    def target_session(self) -> ModelSession:
        """What reads the target's texts; `another()` of it has a cache of its own."""
        return self._target_session

    @property
    def draft_session(self) -> ModelSession | None:
        """The same of the draft model, where one guesses."""
        return None if self._model is None else self._model.session

    @property
    def would_be_fixed(self) -> bool:
        """Whether numerics are fast only because nobody was to guess."""
        return self._asked_numerics == "auto" and self.target.decoder is None and rounds_coarsely(self.target)

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

    def forget(self) -> None:
        """Forget all texts: the next request reads its whole prompt, as a first one does."""
        for session in {*self._own_sessions, *([self._model.session] if self._model else [])}:
            session.forget()
        if self.unpadded is not self:
            self.unpadded.forget()

    @property
    def _own_sessions(self) -> tuple[ModelSession, ...]:
        return self._target_session, self._plain_session

    @cached_property
    def unpadded(self) -> Self:
        """Who writes plainly as fast as it goes here: this one, or where its passes are padded, its target alone."""
        return self if self.numerics.shape is None else type(self)(self.target, numerics="fast", clock=self.clock)

    def at(self, k: int | str | Controller) -> Self:
        """Return the same pair on the same models, with caches of its own, that guesses `k` a round."""
        model: dict[str, Any] = {}
        if self._model is not None:
            model = {"draft_context": self.draft_context, "draft_window": self.draft_window}
        guesser = self._making if self._model is None else self._model.loaded
        return type(self)(self.target, guesser, k, numerics=self._asked_numerics, clock=self.clock, **model)

    def pass_times(self, sizes: Sequence[int], repeats: int = 2) -> tuple[dict[int, float], dict[int, float]]:
        """Return seconds of the target's passes over so many tokens, and of the draft's if there is one; the first pass
        of each size is a warm-up."""
        found = []
        for session in (self._target_session, self.draft_session):
            fitting = [n for n in sizes if session is not None and (session.window is None or n < session.window)]
            found.append({} if session is None else warm_up(session.another(), fitting, 8, repeats, self.clock))
        return found[0], found[1]

    def warm_up(self, prompt_tokens: int = 8, repeats: int = 2) -> None:
        """Run passes of the shapes that a request uses, so that first-time costs fall outside what is measured.

        What they take is where `k="auto"` begins.
        """
        warm_up(self._plain_session, (1,), prompt_tokens, repeats, self.clock)
        passes = warm_up(self._target_session, (self.k + 1, 2, 1), prompt_tokens, repeats, self.clock)
        draft_s = 0.0 if self._model is None else self._model.warm_up(prompt_tokens, repeats, self.clock)
        if self.unpadded is not self:
            self.unpadded.warm_up(prompt_tokens, repeats)
        if isinstance(self._controller, Auto) and self._controller.costs is None:
            self._controller = replace(self._controller, costs=Costs(passes[1], passes, draft_s))
