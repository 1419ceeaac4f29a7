"""A few tokens through a model: whether two forms of one model give the same logits."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from draftproof.models.session import ROUNDING

TOKENS = 6


@torch.inference_mode()
def logits_of(model: PreTrainedModel) -> torch.Tensor:
    """Return the logits of one plain pass over a few tokens, `[tokens, width]`."""
    embedding = model.get_input_embeddings().weight
    ids = [(11 + 7 * i) % embedding.shape[0] for i in range(TOKENS)]
    logits: torch.Tensor = model(input_ids=torch.tensor([ids], device=embedding.device), use_cache=False).logits[0]
    return logits.float()


def same_logits(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether logits are the same but for what the number format rounds away."""
    scale = wanted.abs().max().clamp(min=1e-6)
    return bool((found - wanted).abs().max() <= ROUNDING.get(dtype, 0.1) * scale)
