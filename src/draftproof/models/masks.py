"""What a token of a pass sees of its cache, as transformers' attention takes it: true where a key is visible."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.models.span import Span


def causal(slots: Tensor, seen: int, window: int | None) -> Tensor:
    """Of a chain whose tokens stand in `slots`, their positions: `[tokens, seen]`."""
    keys = torch.arange(seen, device=slots.device)
    visible = keys <= slots[:, None]
    if window is not None:
        visible &= keys > slots[:, None] - window
    return visible


def stacked(spans: Sequence[Span], padded: int, seen: int, window: int | None, device: torch.device) -> Tensor:
    """Of several spans, chains or trees: `[spans, padded, seen]`. Padding sees what the span's last token does."""
    return torch.stack([_of_span(span, padded, seen, window) for span in spans]).to(device)


def _of_span(span: Span, padded: int, seen: int, window: int | None) -> Tensor:
    count = len(span.tokens)
    positions = torch.tensor(span.placed())
    keys = torch.arange(seen)
    visible = (keys < span.start).repeat(count, 1)
    visible[:, span.start : span.end] = _ancestors(span)
    if window is not None:  # it counts positions; the text before stands in slots that are its positions
        keys[span.start : span.end] = positions
        visible &= keys > positions[:, None] - window
    return visible[torch.arange(padded).clamp(max=count - 1)]


def _ancestors(span: Span) -> Tensor:
    """Which tokens of the span each one sees of it: `[tokens, tokens]`."""
    itself = torch.eye(len(span.tokens), dtype=torch.bool)
    if span.parents is None:
        return itself.cumsum(1).T.bool()
    for i, parent in enumerate(span.parents):
        if parent >= 0:
            itself[i] |= itself[parent]
    return itself
