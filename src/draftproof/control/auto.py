"""The controller with a floor: as many guesses as pay, none where none do, and hardly slower than plain decoding."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from draftproof.records import Round

WINDOW = 24
"""Rounds of a kind that its costs are known from."""
FORGET = 0.95
"""What a verdict still counts for behind the next one."""
PRIOR, WEIGHT = 0.75, 1.5
"""The agreement supposed of a draft that little is known of, and the verdicts that it stands for."""
LIKE = 6.0
"""Verdicts that what is known of all places stands for at one."""
RISKED = 0.8
"""The plain rounds that may be lost before anything is won."""
LOOKS = 0.75
"""The plain rounds that looking again soon may take: a text's first guesses say little of it."""
SOON = 3
"""The plain rounds before such a look."""
WINNINGS = 3.0
"""The plain rounds that count as won at most: who stops being right is not tried for long."""
HOPED = 0.8
"""The agreement supposed before the first verdict: one that pays with it is tried."""
SURER = 1.02
"""By how much speculation has to promise more than plain decoding, before it is gone back to."""
PROBING = 0.02
"""The share of plain decoding's time that looking again may take."""
SHARPER = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
"""Powers of a confidence that may come nearest to how often such guesses are right."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a round, where they are known before."""

    plain_s: float
    """Of a plain round."""
    passes: Mapping[int, float]
    """Of the target's pass, by its tokens; 1 among them."""
    draft_s: float
    """Of one draft pass."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Asks for the k that promises most tokens a second, 0 where plain decoding does.

    It knows what it saw in this request: what passes cost, how often the guess at each place was right, how right the
    draft was where it was so sure. From these follows k, and the confidence below which a guess is not worth its pass.
    Where nothing pays it decodes plainly, and looks again after gaps that grow, so that looking costs little. With
    `costs`, those are what it begins with. Nothing is remembered from one request to the next.
    """

    most: int = 8
    costs: Costs | None = None

    def start(self) -> Run:
        """Return what chooses for one request."""
        return Run(self.most, self.costs)


@dataclass(slots=True)
class Book:
    """Guesses at each place of a round that were right, and that were put to the test, less what is forgotten."""

    right: list[float] = field(default_factory=list)
    tested: list[float] = field(default_factory=list)

    def enter(self, right: int, tested: int) -> None:
        """Enter a round of which the first `tested` guesses were put to the test."""
        while len(self.tested) < tested:
            self.right.append(0.0)
            self.tested.append(0.0)
        for i in range(tested):
            self.right[i] = FORGET * self.right[i] + (i < right)
            self.tested[i] = FORGET * self.tested[i] + 1


@dataclass(slots=True)
class Run:
    """One request's choices."""

    most: int
    costs: Costs | None
    floor: float = 0.0
    _seen: int = 0
    _k: int = 0
    _decided: int = -1
    _plain: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Of plain rounds the target's seconds, and all."""
    _passes: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Of rounds with guesses the tokens and seconds of the target's pass."""
    _drafts: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _overheads: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _books: tuple[Book, Book] = field(default_factory=lambda: (Book(), Book()))
    """Verdicts behind a round that was not right to its end, and behind one that was: text comes in stretches."""
    _streak: bool = False
    _new: list[tuple[int, float]] = field(default_factory=list)
    """Tokens and seconds of rounds with guesses that are not yet in what was won."""
    _pace: tuple[float, float] = 0.0, 0.0
    """Tokens and seconds of rounds with guesses, less what is forgotten."""
    _won: float = 0.0
    """Plain rounds that were won by guessing, less those lost."""
    _hits: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0] * len(SHARPER))
    _gap: int = 8
    _looks: float = LOOKS
    _look_at: int = -1
    """The round that looks again, where plain decoding is gone over to; -1 while speculating."""

    def next(self, rounds: Sequence[Round]) -> int:
        """Return how many guesses to ask for."""
        if self._decided == len(rounds):
            return self._k
        self.learn(rounds)
        self._decided = len(rounds)
        self._k = self._choose(len(rounds))
        return self._k

    def learn(self, rounds: Sequence[Round]) -> None:
        """Take in the rounds that are new."""
        for done in rounds[self._seen :]:
            self.hear(done)
        self._seen = len(rounds)

    def hear(self, done: Round) -> None:
        """Learn from a round; of one whose pass was shared with other texts, not what it took."""
        n = len(done.proposed)
        spent_s = done.draft_s + done.target_s + done.overhead_s
        if not n:
            if not done.beside:
                self._plain.append((done.target_s, spent_s))
            return
        if not done.beside:
            self._passes.append((n + 1, done.target_s))
            self._drafts.append(done.draft_s / (done.draft_passes or n))
            self._overheads.append(done.overhead_s)
            self._new.append((done.accepted + 1, spent_s))
            self._pace = FORGET * self._pace[0] + done.accepted + 1, FORGET * self._pace[1] + spent_s
        tested = min(done.accepted + 1, n)
        self._books[self._streak].enter(done.accepted, tested)
        self._streak = done.accepted == n
        for i, share in enumerate(done.confidence[:tested]):
            self._hits = FORGET * self._hits + (i < done.accepted)
            self._sums = [FORGET * s + share**power for s, power in zip(self._sums, SHARPER, strict=True)]

    def _choose(self, at: int) -> int:
        known = self._known()
        if known is None:
            # the first rounds find out what things cost: one with guesses, one without
            return 1 if not self._passes else 0
        plain_s, more, draft_s, overhead_s = known
        for written, spent_s in self._new:
            self._won = min(WINNINGS, self._won + written - spent_s / plain_s)
        self._new.clear()
        survive = self.survive()
        if any(self._sums) or (draft_s > 0 and not self._passes):
            return self._stake(at, known, survive)
        best, rate = 0, 1 / plain_s
        untried = not any(book.tested for book in self._books)
        for k in range(1, self.most + 1):
            extra_s = k * draft_s + more[k - 1] + overhead_s
            if untried and k > 1 and extra_s > RISKED * plain_s:
                break
            tokens = 1 + sum(survive[:k])
            found = tokens / (plain_s + extra_s)
            if found > rate * (SURER if best == 0 and self._look_at >= 0 else 1.0):
                best, rate = k, found
        if best == 0:
            return self._rest(at, draft_s + more[0] + overhead_s, plain_s)
        self._look_at, self._gap = -1, 8
        next_one = more[min(best, self.most - 1)] - more[best - 1]
        self.floor = self.floor_at(rate * (draft_s + max(0.0, next_one)), survive)
        # one more than promises most: the floor ends what is not worth it, and what is gets found out
        return min(self.most, best + 1) if self.floor > 0 else best

    def _stake(self, at: int, known: tuple[float, list[float], float, float], survive: Sequence[float]) -> int:
        """Choose for a draft that says how sure it is: the floor ends a round's drafting where the next guess is not
        worth its pass, and no round may lose more than was won, and the little that may be lost.
        """
        plain_s, more, draft_s, overhead_s = known
        costs = [(k * draft_s + more[k - 1] + overhead_s) / plain_s for k in range(1, self.most + 1)]
        if at < self._look_at:
            return 0
        if at == self._look_at:
            self._won = max(self._won, costs[0] - RISKED)
        elif self._won > 0:
            self._look_at, self._gap = -1, 8
        k = sum(cost <= self._won + RISKED + 1e-9 for cost in costs)
        if k == 0:
            self.floor = 0.0
            if costs[0] <= self._looks:
                self._looks -= costs[0]
                self._look_at = at + SOON
            else:
                self._look_at = at + self._wait(costs[0] * plain_s, plain_s)
                self._gap = min(2 * self._gap, 512)
            return 0
        rate = max(1 / plain_s, self._pace[0] / self._pace[1] if self._pace[1] else 0.0)
        step_s = draft_s + (more[-1] - more[0]) / max(1, self.most - 1)
        self.floor = self.floor_at(rate * step_s, survive)
        return k

    def _rest(self, at: int, extra_s: float, plain_s: float) -> int:
        """Decode plainly; look again, with one guess, when the gap is over."""
        self.floor = 0.0
        if self._look_at < 0:
            self._look_at = at + self._wait(extra_s, plain_s)
            return 0
        if at < self._look_at:
            return 0
        self._gap = min(2 * self._gap, 512)
        self._look_at = at + self._wait(extra_s, plain_s)
        return 1

    def _wait(self, extra_s: float, plain_s: float) -> int:
        return max(self._gap, int(extra_s / (PROBING * plain_s)))

    def _known(self) -> tuple[float, list[float], float, float] | None:
        """Return seconds of a plain round, of what each further number of guesses adds to the target's pass, of a draft
        pass, and of what the rest of a round with guesses takes beyond a plain one's; None until they are known.
        """
        costs = self.costs
        if costs is None and not (self._plain and self._passes):
            return None
        before: Mapping[int, float] = {} if costs is None else costs.passes
        one_s = median([target for target, _ in self._plain] or [before.get(1, 0.0)])
        plain_s = median([whole for _, whole in self._plain] or [0.0 if costs is None else costs.plain_s])
        draft_s = median(self._drafts or [0.0 if costs is None else costs.draft_s])
        points = {**before, 1: one_s}
        for n in {n for n, _ in self._passes}:
            points[n] = median(seconds for width, seconds in self._passes if width == n)
        overhead_s = max(0.0, median(self._overheads) - (plain_s - one_s)) if self._overheads else 0.0
        plain_s = max(plain_s, 1e-9)  # a clock may stand still
        more = [max(0.0, between(points, k + 1) - one_s) for k in range(1, self.most + 1)]
        return plain_s, more, draft_s, overhead_s

    def tested(self) -> tuple[float, float]:
        """Return how many guesses were right, and put to the test, less what is forgotten."""
        right, tested = (sum(sum(getattr(book, name)) for book in self._books) for name in ("right", "tested"))
        return right, tested

    def survive(self, prior: float = PRIOR, weight: float = WEIGHT) -> list[float]:
        """Return the chance that each of the next guesses stands; `prior`, for so many verdicts, is supposed before."""
        right, tested = (sum(sum(getattr(book, name)) for book in self._books) for name in ("right", "tested"))
        known = tested or weight > WEIGHT
        usual = (right + prior * weight) / (tested + weight) if known else HOPED
        book = self._books[self._streak]
        here = (sum(book.right) + usual * LIKE) / (sum(book.tested) + LIKE)
        stands, found = 1.0, []
        for i in range(self.most):
            mine = (book.right[i], book.tested[i]) if i < len(book.tested) else (0.0, 0.0)
            stands *= (mine[0] + here * LIKE) / (mine[1] + LIKE)
            found.append(stands)
        return found

    def floor_at(self, worth: float, survive: Sequence[float]) -> float:
        """Return the confidence in all guesses so far below which another is not worth its cost, `worth` in tokens."""
        if worth <= 0:
            return 0.0
        powers = zip(SHARPER, self._sums, strict=True)
        power = min(powers, key=lambda pair: abs(pair[1] - self._hits))[0] if any(self._sums) else 1.0
        return float(min(1.0, worth / max(survive[0], 0.05)) ** (1 / power))


def between(points: Mapping[int, float], n: int) -> float:
    """Return the value at `n`, straight between known ones, and on the last slope beyond them."""
    known = sorted(points)
    i = min(max(bisect_left(known, n), 1), len(known) - 1)
    if i < 1:
        return points[known[0]]
    left, right = known[i - 1 : i + 1]
    return points[left] + (points[right] - points[left]) * (n - left) / (right - left)
