"""Does one pass really answer every prefix? The prediction after each, and the nesting claim checked."""

from __future__ import annotations

import torch

from draftproof.errors import ConfigError, EngineError
from draftproof.models.given import refuse_given_up
from draftproof.models.load import Loaded
from draftproof.models.tokens import encode
from draftproof.models.windows import window_of
from draftproof.results import OnePass, OnePassRow


@torch.inference_mode()
def one_pass(loaded: Loaded, text: str, cut: int) -> OnePass:
    """Predict the token after every prefix of `text` from one pass, and again from a pass over a shortened text.

    `cut` tokens are taken off the end for the second pass: 1 up to all but one. Attention looks backwards only, so what
    is left must be answered as before; the largest difference of a logit says how exactly. Raises `ConfigError`.
    """
    refuse_given_up(loaded.model)
    ids = encode(loaded.tokenizer, text)
    window = window_of(loaded.model.config.get_text_config(decoder=True))
    if window is not None and len(ids) > window:
        raise ConfigError(f"the text has {len(ids)} tokens and the model's window holds {window}; shorten it.")
    if len(ids) < 2:
        raise ConfigError(f"the text has {len(ids)} tokens; give at least two.")
    if not 1 <= cut < len(ids):
        raise ConfigError(f"cut is {cut}; it must lie between 1 and {len(ids) - 1} for this text of {len(ids)} tokens.")
    whole, short = _logits(loaded, ids), _logits(loaded, ids[:-cut])
    if not whole.isfinite().all():
        raise EngineError(f"the logits in {loaded.placement.dtype} are not all numbers; try dtype='float32'.")
    difference = (whole[: len(short)] - short).abs()
    rows = []
    for i, row in enumerate(whole):
        predicted = int(row.argmax())
        again = int(short[i].argmax()) if i < len(short) else None
        rows.append(
            OnePassRow(
                token=ids[i],
                prefix=loaded.tokenizer.decode(ids[: i + 1]),
                predicted=predicted,
                predicted_text=loaded.tokenizer.decode([predicted]),
                shortened=again,
                shortened_text=None if again is None else loaded.tokenizer.decode([again]),
                largest_difference=float(difference[i].max()) if i < len(short) else None,
            )
        )
    return OnePass(
        dtype=loaded.placement.dtype,
        rows=tuple(rows),
        largest_difference=float(difference.max()),
        same_tokens=all(r.shortened in (None, r.predicted) for r in rows),
    )


def _logits(loaded: Loaded, ids: list[int]) -> torch.Tensor:
    inputs = torch.tensor([ids], device=loaded.model.device)
    logits: torch.Tensor = loaded.model(input_ids=inputs, use_cache=False).logits[0]
    return logits.float()
