"""A text while it is written: an iterator of rounds, for a `for` loop or for `async for`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Self

from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.records import Generation, Round


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one round added to a streamed text."""

    text: str
    """Newly readable text; it is final, and may be empty."""
    round: Round

    def __str__(self) -> str:
        return self.text


class Stream(Iterator[Chunk], AsyncIterator[Chunk]):
    """A text as it is written, round by round; `generation` is its record, at the end or (`cancelled`) before.

    Iterate it with `for`, `next` or `async for`: after a `break` it goes on where it stopped. With `async for` each
    round is computed in a thread, so that the event loop goes on; a reader that is cancelled meanwhile loses nothing,
    since the round is handed to the next one who asks. As a context manager (`with` or `async with`) it ends the text
    where it is left. Rounds never overlap, whoever asks for them.
    """

    def __init__(self, decoding: Decoding, stop: Stop) -> None:
        self._decoding = decoding
        self._stop = stop
        self._unread: deque[Chunk] = deque()
        self._lock = RLock()

    def __next__(self) -> Chunk:
        with self._lock:
            if not self._fill():
                raise StopIteration
            return self._unread.popleft()

    async def __anext__(self) -> Chunk:
        while await asyncio.to_thread(self._fill):
            with suppress(IndexError):  # somebody else has read it meanwhile
                return self._unread.popleft()
        raise StopAsyncIteration

    def _fill(self) -> bool:
        """Have a round ready to be handed out; return whether there is one."""
        with self._lock:
            if not self._unread and (done := next(self._decoding, None)) is not None:
                self._unread.append(Chunk(self._stop.readable(), done))
            return bool(self._unread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def generation(self) -> Generation:
        """The record so far."""
        return self._decoding.generation()

    def cancel(self) -> Generation:
        """End the text here, behind a round that is being computed, and return its record."""
        with self._lock:
            return self._decoding.cancel()

    def close(self) -> None:
        """End the text here; one that has ended stays as it is."""
        self.cancel()

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop while a round is computed."""
        await asyncio.to_thread(self.close)

    def readable(self) -> str:
        """Text that became final and was not handed out yet: after `cancel`, what was held back."""
        with self._lock:
            unread = "".join(chunk.text for chunk in self._unread)
            self._unread.clear()
            return unread + self._stop.readable()

    def __repr__(self) -> str:
        made = self.generation
        how = "running" if self._stop.reason is None else made.finish_reason
        return f"<Stream: {made.counts.tokens} tokens in {made.counts.rounds} rounds, {how}>"


def finish(stream: Stream) -> Generation:
    """Let a text be written to its end, and return its record."""
    for _ in stream:
        pass
    return stream.generation
