"""The loop's laws: counts that add up, seconds that add up, and a text that cannot depend on the draft."""

from __future__ import annotations

import signal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftproof import EngineError
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.models.tokens import TextStream
from draftproof.propose.draft import Draft
from draftproof.testing import HandSetClock, Scripted, TableSession, scripted_session
from tests.decode.writing import DRAFTS, PROMPT, TOKENIZER, write

WIDTH = 13


def hashed(history):
    """Logits that depend on every token of the history."""
    seed = 7
    for token in history:
        seed = (seed * 31 + token + 1) % 1_000_003
    return [((seed * (i + 3)) % 997) / 997 for i in range(WIDTH)]


def sometimes_wrong(period):
    def rule(history):
        row = hashed(history)
        if len(history) % period == 0:
            row[len(history) % WIDTH] = 2.0
        return row

    return rule


def decode(target, proposer, k, limit=50, end_tokens=(), clock=None):
    decoding = Decoding(
        target,
        [1, 2, 3],
        proposer=proposer,
        k=k,
        stop=Stop(limit=limit, end_tokens=end_tokens),
        clock=clock or HandSetClock(),
    )
    for _ in decoding:
        pass
    return decoding.generation()


@given(
    k=st.integers(0, 20),
    period=st.integers(1, 9),
    limit=st.integers(1, 60),
    ends=st.sets(st.integers(0, 12), max_size=2),
)
def test_counts_obey_their_laws(k, period, limit, ends):
    target = TableSession(hashed, width=WIDTH)
    draft = Draft(TableSession(sometimes_wrong(period), width=WIDTH), WIDTH, end_tokens=ends)
    made = decode(target, draft, k, limit, ends)
    counts = made.counts
    assert counts.tokens == len(made.tokens) == counts.accepted + counts.rounds - counts.cut
    assert counts.proposed == counts.accepted + counts.discarded
    assert counts.draft_passes == counts.proposed
    assert counts.rounds == counts.target_passes
    assert all(1 <= len(r.tokens) <= len(r.proposed) + 1 for r in made.rounds)
    assert counts.cut == 0 or made.finish_reason == "stop"
    assert made.tokens == decode(TableSession(hashed, width=WIDTH), None, 0, limit, ends).tokens


@given(
    draft_ms=st.integers(0, 50),
    target_ms=st.integers(1, 500),
    waits=st.integers(0, 1000),
    k=st.integers(0, 6),
)
def test_the_parts_of_the_time_add_up_to_the_whole(draft_ms, target_ms, waits, k):
    clock = HandSetClock()
    target, small = TableSession(hashed, width=WIDTH), TableSession(sometimes_wrong(3), width=WIDTH)
    target.on_pass = lambda tokens: clock.advance(target_ms / 1000)
    small.on_pass = lambda tokens: clock.advance(draft_ms / 1000)
    decoding = Decoding(target, [1, 2, 3], proposer=Draft(small, WIDTH), k=k, stop=Stop(limit=30), clock=clock)
    waited = 0.0
    for _ in decoding:
        clock.advance(waits / 1000)  # a slow reader of the stream costs the ledger nothing
        waited += waits / 1000
    made = decoding.generation()
    parts = made.seconds
    assert parts.total_s == pytest.approx(clock.now() - waited)
    assert parts.prompt_s + parts.draft_s + parts.target_s + parts.overhead_s == pytest.approx(parts.total_s)
    assert parts.target_s == pytest.approx(made.counts.target_passes * target_ms / 1000)
    assert parts.draft_s == pytest.approx(made.counts.draft_passes * draft_ms / 1000)


def test_proposals_of_changing_length_and_none_at_all_change_nothing():
    lengths = [4, 0, 0, 3, 1, 0, 4, 2]
    plain = decode(TableSession(hashed, width=WIDTH), None, 0, 100)

    def script(sequence, k):
        at = len(sequence) - 3
        right = plain.tokens[at : at + min(k, lengths[at % len(lengths)])]
        return [(t + (at % 5 == 4 and i == 1)) % WIDTH for i, t in enumerate(right)]

    made = decode(TableSession(hashed, width=WIDTH), Scripted(script), 4, 100)
    assert made.tokens == plain.tokens
    assert any(not r.proposed for r in made.rounds)
    assert made.counts.discarded > 0


def test_acceptance_counts_only_the_leading_run():
    plain = decode(TableSession(hashed, width=WIDTH), None, 0, 200)

    def right_wrong_right_right(sequence, k):
        at = len(sequence) - 3
        return [(t + (i == 1)) % WIDTH for i, t in enumerate(plain.tokens[at : at + k])]

    counts = decode(TableSession(hashed, width=WIDTH), Scripted(right_wrong_right_right), 4, 80).counts
    assert counts.tokens_per_round == 2
    assert counts.accepted == counts.rounds
    assert counts.acceptance_rate == pytest.approx(0.25, abs=0.01)


def test_a_draft_that_is_always_wrong_gives_one_token_a_round():
    made, _ = write("The quick brown fox jumps", draft="always wrong", k=5)
    assert made.text == "The quick brown fox jumps"
    assert made.counts.tokens_per_round == 1
    assert made.counts.acceptance_rate == 0.0
    assert not any(r.drafted for r in made.rounds)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_draft_with_numbers_that_are_none_costs_speed_and_a_warning_but_no_token(bad):
    def rule(history):
        return [bad] * WIDTH if len(history) % 4 == 0 else hashed(history)

    plain = decode(TableSession(hashed, width=WIDTH), None, 0)
    made = decode(TableSession(hashed, width=WIDTH), Draft(TableSession(rule, width=WIDTH), WIDTH), 3)
    assert made.tokens == plain.tokens
    assert [w for w in made.warnings if "non-finite" in w] == list(made.warnings)
    assert len(made.warnings) == 1


def test_a_target_that_gives_nan_is_an_error_and_not_a_token():
    with pytest.raises(EngineError, match="NaN"):
        decode(TableSession(lambda history: [float("nan")] * WIDTH, width=WIDTH), None, 0)


def test_equal_logits_go_to_the_lowest_id_wherever_they_stand():
    def tied(history):
        return [1.0 if i in {2 + len(history) % 3, 9} else 0.0 for i in range(WIDTH)]

    plain = decode(TableSession(tied, width=WIDTH), None, 0)
    assert 9 not in plain.tokens
    for k in range(1, 6):
        made = decode(TableSession(tied, width=WIDTH), Draft(TableSession(tied, width=WIDTH), WIDTH), k)
        assert made.tokens == plain.tokens
        assert made.counts.acceptance_rate == 1.0


def test_a_reader_who_leaves_keeps_a_whole_ledger():
    decoding = Decoding(TableSession(hashed, width=WIDTH), [1, 2, 3], k=0, stop=Stop(limit=50), clock=HandSetClock())
    for _ in range(7):
        next(decoding)
    made = decoding.cancel()
    assert made.finish_reason == "cancelled"
    assert made.counts.tokens == made.counts.rounds == 7
    assert list(decoding) == []


def interrupting(at):
    """A session whose pass number `at` is interrupted, once."""
    session, state = TableSession(hashed, width=WIDTH), {"left": at}

    def on_pass(tokens):
        state["left"] -= 1
        if state["left"] == 0:
            raise KeyboardInterrupt

    session.on_pass = on_pass
    return session


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_interrupt_anywhere_leaves_a_ledger_that_adds_up_and_a_text_that_can_go_on(at):
    clock = HandSetClock()
    clock.advance(1000)
    decoding = Decoding(interrupting(at), [1, 2, 3], stop=Stop(limit=20), clock=clock)
    with pytest.raises(KeyboardInterrupt):
        list(decoding)
    part = decoding.generation()
    assert part.seconds.total_s == 0
    assert part.counts.tokens == len(part.tokens) == max(0, at - 2)
    for _ in decoding:
        clock.advance(3)
    whole = decoding.generation()
    assert whole.tokens == decode(TableSession(hashed, width=WIDTH), None, 0, 20).tokens
    assert whole.seconds.total_s == 0


def test_an_interrupt_between_two_kept_tokens_loses_none():
    plain, _ = write("The quick brown fox")
    stop = Stop(limit=19, text=TextStream(TOKENIZER, PROMPT))
    push, calls = stop.push, []

    def interrupted(token):
        done = push(token)
        calls.append(token)
        if len(calls) == 7:
            signal.raise_signal(signal.SIGINT)  # it waits until the round is kept
        return done

    stop.push = interrupted
    script = list(b"The quick brown fox")
    decoding = Decoding(
        scripted_session(PROMPT, script, width=257),
        PROMPT,
        proposer=DRAFTS["always right"](PROMPT, script),
        k=4,
        stop=stop,
        clock=HandSetClock(),
    )
    with pytest.raises(KeyboardInterrupt):
        list(decoding)
    part = decoding.generation()
    assert bytes(part.tokens).decode() == part.text == "The quick "
    assert part.counts.tokens == part.counts.accepted + part.counts.rounds - part.counts.cut
    for _ in decoding:
        pass
    assert decoding.generation().text == plain.text
    assert decoding.generation().tokens == plain.tokens


def test_draft_ids_that_the_target_does_not_have_are_never_offered():
    target = TableSession(hashed, width=WIDTH)
    seen = []
    wide = TableSession(lambda history: [0.0] * WIDTH + [float(len(history) % 2)] * 7, width=WIDTH + 7)
    proposer = Draft(wide, WIDTH)
    original = proposer.propose
    proposer.propose = lambda *asked: seen.append(original(*asked)) or seen[-1]
    assert decode(target, proposer, 4).tokens == decode(TableSession(hashed, width=WIDTH), None, 0).tokens
    assert all(token < WIDTH for proposal in seen for token in proposal.tokens)


def test_a_text_with_a_token_that_the_draft_does_not_know_goes_on_without_guesses():
    narrow = TableSession(lambda history: hashed(history)[:5], width=5)
    made = decode(TableSession(hashed, width=WIDTH), Draft(narrow, WIDTH), 4)
    assert made.tokens == decode(TableSession(hashed, width=WIDTH), None, 0).tokens


def test_rows_behind_a_rejection_may_hold_anything():
    from draftproof.decode.rows import Rows
    from draftproof.exchange import Proposal
    from draftproof.verify import JUDGES

    logits = torch.zeros(3, 4)
    logits[0, 2] = 1
    logits[1:] = float("nan")
    rows = Rows(logits, [0], (1, 1), None, ())
    assert JUDGES["greedy"].judge(rows, Proposal((1, 1)), None).next_token == 2
