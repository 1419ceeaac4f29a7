"""Stop strings in a text that grows, where special tokens are part of what was written but not of what is shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class StopStrings:
    """Finds the first of `strings`, in the text as it is shown.

    Special tokens (`special`: their texts) are not shown. A string that names one is looked for with special tokens
    kept, too: `"<|im_end|>"` ends the text where that token was written, `"a<|im_end|>b"` where it stood between the
    two. A special token that no string names separates nothing: what is shown never holds a stop string.
    """

    def __init__(self, strings: Sequence[str], special: Collection[str] = ()) -> None:
        self._strings = tuple(strings)
        self._naming = tuple(s for s in strings if any(text and text in s for text in special))
        self._shown = ""
        self._kept = ""  # the same with special tokens
        self._places: list[int] = []  # for each character of it, how many were shown before it

    def add(self, new: str) -> tuple[int, str] | None:
        """Add text; return where the earliest string begins that is complete now, and which it is."""
        if not (new and self._strings):
            return None
        searched, before = len(self._shown), len(self._kept)
        self._shown += new
        found = [(at, s) for s in self._strings if (at := self._shown.find(s, max(0, searched - len(s) + 1))) >= 0]
        if self._naming:
            self._kept += new
            self._places += range(searched, len(self._shown))
            found += self._find_kept(before)
        return min(found, default=None)

    def add_special(self, text: str) -> tuple[int, str] | None:
        """As `add`, for a token that is not shown."""
        if not (text and self._naming):
            return None
        before = len(self._kept)
        self._kept += text
        self._places += [len(self._shown)] * len(text)
        return min(self._find_kept(before), default=None)

    def held_back(self) -> int:
        """Return how many of the last characters shown may still turn out to begin a string."""
        start = len(self._shown) - _overlap(self._shown, self._strings)
        if length := _overlap(self._kept, self._naming):
            start = min(start, self._places[-length])
        return len(self._shown) - start

    def _find_kept(self, searched: int) -> list[tuple[int, str]]:
        found = ((self._kept.find(s, max(0, searched - len(s) + 1)), s) for s in self._naming)
        return [(self._places[at], s) for at, s in found if at >= 0]


def _overlap(text: str, strings: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that begins one of `strings` without being all of it."""
    longest = max((len(s) for s in strings), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(len(s) > length and s.startswith(tail) for s in strings):
            return length
    return 0
