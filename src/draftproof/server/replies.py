"""What clients are sent: OpenAI's two forms of an answer, whole and in pieces."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.records import Generation, Logprob
from draftproof.server.asking import Chat, Completion
from draftproof.server.texts import Ended, Piece, Wanted

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


@dataclass(slots=True)
class Form:
    """One of the two interfaces, for one request."""

    asked: Completion | Chat
    model: str
    tokenizer: Any
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def chat(self) -> bool:
        """Whether it is a chat's."""
        return isinstance(self.asked, Chat)

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.chat else "cmpl"
        return {"id": f"{prefix}-{self.id}", "object": kind, "created": self.created, "model": self.model}

    # ---- whole answers ----

    def answer(self, wanted: Sequence[Wanted], ended: Sequence[Ended]) -> dict[str, Any]:
        """Return the whole answer."""
        kind = "chat.completion" if self.chat else "text_completion"
        choices = [self._choice(i, one, end) for i, (one, end) in enumerate(zip(wanted, ended, strict=True))]
        made = [end.generation for end in ended if end.generation is not None]
        found = {**self._head(kind), "choices": choices, "usage": usage(wanted, made)}
        if self.asked.include_metrics:
            found["metrics"] = metrics(made)
        return found

    def _choice(self, index: int, wanted: Wanted, ended: Ended) -> dict[str, Any]:
        made = ended.generation
        text = "" if made is None else made.text
        reason = "length" if made is None else reason_of(made)
        if isinstance(self.asked, Chat):
            message, reason = self._message(text, reason)
            logprobs = (
                None
                if made is None or not self.asked.logprobs
                else {"content": self._chat_logprobs(made), "refusal": None}
            )
            return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}
        before = self.tokenizer.decode(list(wanted.ids), skip_special_tokens=False) if self.asked.echo else ""
        logprobs = None
        if self.asked.logprobs is not None:
            scored = list(ended.prompt_logprobs) if self.asked.echo else []
            tokens = list(wanted.ids) if self.asked.echo else []
            for done in () if made is None else made.rounds:
                scored += done.logprobs or ()
                tokens += done.tokens
            logprobs = self._legacy(tokens, scored, 0)
        return {"index": index, "text": before + text, "logprobs": logprobs, "finish_reason": reason}

    def _message(self, text: str, reason: str | None) -> tuple[dict[str, Any], str | None]:
        assert isinstance(self.asked, Chat)
        calls, rest = tool_calls(text, self.asked)
        message: dict[str, Any] = {"role": "assistant", "content": rest or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = calls
            reason = "tool_calls" if reason == "stop" else reason
        return message, reason

    # ---- pieces ----

    def first(self, index: int) -> dict[str, Any] | None:
        """Return the chunk that begins a chat's text."""
        if not self.chat:
            return None
        return self._chunk(index, {"role": "assistant", "content": ""})

    def piece(self, index: int, piece: Piece, at: int) -> dict[str, Any] | None:
        """Return the chunk of a piece that begins behind `at` characters of text; None where it says nothing."""
        logprobs = None
        done = piece.round
        if done is not None and done.logprobs:
            if isinstance(self.asked, Chat):
                logprobs = {"content": [self._chat_logprob(one) for one in done.logprobs], "refusal": None}
            else:
                logprobs = self._legacy(done.tokens, done.logprobs, at)
        rounds = None
        options = self.asked.stream_options
        if done is not None and options is not None and options.include_rounds:
            decode = self.tokenizer.decode
            rounds = {
                "asked": done.asked,
                "proposed": [decode([t]) for t in done.proposed],
                "accepted": done.accepted,
                "tokens": [decode([t]) for t in done.tokens],
            }
        if not piece.text and logprobs is None and rounds is None:
            return None
        made = self._chunk(index, {"content": piece.text} if self.chat else piece.text, logprobs=logprobs)
        if rounds is not None:
            made["draftproof"] = rounds
        return made

    def last(self, index: int, made: Generation) -> list[dict[str, Any]]:
        """Return the chunks that end a text: its calls of tools, if any, and why it ended."""
        reason = reason_of(made)
        chunks = []
        if isinstance(self.asked, Chat) and self.asked.tools:
            message, reason = self._message(made.text, reason)
            if calls := message.get("tool_calls"):
                delta = {"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}
                chunks.append(self._chunk(index, delta))
            elif message["content"]:
                chunks.append(self._chunk(index, {"content": message["content"]}))
        chunks.append(self._chunk(index, {} if self.chat else "", reason=reason))
        return chunks

    def usage_chunk(self, wanted: Sequence[Wanted], made: Sequence[Generation]) -> dict[str, Any]:
        """Return the chunk without choices that says what it took."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        found = {**self._head(kind), "choices": [], "usage": usage(wanted, made)}
        if self.asked.include_metrics:
            found["metrics"] = metrics(made)
        return found

    def _chunk(self, index: int, content: Any, *, reason: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        kind, name = ("chat.completion.chunk", "delta") if self.chat else ("text_completion", "text")
        choice = {"index": index, name: content, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head(kind), "choices": [choice]}

    # ---- log-probabilities ----

    def _chat_logprobs(self, made: Generation) -> list[dict[str, Any]]:
        return [self._chat_logprob(one) for done in made.rounds for one in done.logprobs or ()]

    def _chat_logprob(self, one: Logprob) -> dict[str, Any]:
        return {**self._token(one.token, one.logprob), "top_logprobs": [self._token(t, value) for t, value in one.top]}

    def _token(self, token: int, value: float | None) -> dict[str, Any]:
        text = self.tokenizer.decode([token])
        return {"token": text, "logprob": _finite(value), "bytes": list(text.encode())}

    def _legacy(self, tokens: Sequence[int], scored: Sequence[Logprob | None], at: int) -> dict[str, Any]:
        """The form of completions: as many entries as tokens; the first of a prompt has none."""
        texts = [self.tokenizer.decode([token]) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(at)
            at += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [None if one is None else _finite(one.logprob) for one in scored],
            "top_logprobs": [
                None if one is None else {self.tokenizer.decode([t]): _finite(value) for t, value in one.top}
                for one in scored
            ],
            "text_offset": offsets,
        }


def _finite(value: float | None) -> float:
    """JSON knows no infinity; OpenAI's interface writes the least likely as -9999."""
    return -9999.0 if value is None or value < -9999 else value


def reason_of(made: Generation) -> str | None:
    """Return why a text ended, as OpenAI's interface says it."""
    return "stop" if made.finish_reason == "cancelled" else made.finish_reason


def tool_calls(text: str, asked: Chat) -> tuple[list[dict[str, Any]], str]:
    """Return the calls of tools that a text holds, and the rest of it."""
    if not asked.tools or asked.tool_choice == "none":
        return [], text
    found = [text] if asked.forced else _CALL.findall(text)
    calls = []
    for one in found:
        try:
            call = json.loads(one)
            name, arguments = call["name"], call.get("arguments") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            return [], text  # not a call after all, or one that a limit has cut
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        calls.append({"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function})
    return calls, "" if asked.forced else _CALL.sub("", text).strip() if calls else text


def usage(wanted: Sequence[Wanted], made: Sequence[Generation]) -> dict[str, Any]:
    """Return tokens read and written; a prompt with several texts counts once."""
    prompts = sum(len(one.ids) for one in wanted if one.sample == 0)
    written = sum(len(one.tokens) for one in made)
    reused = sum(one.prompt_tokens_reused for one in made if one.sample == 0)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": written,
        "total_tokens": prompts + written,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def metrics(made: Sequence[Generation]) -> dict[str, Any]:
    """Return what speculation did, under vLLM's names."""
    rounds = [done for one in made for done in one.rounds if done.proposed]
    deepest = max((len(done.proposed) for done in rounds), default=0)
    proposed, accepted = sum(len(done.proposed) for done in rounds), sum(done.accepted for done in rounds)
    return {
        "speculative_decoding": {
            "num_drafts": len(rounds),
            "num_draft_tokens": proposed,
            "num_accepted_tokens": accepted,
            "num_accepted_tokens_per_pos": [sum(done.accepted > i for done in rounds) for i in range(deepest)],
            "acceptance_rate": accepted / proposed if proposed else None,
        }
    }
