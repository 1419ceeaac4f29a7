"""What a model has to show at load: that it reads a text in pieces, with a step back between them, as in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from draftproof.errors import CacheError, ConfigError, first_line
from draftproof.models.given import refuse_given_up
from draftproof.models.quantise import is_quantised
from draftproof.models.session import ModelSession

SMALL_WINDOW = 64
"""The check at load crosses a sliding window of at most this many tokens; larger ones take too long for a check."""


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
