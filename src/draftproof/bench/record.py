"""Recording what a forecast needs: the target's texts, what drafts would have guessed in them, what rounds cost."""

from __future__ import annotations

import random
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from draftproof.bench.turns import take_turns
from draftproof.engines.foresee import foresee
from draftproof.engines.local import Speculator
from draftproof.engines.ours import Ours
from draftproof.engines.request import end_tokens_for
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


OTHERS = "the trace that is there was recorded on other prompts; name another place."


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
    old: Trace | None = None,
) -> Iterator[Trace]:
    """Record all prompts with all drafts, and yield the trace after every text; the last is whole.

    `pairs` are one target with each draft, opened at `k=depth`, by the draft's name. Every text is written plainly
    once, and read by every draft; the first `probes` of each workload also with every draft at all numbers of guesses
    in turn, side by side with plain decoding, so that what rounds cost is measured where they run. Workloads take
    turns, so that a recording that is cut short has something of each. `on_text` is called behind each text. What `old`
    holds is not recorded again. Where a workload has responses, those are the texts, and the target writes only to be
    timed. Raises `ConfigError` for texts that cannot be replayed.
    """
    options = options.seeded()
    first = next(iter(pairs.values()))
    trace = old or Trace(
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
    known = {(text.workload, text.prompt): text for text in trace.texts}
    sizes = {one.name: len(one.prompts) for one in workloads}
    if any(prompt >= sizes.get(name, 0) for name, prompt in known):
        raise ConfigError(OTHERS)
    for pair in pairs.values():
        pair.warm_up()
    for prompt in range(max((len(one.prompts) for one in workloads), default=0)):
        for workload in workloads:
            if prompt >= len(workload.prompts):
                continue
            ids = Ours(first).prompt(workload.prompts[prompt], chat=workload.chat).ids
            before = known.get((workload.name, prompt))
            if before is not None:
                if before.prompt_tokens != len(ids):
                    raise ConfigError(OTHERS)
                on_text()
                continue
            probed = pairs if prompt < max(probes, 1) else {}
            given = workload.responses[prompt] if workload.responses else None
            text, plain, rounds = _record(first, pairs, probed, ids, given, options, depth)
            trace = replace(
                trace,
                texts=(*trace.texts, replace(text, workload=workload.name, prompt=prompt)),
                plain=(*trace.plain, *map(_sample, plain)),
                rounds={name: (*samples, *rounds.get(name, ())) for name, samples in trace.rounds.items()},
            )
            on_text()
            yield trace


def _record(
    first: Speculator,
    pairs: Mapping[str, Speculator],
    probed: Mapping[str, Speculator],
    ids: Sequence[int],
    given: str | None,
    options: Options,
    depth: int,
) -> tuple[Text, Sequence[Round], dict[str, list[Sample]]]:
    """Record one text: the target's own, or the one that is given. Returns it, plain rounds, and rounds of drafts."""
    room = first.target_window
    limit = options.max_new_tokens if room is None else min(options.max_new_tokens, room - len(ids))
    wanted = options if given is None or probed else replace(options, max_new_tokens=1)
    plain, rounds = _write(first, probed, ids, wanted, depth)
    tokens = plain.tokens if given is None else tokens_of(first, given, options)[:limit]
    text = Text(
        workload="",
        prompt=0,
        prompt_tokens=len(ids),
        tokens=tokens,
        beyond=_beyond(first, ids, plain, options, depth) if given is None else (),
        limit=limit,
        prompt_s=plain.seconds.prompt_s,
        drafts={name: _foresee(pair, ids, tokens, options, depth) for name, pair in pairs.items()},
    )
    # a single round says little of what the others cost: it is the first
    return text, plain.rounds if wanted == options else (), rounds


def tokens_of(first: Speculator, response: str, options: Options) -> tuple[int, ...]:
    """Return a text of another run as the target would have written it: its tokens, and the one that ends it.

    Raises `ConfigError` for one that the target's tokenizer cannot hold.
    """
    tokenizer = first.target.tokenizer
    ids = [int(i) for i in tokenizer(response, add_special_tokens=False)["input_ids"]]
    unknown = getattr(tokenizer, "unk_token_id", None)
    if not ids or unknown in ids or max(ids) >= first.target_width:
        brief = textwrap.shorten(response, 40, placeholder=" …")
        raise ConfigError(f"the target's tokenizer cannot hold the response {brief!r}; is it another model's?")
    ends = sorted(end_tokens_for(first.target, options))
    last = getattr(tokenizer, "eos_token_id", None)
    return (*ids, last if last in ends else ends[0]) if ends else tuple(ids)


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


def _foresee(pair: Speculator, ids: Sequence[int], text: Sequence[int], options: Options, depth: int) -> Told:
    pair.forget()
    told = foresee(pair, ids, text, depth, options)
    offers = tuple(Offer(one.tokens, one.confidence, one.passes) for one in told.offers)
    return Told(offers, told.prompt_s, told.ranks, tuple(min(one, sys.float_info.max) for one in told.odds))


def _beyond(first: Speculator, ids: Sequence[int], plain: Generation, options: Options, depth: int) -> tuple[int, ...]:
    """Return what the target goes on with behind a stop string: guesses there are judged before they are cut."""
    if not isinstance(plain.stop, str):
        return ()
    longer = replace(options, stop=(), max_new_tokens=min(len(plain.tokens) + depth, options.max_new_tokens))
    return first.unpadded.generate(ids, longer, k=0).tokens[len(plain.tokens) :]


def _sample(done: Round, padded: int | None = None) -> Sample:
    return Sample(len(done.proposed), done.draft_passes, done.draft_s, done.target_s, done.overhead_s, padded)
