"""What a `Speculator` opens: models from whatever names them, and the numerics of their passes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from draftproof.clock import Clock
from draftproof.errors import ConfigError
from draftproof.models.given import unwrap
from draftproof.models.load import Loaded, compiled, end_tokens_of, load, notes_of
from draftproof.models.quantise import is_quantised
from draftproof.models.runner import TransformersRunner
from draftproof.models.session import ModelSession
from draftproof.models.span import Span
from draftproof.models.tokens import compare_vocabularies
from draftproof.models.windows import masks_by_length, window_of
from draftproof.propose import PROPOSERS
from draftproof.propose.base import Making, Proposer, Terms
from draftproof.records import Numerics, Placement


def open_model(
    source: str | Path | PreTrainedModel | Loaded,
    tokenizer: Any,
    device: str,
    dtype: str,
    revision: str | None,
    because: str = "asked for",
    compile: str = "auto",
    keep_weights: bool = False,
    weights: str | None = None,
    adapter: str | Path | None = None,
    trust_remote_code: bool = False,
    beside: Loaded | None = None,
) -> Loaded:
    """Load `source` if it is a name, and take it as it is if it is a model; `beside` is as in `load`."""
    if isinstance(source, str | Path):
        loaded = load(
            source,
            device=device,
            dtype=dtype,
            revision=revision,
            because=because,
            compile=compile,
            keep_weights=keep_weights,
            weights=weights,
            adapter=adapter,
            trust_remote_code=trust_remote_code,
            beside=beside,
        )
        return loaded if tokenizer is None else replace(loaded, tokenizer=tokenizer, tokenizer_from=None)
    if (device, dtype, revision, weights, adapter) != ("auto", "auto", None, None, None):
        raise ConfigError(
            "device, dtype, revision, weights and adapter are for models that are loaded here; this one is loaded "
            "already."
        )
    if isinstance(source, Loaded):
        wanted = compile == "on" and source.decoder is None and not source.graphs
        return compiled(source, "on", keep_weights=True) if wanted else source
    model, told = unwrap(source)
    placement = Placement(str(model.device), str(model.dtype).removeprefix("torch."), "as the model was given")
    name = model.config.name_or_path or "model"
    given = Loaded(name, model, tokenizer, placement, end_tokens_of(model), (*told, *notes_of(model)))
    # a second copy of somebody's weights, which they may go on changing, is made only when asked for
    return compiled(given, "on" if compile == "on" else "off", keep_weights=True)


def making_of(draft: object) -> Making | None:
    """Return what makes a proposer for each request, or None where `draft` is a model, or names one, or is nothing."""
    if isinstance(draft, str):
        return PROPOSERS.get(draft)
    if draft is None or isinstance(draft, Path | PreTrainedModel | Loaded | torch.nn.Module):
        return None
    if hasattr(draft, "propose") and not isinstance(draft, type):
        return _OneForAll(cast("Proposer", draft))
    return cast("Making", draft) if callable(draft) else None


class _OneForAll:
    """A proposer that is one object: it guesses for one request at a time."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self.__name__ = type(proposer).__name__

    def __call__(self, terms: Terms) -> Proposer:
        return self._proposer


def name_of(making: Making) -> str:
    """Return what a proposer is called."""
    known = [name for name, one in PROPOSERS.items() if one is making]
    return known[0] if known else getattr(making, "__name__", type(making).__name__)


def settle_numerics(wanted: str, target: Loaded, k: int, *, alone: bool) -> Numerics:
    """Decide how passes are shaped, by rule, so that a text never hangs on a clock.

    Compiled passes are fixed as they are. Elsewhere 16 bits, and quantised weights, are fixed unless `fast` is asked
    for, and 32 bits are not unless `fixed` is. `k` is the most guesses of a round, and `alone` says that nobody
    guesses. Raises `ConfigError` where `fixed` is asked for and cannot be had.
    """
    if target.decoder is not None:
        return Numerics("fixed", None, "at no cost: compiled passes compute a row alike, whatever else a pass holds")
    if wanted == "fast" or (wanted == "auto" and alone):
        return Numerics("fast", None, "asked for" if wanted == "fast" else "there is nothing to agree with")
    model = target.model
    if wanted == "auto" and not rounds_coarsely(target):
        return Numerics("fast", None, f"{_name(model.dtype)} rounds in the seventh digit")
    if why := _why_not_fixed(model, k):
        if wanted == "fixed":
            raise ConfigError(f"numerics cannot be fixed: {why}; {_instead(model, k)}choose numerics='fast'.")
        return Numerics("fast", None, f"{why}; so near ties may fall otherwise with guesses than without")
    shape = _shape(model, k)
    asked = "asked for" if wanted == "fixed" else f"the rule for {_rounding(model)}"
    price = f"every pass takes {shape} tokens, {_padding_cost(model, shape):.2f} × the time of one over 1 here"
    return Numerics("fixed", shape, f"{asked}: {price}")


def rounds_coarsely(target: Loaded) -> bool:
    """Whether near ties are so frequent that numerics are fixed unless somebody asks for fast ones."""
    return target.model.dtype.itemsize < 4 or is_quantised(target.model)


def _shape(model: PreTrainedModel, k: int) -> int:
    """Tokens of a padded pass: no request of at most `k` guesses needs more, nor does a window shorter than that."""
    return min(k + 1, window_of(model.config.get_text_config(decoder=True)) or k + 1)


def _rounding(model: PreTrainedModel) -> str:
    return "quantised weights" if is_quantised(model) else f"{_name(model.dtype)}, which rounds in the third digit"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _instead(model: PreTrainedModel, k: int) -> str:
    """Name the nearest k for which numerics can be fixed: fewer guesses are not always easier."""
    others = sorted((other for other in range(1, k + 4) if other != k), key=lambda other: (abs(other - k), other))
    found = next((other for other in others if _why_not_fixed(model, other) is None), None)
    return "" if found is None else f"with k={found} they can, or "


@torch.inference_mode()
def _why_not_fixed(model: PreTrainedModel, k: int) -> str | None:
    """Say why a row of a padded pass has not the bits that it has beside other rows, or return None if it has them."""
    family = repr(model.config.model_type)
    if any("experts" in key for key in model.config.get_text_config(decoder=True).to_dict()):
        return f"rows of a pass depend on each other in {family}, where tokens share experts"
    if masks_by_length(model):
        return f"{family} finds its place by the cache's length, so its passes cannot be padded"
    shape = _shape(model, k)
    runner = TransformersRunner(model, shape)
    tokens = [(11 + 7 * i) % runner.width for i in range(shape)]
    cache = runner.cache()
    cache.reserve(shape)
    together = runner.run([Span(cache, tokens, 0, shape)])[0].logits
    if all(torch.equal(runner.run([Span(cache, [t], i)])[0].logits[0], together[i]) for i, t in enumerate(tokens)):
        return None
    return f"rows of a pass over {shape} tokens depend on each other here, for {family} in {_name(model.dtype)}"


@torch.inference_mode()
def _padding_cost(model: PreTrainedModel, shape: int, repeats: int = 2) -> float:
    """Seconds of a padded pass over one token / seconds of a bare one, in turns; told, and nothing hangs on it."""
    runners = [TransformersRunner(model), TransformersRunner(model, shape)]
    spans = [Span(runner.cache(), [0], 0) for runner in runners]
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats + 1):
        for runner, span, times in zip(runners, spans, seconds, strict=True):
            started = time.perf_counter()
            float(runner.run([span])[0].logits[0, 0])  # the value, so that an accelerator has to be done
            times.append(time.perf_counter() - started)
    bare, padded = (median(times[1:]) for times in seconds)
    return padded / bare


def warm_up(
    session: ModelSession, widths: Sequence[int], prompt_tokens: int, repeats: int, clock: Clock
) -> dict[int, float]:
    """Run passes over so many tokens behind a prompt, and forget them; return the seconds of the last of each."""
    seconds = {}
    for width in (*widths,) * repeats:
        text = [0] * (prompt_tokens + width)
        if session.window is not None:
            text = text[: session.window]
        session.forget()
        if len(text) > width:
            session.read(text[:-width])
        started = clock.now()
        session.read(text, last=min(width, len(text)))
        seconds[width] = clock.now() - started
    session.forget()
    return seconds


def check_pair(target: Loaded, draft: Loaded, widths: tuple[int, int]) -> tuple[frozenset[int], list[str]]:
    """Return the ids that must not be guessed, and what is to be said of a pair whose outputs have these sizes.

    Raises `PairError` if it does not fit.
    """
    never: frozenset[int] = frozenset()
    notes = []
    if target.tokenizer is not None and draft.tokenizer is not None:
        agreement = compare_vocabularies(target.tokenizer, draft.tokenizer)
        never = agreement.differing
        notes += [agreement.note] if agreement.note else []
    if widths[0] != widths[1]:
        notes.append(
            f"output sizes {widths[0]} (target) and {widths[1]} (draft) differ: rows padded for speed; the tokenizers "
            "decide"
        )
    return never, notes
