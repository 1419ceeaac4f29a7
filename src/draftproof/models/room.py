"""How much room a text of some length is given in a cache."""

from __future__ import annotations

BLOCK = 256
"""Slots come by multiples of this many."""


def room_for(tokens: int) -> int:
    """Return the slots for a text that has grown to `tokens`: a quarter more at most, or 256.

    So memory follows the text, whatever length it may reach, and growing copies what is held a few times only.
    """
    step = max(BLOCK, 1 << max(0, tokens.bit_length() - 3))
    return -(-tokens // step) * step


def far_too_much(slots: int, tokens: int) -> bool:
    """Whether so many slots are worth giving back for a text of `tokens`."""
    return slots > 4 * room_for(max(tokens, BLOCK))
