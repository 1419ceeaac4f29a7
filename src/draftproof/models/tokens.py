"""Tokens and text: what a prompt becomes, when new tokens are readable, and whether two tokenizers are one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import ConfigError, PairError
from draftproof.models.template import render

CONTEXT = 16
"""Tokens before the new ones that are decoded with them, so that spaces and split characters come out right."""
UNFINISHED = "\ufffd"
"""What decoders write for bytes that do not (yet) make a character."""


def encode(tokenizer: Any, prompt: str, *, chat: bool = False) -> list[int]:
    """Return the token ids of `prompt`, through the tokenizer's chat template if `chat`.

    Raises `ConfigError` when nothing is left to read, for bytes that are no text, and when a chat template is missing
    or refuses the message.
    """
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"the prompt is not valid UTF-8 (at character {error.start}); give it as text.") from error
    if chat:
        if tokenizer.chat_template and not prompt.strip():
            raise ConfigError("the chat message is empty; give some text.")
        return encode_text(tokenizer, render(tokenizer, [{"role": "user", "content": prompt}]))
    ids = tokenizer(prompt, verbose=False)["input_ids"]
    if not ids and tokenizer.bos_token_id is not None:
        ids = [tokenizer.bos_token_id]
    if not ids:
        raise ConfigError("the prompt is empty and this tokenizer has no start token; give some text.")
    return [int(i) for i in ids]


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text that a chat template wrote: special tokens stand in it. Raises `ConfigError`."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if not ids:
        raise ConfigError("the model's chat template wrote nothing; give some text.")
    return [int(i) for i in ids]


class TextStream:
    """Turns tokens into text as it becomes readable: never half a character, never something taken back later.

    The joined pieces are what the new tokens add to the decoded prompt. Where the prompt ends inside a character, the
    completed character belongs to the new text. Special tokens are left out. Bytes that never make a character show as
    U+FFFD, as many as the tokenizer writes for them.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = self._tail(list(prompt))
        self._shown = self._finished_text()
        self._new: list[int] = []  # tokens since text was last handed out

    def push(self, token: int) -> str:
        """Add one token; return the text that can now be read, perhaps none."""
        self._window.append(token)
        self._new.append(token)
        text = self._decode(self._window)
        ready = text.rstrip(UNFINISHED)
        if len(ready) < len(text):
            new = ready[len(self._shown) :] if ready.startswith(self._shown) else ""
            self._shown += new
            return new
        new = self._added(text)
        self._shown, self._new = text, []
        if len(self._window) >= 3 * CONTEXT:
            self._window = self._tail(self._window)
            self._shown = self._decode(self._window)
        return new

    def special_tokens(self) -> dict[int, str]:
        """Return the texts of the tokens that are left out, by id."""
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        return {int(i): str(token) for i, token in added.items() if token.special}

    def finish(self) -> str:
        """Return what is left when no more tokens come."""
        text = self._decode(self._window)
        new = self._added(text)
        self._shown, self._new = text, []
        return new

    def _added(self, text: str) -> str:
        """What `text` adds to what was shown. Some decoders rewrite a run of bytes when it turns out to be no text;
        what was shown stays, and only the tokens since then are decoded anew."""
        if text.startswith(self._shown):
            return text[len(self._shown) :]
        return self._decode(self._new)

    def _tail(self, tokens: list[int]) -> list[int]:
        """The last tokens, from a place where a character begins."""
        start = max(0, len(tokens) - CONTEXT)
        while start > 0 and self._decode(tokens[start:]).startswith(UNFINISHED):
            start -= 1
        return tokens[start:]

    def _finished_text(self) -> str:
        """The prompt's text without a character that it leaves unfinished."""
        text = self._decode(self._window)
        if not text.endswith(UNFINISHED):
            return text
        if self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][-3:] == self._window[-3:]:
            return text  # the prompt really ends in the character U+FFFD
        shorter = (self._decode(self._window[:-n]) for n in range(1, min(4, len(self._window) + 1)))
        return next((t for t in shorter if not t.endswith(UNFINISHED)), text.rstrip(UNFINISHED))

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def pieces(tokenizer: Any, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[str, ...]:
    """Return what each token adds to the text; a character split over tokens comes with the one that completes it."""
    stream = TextStream(tokenizer, prompt)
    shown = [stream.push(token) for token in tokens]
    if shown:
        shown[-1] += stream.finish()
    return tuple(shown)


def doubt_end(tokenizer: Any, end_tokens: Collection[int]) -> list[str]:
    """Say so where the tokenizer's own end token does not end a text of the model."""
    own = getattr(tokenizer, "eos_token_id", None)
    if own is None or own in end_tokens:
        return []
    ends = ", ".join(str(i) for i in sorted(end_tokens)) or "none"
    return [
        f"the tokenizer's end token {tokenizer.eos_token!r} (id {own}) is not among the model's end tokens ({ends}), "
        "so it does not end a text; name it in end_tokens if it should"
    ]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two tokenizers that may work together do not share."""

    differing: frozenset[int] = frozenset()
    """Ids of reserved tokens that each names differently: the draft must not guess them."""
    note: str | None = None


MAY_DIFFER = 0.01
"""Up to this part of the shared ids may differ, if they are reserved tokens for both."""


def compare_vocabularies(target: Any, draft: Any) -> Agreement:
    """Check that target and draft number the same pieces of text in the same way.

    Compared by content: the sizes of the models' outputs say nothing, they are padded for speed. Ids that only one of
    the tokenizers has are allowed (a few added tokens), and so are few that differ (`MAY_DIFFER`) if each is an added
    token, or written in brackets like one, for both; the note describes them. Raises `PairError` naming the first id
    that means two things.
    """
    if target is draft:
        return Agreement()
    ours = {int(i): token for token, i in target.get_vocab().items()}
    theirs = {int(i): token for token, i in draft.get_vocab().items()}
    shared = ours.keys() & theirs.keys()
    differing = sorted(i for i in shared if ours[i] != theirs[i])
    few = len(differing) <= MAY_DIFFER * len(shared)
    if not shared or not (few and all(_reserved(target, i, ours) and _reserved(draft, i, theirs) for i in differing)):
        first = min(differing, default=0)
        texts = target.decode([first]), draft.decode([first])
        names = texts if texts[0] != texts[1] else (ours.get(first), theirs.get(first))  # parts of characters
        raise PairError(_describe_mismatch(names, first, len(differing), len(shared)))
    said = []
    if differing:
        first = differing[0]
        said.append(
            f"{len(differing)} reserved ids are named differently (id {first} is {ours[first]!r} for the target and "
            f"{theirs[first]!r} for the draft), so they are never guessed"
        )
    only = len(ours) - len(shared), len(theirs) - len(shared)
    if only != (0, 0):
        said.append(f"{only[0]} more only in the target's, {only[1]} only in the draft's")
    agreed = f"tokenizers agree on {len(shared) - len(differing)} ids; "
    return Agreement(frozenset(differing), agreed + "; ".join(said) if said else None)


def _reserved(tokenizer: Any, token: int, names: Mapping[int, str]) -> bool:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return token in added or re.fullmatch(r"<(?!0x..>).+>|\[.+\]", names[token], re.DOTALL) is not None


def _describe_mismatch(names: tuple[str | None, str | None], token: int, differing: int, shared: int) -> str:
    return (
        f"target and draft have different tokenizers: id {token} is {names[0]!r} for the target "
        f"and {names[1]!r} for the draft ({differing} of {shared} shared ids differ). "
        "Choose a draft of the target's own family."
    )
