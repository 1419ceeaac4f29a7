"""Recording what a forecast needs: the target's texts, what drafts would have guessed in them, what rounds cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from draftproof.bench.turns import take_turns
from draftproof.engines.local import Speculator
from draftproof.engines.stream import Stream
from draftproof.errors import ConfigError
from draftproof.forecast.trace import Offer, Sample, Text, Told, Trace
from draftproof.options import Options
from draftproof.records import Generation, Round
from draftproof.results import Workload, read_machine
from draftproof.stats.trust import doubt_machine

DEPTH = 16
PROBED = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
"""Numbers of guesses whose rounds are timed."""
PADDED = (1, 2, 4, 8)
"""The same where every pass of a k is padded to it."""
PROBES = 2
"""Prompts of each workload whose texts are also written with every draft, to time rounds; at least one is."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """A controller that asks for each of `ks` in turn, every time in another order."""

    ks: Sequence[int]
    seed: int = 0

    @property
    def most(self) -> int:
        """The largest of them."""
        return max(self.ks)

    def next(self, rounds: Sequence[Round]) -> int:
        """Return the next."""
        lap, place = divmod(len(rounds), len(self.ks))
        return random.Random(self.seed + lap).sample(list(self.ks), len(self.ks))[place]


def record(
    pairs: Mapping[str, Speculator],
    workloads: Sequence[Workload],
    options: Options,
    *,
    depth: int = DEPTH,
    probes: int = PROBES,
    on_text: Callable[[], None] = lambda: None,
) -> Iterator[Trace]:
    """Record all prompts with all drafts, and yield the trace after every text; the last is whole.

    `pairs` are one target with each draft, opened at `k=depth`, by the draft's name. Every text is written plainly
    once, and read by every draft; the first `probes` of each workload also with every draft at all numbers of guesses
    in turn, side by side with plain decoding, so that what rounds cost is measured where they run. `on_text` is called
    behind each text. Raises `ConfigError` for texts that cannot be replayed.
    """
    options = options.seeded()
    if not options.same_text:
        raise ConfigError(f"verify={options.verify!r} draws another text each time; only one text can be replayed.")
    first = next(iter(pairs.values()))
    trace = Trace(
        machine=read_machine(),
        target=first.target.name,
        target_placement=first.target.placement,
        depth=depth,
        options=options,
        texts=(),
        plain=(),
        rounds=dict.fromkeys(pairs, ()),
        notes=tuple(dict.fromkeys([*doubt_machine(), *(note for pair in pairs.values() for note in pair.notes)])),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    for pair in pairs.values():
        pair.warm_up()
    for workload in workloads:
        for prompt in range(len(workload.prompts)):
            ids = first.encode(workload.prompts[prompt], chat=workload.chat)
            probed = pairs if prompt < max(probes, 1) else {}
            plain, rounds = _write(first, probed, ids, options, depth)
            drafts = {name: _foresee(pair, ids, plain, options, depth) for name, pair in pairs.items()}
            window = first.target_window
            room = options.max_new_tokens if window is None else window - len(ids)
            text = Text(
                workload=workload.name,
                prompt=prompt,
                prompt_tokens=len(ids),
                tokens=plain.tokens,
                beyond=_beyond(first, ids, plain, options, depth),
                limit=min(options.max_new_tokens, room),
                prompt_s=plain.seconds.prompt_s,
                drafts=drafts,
            )
            trace = replace(
                trace,
                texts=(*trace.texts, text),
                plain=(*trace.plain, *map(_sample, plain.rounds)),
                rounds={name: (*known, *rounds.get(name, ())) for name, known in trace.rounds.items()},
            )
            on_text()
            yield trace


def _write(
    first: Speculator, pairs: Mapping[str, Speculator], ids: Sequence[int], options: Options, depth: int
) -> tuple[Generation, dict[str, list[Sample]]]:
    """Write one text plainly, and with every pair at all numbers of guesses, in turns.

    Where passes are padded, every k is a pair of its own, and writes a text of its own.
    """
    streams: dict[tuple[str, int | None] | None, Stream] = {}
    ks = [k for k in PROBED if k <= depth]
    for name, pair in pairs.items():
        if pair.numerics.shape is None:
            pair.forget()
            streams[name, None] = pair.stream(ids, options, k=InTurn(ks))
            continue
        for k in {*(k for k in PADDED if k <= depth), depth}:
            streams[name, k + 1] = pair.at(k).stream(ids, options)
    first.unpadded.forget()
    streams[None] = first.unpadded.stream(ids, options, k=0)
    for _ in take_turns({name: iter(one) for name, one in streams.items()}, lambda chunk: len(chunk.round.tokens)):
        pass
    samples: dict[str, list[Sample]] = {name: [] for name in pairs}
    for key, stream in streams.items():
        if key is not None:
            samples[key[0]] += [_sample(done, key[1]) for done in stream.generation.rounds]
    return streams[None].generation, samples


def _foresee(pair: Speculator, ids: Sequence[int], plain: Generation, options: Options, depth: int) -> Told:
    pair.forget()
    told, prompt_s = pair.foresee(ids, plain.tokens, depth, options)
    return Told(tuple(Offer(one.tokens, one.confidence, one.passes) for one in told), prompt_s)


def _beyond(first: Speculator, ids: Sequence[int], plain: Generation, options: Options, depth: int) -> tuple[int, ...]:
    """Return what the target goes on with behind a stop string: guesses there are judged before they are cut."""
    if not isinstance(plain.stop, str):
        return ()
    longer = replace(options, stop=(), max_new_tokens=min(len(plain.tokens) + depth, options.max_new_tokens))
    return first.unpadded.generate(ids, longer, k=0).tokens[len(plain.tokens) :]


def _sample(done: Round, padded: int | None = None) -> Sample:
    return Sample(len(done.proposed), done.draft_passes, done.draft_s, done.target_s, done.overhead_s, padded)
