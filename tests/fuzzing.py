"""Random requests, written plainly and speculatively: whatever the options, both have to be the same.

`CASES` draws requests, `differences` writes one both ways and says in what they differ. A failing one is a
`Case`, whose repr is all that it takes to write it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from draftproof import EngineError, Options, Speculator
from draftproof.engines.request import sampler_of
from draftproof.models.load import compiled
from draftproof.testing import byte_tokenizer, noisy, random_model

WIDTH, END = 300, 256
TOKENIZER = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
REGEX = r"[a-f]{1,9}(-\d{1,8})?"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request, and the pair that writes it."""

    model: int
    draft: float
    """Noise on the draft's output layer: 0 is the target itself."""
    k: int | str
    prompt: tuple[int, ...]
    options: dict[str, Any]
    end_at: tuple[int, ...] = ()
    """Places of the plain text whose tokens are made end tokens."""
    stop_at: tuple[tuple[int, int], ...] = ()
    """(place, length) of pieces of the plain text that are made stop strings."""
    ban_at: tuple[tuple[int, int], ...] = ()
    """(place, length) of runs of the plain text's tokens that are made bad words."""
    sample: int = 0
    processor: str | None = None


@cache
def speculator(model: int, draft: float) -> Speculator:
    """A pair with compiled passes, whose rows have the same bits in passes of every width."""
    from draftproof.engines.opening import open_model

    target = random_model(seed=model, initializer_range=0.3)
    loaded = [
        compiled(open_model(m, TOKENIZER, "auto", "auto", None, compile="off"), "on", keep_weights=True)
        for m in (target, noisy(target, draft, seed=model + 10))
    ]
    return Speculator(loaded[0], loaded[1], k=4)


class Restless:
    """A processor with a state: pushes another token at every call, and forbids the one before it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        scores[0, (self.calls * 37) % WIDTH] += 4
        scores[0, input_ids[0, -1]] = -float("inf")
        return scores


def after_marker(input_ids, scores):
    """A constraint that switches on in mid-text: behind an id divisible by 5 only even ids."""
    if int(input_ids[0, -1]) % 5 == 0:
        scores = scores.clone()
        scores[:, 1::2] = -float("inf")
    return scores


PROCESSORS = {"restless": Restless, "after marker": lambda: after_marker}


def write(case: Case, options: Options, k: int | str):
    """Return the generation and the text as it was streamed."""
    processors = [PROCESSORS[case.processor]()] if case.processor else []
    pair = speculator(case.model, case.draft)
    stream = pair.stream(case.prompt, options, k=k, sample=case.sample, processors=processors)
    text = "".join(chunk.text for chunk in stream)
    return stream.generation, text


def settled(case: Case) -> Options:
    """The case's options, with the end tokens and stop strings that its plain text gives."""
    options = Options(**case.options)
    if not (case.end_at or case.stop_at or case.ban_at):
        return options
    plain, _ = write(case, options, 0)
    ends = [plain.tokens[i] for i in case.end_at if i < len(plain.tokens)]
    pieces = [_piece(plain, at, length) for at, length in case.stop_at]
    words = [plain.tokens[at : at + length] for at, length in case.ban_at]
    changes: dict[str, Any] = {"stop": tuple(p for p in pieces if p)}
    if options.regex is None:
        changes["bad_words"] = tuple(word for word in words if word and word[0] not in ends)
    if ends or options.regex is None:
        changes["end_tokens"] = (*(options.end_tokens or ()), *ends)
    return Options.of(options, **changes)


def _piece(plain, at: int, length: int) -> str:
    """A piece of the text, or of what was written with special tokens kept."""
    if at % 2:
        return plain.text[at : at + length]
    kept = TOKENIZER.decode(plain.tokens[at : at + length])
    return "" if "\ufffd" in kept else kept


def differences(case: Case) -> list[str]:
    """Return in what the two ways differ; nothing, if all is well."""
    options = settled(case)
    found: list[str] = []
    try:
        made, streamed = write(case, options, case.k)
    except EngineError as error:  # options may leave no token, and then they do so without guesses too
        try:
            plain, _ = write(case, options, 0)
        except EngineError as other:
            return [] if str(error) == str(other) else [f"error {error}, and plainly {other}"]
        return [f"error {error}, and plainly {plain.tokens}"]
    if options.same_text:
        plain, _ = write(case, options, 0)
        for name in ("tokens", "text", "finish_reason", "stop", "logprobs", "seed"):
            if getattr(made, name) != getattr(plain, name):
                found.append(f"{name}: {getattr(made, name)!r} and plainly {getattr(plain, name)!r}")
    else:
        found += _impossible(case, options, made)
        if case.k != "auto" and write(case, options, case.k)[0].tokens != made.tokens:  # which goes by the clock
            found.append("the same seed wrote another text")
    if streamed != made.text:
        found.append(f"streamed {streamed!r}, recorded {made.text!r}")
    counts = made.counts
    if counts.tokens != counts.accepted + counts.rounds - counts.cut or counts.tokens != len(made.tokens):
        found.append(f"the ledger does not add up: {counts}")
    if len(made.tokens) > options.max_new_tokens:
        found.append(f"{len(made.tokens)} tokens, {options.max_new_tokens} allowed")
    if case.draft == 0 and counts.discarded:
        found.append(f"a self-draft was wrong: {counts.accepted} of {counts.proposed}")
    return found


def _impossible(case: Case, options: Options, made) -> list[str]:
    """Tokens that the target cannot draw where they stand."""
    pair = speculator(case.model, case.draft)
    custom = [PROCESSORS[case.processor]()] if case.processor else []
    sampler = sampler_of(pair.target, WIDTH, options, len(case.prompt), case.sample, custom)
    session = pair.target.session()
    session.forget()
    session.begin((), 256)
    text = list(case.prompt)
    for i, token in enumerate(made.tokens):
        if not sampler.law(session.read(text)[-1], text)[token] > 0:
            return [f"token {i}, {token}, has no probability there"]
        text.append(token)
    return []


IDS = st.integers(0, WIDTH - 1)
_SOMETIMES = {
    "top_k": st.sampled_from([1, 2, 5, 40]),
    "top_p": st.sampled_from([0.1, 0.5, 0.9]),
    "min_p": st.sampled_from([0.02, 0.3]),
    "repetition_penalty": st.sampled_from([0.7, 1.1, 1.6]),
    "presence_penalty": st.sampled_from([-1.0, 0.6, 2.0]),
    "frequency_penalty": st.sampled_from([-0.5, 0.4, 2.0]),
    "logit_bias": st.dictionaries(IDS, st.sampled_from([-100.0, -3.0, 2.0, 8.0]), min_size=1, max_size=3).map(
        lambda found: tuple(found.items())
    ),
    "min_new_tokens": st.integers(1, 12),
    "top_logprobs": st.integers(1, 5),
    "verify": st.sampled_from(["ratio", "block"]),
}


@st.composite
def _options(draw) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(sorted(_SOMETIMES)), max_size=4, unique=True))
    options = {name: draw(_SOMETIMES[name]) for name in chosen}
    options["max_new_tokens"] = draw(st.integers(12, 40) if "min_new_tokens" in options else st.integers(1, 40))
    options["temperature"] = draw(st.sampled_from([0.0, 0.0, 0.4, 1.0, 1.5]))
    options["seed"] = draw(st.integers(0, 5))
    options["logprobs"] = "top_logprobs" in options or draw(st.booleans())
    if draw(st.integers(0, 7)) == 0:
        options |= {"regex": REGEX, "end_tokens": (END,)}
        options.pop("min_new_tokens", None)
    return options


@st.composite
def _cases(draw) -> Case:
    options = draw(_options())
    place = st.integers(0, 30)
    return Case(
        model=draw(st.integers(0, 1)),
        draft=draw(st.sampled_from([0.0, 0.1, 0.3])),
        k=draw(st.one_of(st.integers(1, 8), st.sampled_from(["auto", "threshold"]))),
        prompt=tuple(draw(st.lists(IDS, min_size=1, max_size=12))),
        options=options,
        end_at=tuple(draw(st.lists(place, max_size=2))),
        stop_at=tuple(draw(st.lists(st.tuples(place, st.integers(1, 4)), max_size=2))),
        ban_at=tuple(draw(st.lists(st.tuples(place, st.integers(1, 3)), max_size=3))),
        sample=draw(st.sampled_from([0, 0, 1, 3])),
        processor=None if "regex" in options else draw(st.sampled_from([None, None, *PROCESSORS])),
    )


CASES = _cases()
