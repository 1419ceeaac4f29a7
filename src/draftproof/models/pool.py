"""Sessions of models for many requests: what texts have in common is read once, and memory has a limit."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.models.room import room_for
from draftproof.models.session import ModelSession, common_prefix


class Memory:
    """The bytes that the caches of some pools may have together; `limit` None is as many as there are."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._pools: list[Pool] = []
        self._turn = 0

    @property
    def used(self) -> int:
        """Bytes of all caches, those kept for later texts too."""
        return sum(pool.used for pool in self._pools)

    def allows(self, more: int) -> bool:
        """Return whether so many bytes more are allowed, once texts that have ended are forgotten, the oldest first."""
        while self.limit is not None and self.used + more > self.limit:
            oldest = min((pool for pool in self._pools if pool.idle), key=lambda pool: pool.idle[0][0], default=None)
            if oldest is None:
                return False
            oldest.idle.pop(0)
        return True

    def tick(self) -> int:
        """Return the number of the event: later ones have larger numbers."""
        self._turn += 1
        return self._turn


class Pool:
    """Sessions of one model, one for each request, with caches of their own.

    A text that has ended is kept, as long as `memory` allows, for texts that begin as it does; where passes give a row
    the same bits however it was read, they go on from it, or from a copy of what they share.
    """

    def __init__(self, session: ModelSession, memory: Memory) -> None:
        self.like = session
        self._memory = memory
        self.taken: list[ModelSession] = []
        self.idle: list[tuple[int, ModelSession]] = []
        """Sessions of texts that have ended, with the number of that event, the oldest first."""
        memory._pools.append(self)

    @property
    def used(self) -> int:
        """Bytes of its caches."""
        return sum(session.cache.bytes for session in self._all())

    def _all(self) -> list[ModelSession]:
        return [*self.taken, *(session for _, session in self.idle)]

    def take(self, prompt: Sequence[int]) -> ModelSession:
        """Return a session for a text that begins with `prompt`; what it holds of it already is in its `held`."""
        shared = {id(one): common_prefix(one.held, prompt) for one in self._all()} if self._steady else {}
        donor = max(self._all(), key=lambda one: (shared.get(id(one), 0), one not in self.taken), default=None)
        count = 0 if donor is None else shared.get(id(donor), 0)
        if donor is None or count == 0:
            session = self.like.another()
        elif donor not in self.taken and 2 * count >= len(donor.held):
            session = donor
            self.idle = [(turn, one) for turn, one in self.idle if one is not donor]
        else:
            session = donor.branch(count)
        self.taken.append(session)
        return session

    @property
    def _steady(self) -> bool:
        return self.like.runner.steady

    def give(self, session: ModelSession, *, keep: bool = True) -> None:
        """Take back a session whose text has ended."""
        self.taken = [one for one in self.taken if one is not session]
        if keep and self._steady and session.held:
            self.idle.append((self._memory.tick(), session))

    def growth(self, session: ModelSession | None, slots: int) -> int:
        """Return the bytes that a text of so many tokens needs beyond what its session has; of a new one if None.

        0 where nothing is known yet of what a token takes.
        """
        capacity = 0 if session is None else session.cache.capacity
        per_slot = max(one.cache.bytes_per_slot for one in (self.like, *self._all()))
        return max(0, room_for(slots) - capacity) * per_slot
