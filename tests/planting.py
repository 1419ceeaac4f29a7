"""Faults to plant one by one.

Plain decoding has one row a round, the first; a fault that only shows in further rows is a difference between on and
off.
"""

from __future__ import annotations

from types import SimpleNamespace

from draftproof.decode import request as request_module
from draftproof.decode.request import Request
from draftproof.decode.rows import Rows
from draftproof.decode.stop import Stop
from draftproof.decode.strings import StopStrings
from draftproof.engines.local import Speculator
from draftproof.sampling import processors as processors_module
from draftproof.sampling import sampler as sampler_module
from draftproof.sampling.chance import SeededChance
from draftproof.sampling.grammar import Grammar
from draftproof.sampling.sampler import RowSampler

NOW = SimpleNamespace(start=0, row=0, last=0, pushed=0)
"""Where the loop stands: length of the text at the start of the round, the row in hand and the last one."""


def keep_place(monkeypatch):
    """Keep `NOW` up to date."""
    right_init, right_history, right_tell = Rows.__init__, Rows._history, Request._tell

    def init(self, logits, sequence, guesses, *rest):
        NOW.start, NOW.row, NOW.last = len(sequence), 0, len(guesses)
        right_init(self, logits, sequence, guesses, *rest)

    def history(self, i):
        NOW.row = i
        return right_history(self, i)

    def tell(self, proposal, verdict, states):
        NOW.pushed, NOW.allowed = 0, verdict.accepted + 1
        return right_tell(self, proposal, verdict, states)

    monkeypatch.setattr(Rows, "__init__", init)
    monkeypatch.setattr(Rows, "_history", history)
    monkeypatch.setattr(Request, "_tell", tell)


def once_a_round(patch, kind):
    """A processor that sees the text as it was at the start of the round."""
    right = kind.__call__
    patch.setattr(kind, "__call__", lambda self, ids, scores: right(self, ids[:, : NOW.start or None], scores))


def plant_repetition_penalty(patch):
    once_a_round(patch, processors_module.RepetitionPenaltyLogitsProcessor)


def plant_presence_and_frequency_penalty(patch):
    once_a_round(patch, processors_module.CountPenalties)


def plant_bad_words(patch):
    """Transformers builds bad words on its biases, so one class serves both; a bias does not look at the history."""
    once_a_round(patch, processors_module.NoBadWordsLogitsProcessor)


def plant_min_new_tokens(patch):
    once_a_round(patch, processors_module.MinNewTokensLengthLogitsProcessor)


def plant_grammar(patch):
    once_a_round(patch, Grammar)


def plant_logit_bias(patch):
    """Applied to the first row only."""
    right = processors_module.SequenceBiasLogitsProcessor.__call__

    def call(self, ids, scores):
        if type(self) is processors_module.SequenceBiasLogitsProcessor and ids.shape[1] > NOW.start:
            return scores
        return right(self, ids, scores)

    patch.setattr(processors_module.SequenceBiasLogitsProcessor, "__call__", call)


def plant_processor(patch):
    """A user's processor is called once a round."""
    right = RowSampler._transformed

    def transformed(self, row, history):
        custom, self._custom = self._custom, self._custom if NOW.row == 0 else ()
        try:
            return right(self, row, history)
        finally:
            self._custom = custom

    patch.setattr(RowSampler, "_transformed", transformed)


def without(patch, wrong, **off):
    """Truncation that leaves out an option where `wrong()`."""
    from dataclasses import replace

    right = sampler_module.truncate
    patch.setattr(
        sampler_module,
        "truncate",
        lambda scores, options: right(scores, replace(options, **off) if wrong() else options),
    )


def plant_temperature(patch):
    without(patch, lambda: NOW.row > 0, temperature=1.0)


def plant_top_k(patch):
    without(patch, lambda: NOW.row > 0, top_k=0)


def plant_top_p(patch):
    without(patch, lambda: NOW.row > 0, top_p=1.0)


def plant_min_p(patch):
    """On the bonus only."""
    without(patch, lambda: NOW.row < NOW.last, min_p=0.0)


def plant_seed(patch):
    """Noise from the start of the round, whatever the position in it."""
    right = SeededChance.couple
    patch.setattr(
        SeededChance,
        "couple",
        lambda self, scores, position: right(self, scores, NOW.start if NOW.start < position else position),
    )


def plant_samples(patch):
    """Samples of one request share a stream when guesses are in play."""
    right = Speculator.stream

    def stream(self, prompt, options=None, *, k=None, sample=0, **settings):
        return right(self, prompt, options, k=k, sample=0 if k else sample, **settings)

    patch.setattr(Speculator, "stream", stream)


def plant_logprobs(patch):
    """Of the last row, for every token."""
    right = request_module.logprobs_of
    patch.setattr(
        request_module, "logprobs_of", lambda rows, tokens, top: right(rows[-1:].expand(len(tokens), -1), tokens, top)
    )


def plant_top_logprobs(patch):
    """Of the first row, for every token."""
    from dataclasses import replace

    right = request_module.logprobs_of

    def wrong(rows, tokens, top):
        found = right(rows, tokens, top)
        return tuple(replace(one, top=found[0].top) for one in found)

    patch.setattr(request_module, "logprobs_of", wrong)


def at_the_end_of_a_round(patch, hide):
    """A stop rule that looks only at the last token of a round; `hide(rule)` is what it does not see before."""
    right = Stop.push

    def push(self, token):
        NOW.pushed += 1
        if NOW.pushed == NOW.allowed:
            return right(self, token)
        hidden = hide(self)
        before = {name: getattr(self, name) for name in hidden}
        for name, value in hidden.items():
            setattr(self, name, value)
        try:
            return right(self, token)
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    patch.setattr(Stop, "push", push)


def nobody_stops_behind_a_guessed_end(patch):
    right = request_module.trimmed
    patch.setattr(request_module, "trimmed", lambda offered, k, width, ends, **how: right(offered, k, width, (), **how))
    patch.setattr(Rows, "_is_over", lambda self, i: False)


def plant_end_token(patch):
    at_the_end_of_a_round(patch, lambda rule: {"end_tokens": frozenset()})
    nobody_stops_behind_a_guessed_end(patch)


def plant_several_end_tokens(patch):
    """Only one of them is known inside a round."""
    at_the_end_of_a_round(patch, lambda rule: {"end_tokens": frozenset(sorted(rule.end_tokens)[:1])})
    nobody_stops_behind_a_guessed_end(patch)


def plant_stop_string(patch):
    """Looked for at the end of a round, in as many characters as it has."""
    at_the_end_of_a_round(patch, lambda rule: {"_strings": StopStrings(())})


def plant_max_new_tokens(patch):
    """Guesses are not capped at what is left, and the limit is looked at between rounds."""
    patch.setattr(Stop, "remaining", property(lambda self: self._remaining + 100))
    right = Stop.push

    def push(self, token):
        NOW.pushed += 1
        if NOW.pushed < NOW.allowed:
            self._remaining += 100
            try:
                return right(self, token)
            finally:
                self._remaining -= 100
        return right(self, token)

    patch.setattr(Stop, "push", push)


def plant_reason(patch):
    """A limit that is reached inside a round is called a stop."""
    right = Request.generation

    def generation(self):
        from dataclasses import replace

        made = right(self)
        inside = made.rounds and made.rounds[-1].cut and made.finish_reason == "stop"
        return replace(made, finish_reason="length") if inside else made

    patch.setattr(Request, "generation", generation)


def plant_draft_without_transforms(patch):
    """Only a self-draft shows it: the text is right, and the guesses are not."""
    right = RowSampler._transformed

    def transformed(self, row, history):
        if NOW.row == -1:
            self = RowSampler(self._options, self._chance, width=self._width)
        return right(self, row, history)

    from draftproof.propose.draft import Draft

    propose = Draft.propose

    def blind(self, *arguments):
        NOW.row = -1
        try:
            return propose(self, *arguments)
        finally:
            NOW.row = 0

    patch.setattr(RowSampler, "_transformed", transformed)
    patch.setattr(Draft, "propose", blind)


PLANTS = [plant for name, plant in sorted(globals().items()) if name.startswith("plant_")]
