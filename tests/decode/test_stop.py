"""A text ends at the same token, with the same text, whichever round brings it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof import ConfigError
from draftproof.decode.stop import Stop
from tests.decode.writing import DRAFTS, WIDTH, write

TEXT = "The quick brown fox jumps over it"


def outcome(generation):
    return generation.tokens, generation.text, generation.finish_reason, generation.stop


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_every_window_of_the_text_as_stop_string_cuts_as_in_plain_decoding(draft, width):
    for at in range(len(TEXT) - width):
        stop = (TEXT[at : at + width],)
        plain, _ = write(TEXT, stop=stop)
        assert plain.text == TEXT[: TEXT.index(stop[0])]
        assert plain.finish_reason == "stop"
        assert plain.stop == stop[0]
        made, chunks = write(TEXT, draft=draft, k=20, stop=stop)
        assert outcome(made) == outcome(plain)
        assert "".join(chunks) == plain.text


def test_a_stop_string_early_in_a_long_accepted_round_is_noticed():
    made, _ = write(TEXT, draft="always right", k=16, stop=("e",))
    assert made.text == "Th"
    assert len(made.tokens) == 3
    assert made.counts.accepted == 16
    assert made.counts.cut == 14


@pytest.mark.parametrize("k", range(1, 9))
def test_a_stop_string_that_straddles_chunks_never_leaks_its_first_half(k):
    made, chunks = write("The quick brown fox", draft="always right", k=k, stop=("own fox",))
    assert "".join(chunks) == made.text == "The quick br"
    _, chunks = write("The quick brown f", draft="always right", k=k, stop=("own fox",))
    assert "".join(chunks) == "The quick brown f", "what never became a stop string comes out whole at the end"


def test_the_earliest_of_several_stop_strings_wins():
    made, _ = write(TEXT, draft="always right", k=20, stop=("fox", "brown fox", "quick b"))
    assert (made.text, made.stop) == ("The ", "quick b")


@pytest.mark.parametrize("draft", DRAFTS)
def test_an_end_token_at_every_place_of_a_round_ends_the_text_there(draft):
    for at in range(len(TEXT)):
        script = [*TEXT[:at].encode(), 256, *TEXT[at:].encode()]
        plain, _ = write(script, end_tokens=[256])
        made, chunks = write(script, draft=draft, k=6, end_tokens=[256])
        assert outcome(made) == outcome(plain)
        assert plain.tokens == (*TEXT[:at].encode(), 256)
        assert "".join(chunks) == TEXT[:at]
        assert (made.finish_reason, made.stop) == ("stop", 256)
        assert sum(len(r.tokens) for r in made.rounds) == len(made.tokens)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_the_limit_is_met_exactly_and_nothing_is_drafted_past_it(draft, k, limit):
    made, _ = write(TEXT, draft=draft, k=k, limit=limit)
    assert made.text == TEXT[:limit]
    assert made.finish_reason == "length"
    assert all(len(r.proposed) < limit for r in made.rounds)
    if limit == 1:
        assert made.counts.draft_passes == 0


def test_a_stop_string_on_the_last_allowed_token_is_a_stop():
    made, _ = write(TEXT, limit=3, stop=("e",))
    assert (made.finish_reason, made.text) == ("stop", "Th")


@given(
    data=st.data(),
    k=st.integers(0, 8),
    limit=st.integers(1, 40),
    draft=st.sampled_from(list(DRAFTS)),
    end=st.integers(97, 100),
)
def test_speculation_never_changes_how_a_text_ends(data, k, limit, draft, end):
    script = data.draw(st.lists(st.sampled_from(b"abcd"), min_size=40, max_size=40))
    strings = data.draw(st.lists(st.text("abc", min_size=1, max_size=4), max_size=2))
    options = {"limit": limit, "end_tokens": [end], "stop": tuple(strings)}
    plain, pieces = write(script, **options)
    made, chunks = write(script, draft=draft, k=k, **options)
    assert outcome(made) == outcome(plain)
    assert "".join(chunks) == "".join(pieces) == plain.text


SPECIAL = {256: "<end>", 257: "<a>"}


def slow_outcome(script, strings, limit):
    """Decode everything after each token, with special tokens and without, and cut at the first stop string."""
    naming = [s for s in strings if any(text in s for text in SPECIAL.values())]
    for written in range(1, limit + 1):
        shown, kept, places = "", "", []
        for token in script[:written]:
            text = SPECIAL.get(token) or chr(token)
            places += [len(shown)] * len(text)
            kept += text
            if token not in SPECIAL:
                shown += text
        found = [(shown.index(s), s) for s in strings if s in shown]
        found += [(places[kept.index(s)], s) for s in naming if s in kept]
        if found:
            at, match = min(found)
            return tuple(script[:written]), shown[:at], "stop", match
    return tuple(script[:limit]), shown, "length", None


@settings(max_examples=300)
@given(
    script=st.lists(st.sampled_from([*b"<a>bb", 256, 257, 257]), min_size=30, max_size=30),
    strings=st.lists(
        st.lists(st.sampled_from(["<a>", "<a>", "<end>", "<", "a", "b", ">"]), min_size=1, max_size=4).map("".join),
        max_size=3,
    ),
    k=st.integers(0, 8),
    limit=st.integers(1, 30),
    draft=st.sampled_from(list(DRAFTS)),
)
def test_stop_strings_find_special_tokens_as_a_search_in_the_whole_text_would(script, strings, k, limit, draft):
    made, chunks = write(script, draft=draft, k=k, stop=tuple(strings), limit=limit)
    assert outcome(made) == slow_outcome(script, strings, limit)
    assert "".join(chunks) == made.text
    assert not any(s in made.text for s in strings)


@pytest.mark.parametrize(
    ("script", "stop", "text"),
    [
        ([*b"foo", 257, *b"bar"], "<a>", "foo"),
        ([*b"foo", 257, *b"bar"], "oo<a>ba", "f"),
        ([*b"foo", 257, *b"bar"], "foobar", ""),
        ([*b"foo", 257, *b"bar"], "a>b", "foobar"),
        ([*b"foo", 257, 257, *b"bar"], "<a>bar", "foo"),
        ([*b"foo<a", *b">bar"], "<a>", "foo"),
        ([*b"fo", 0xC3, 257, 0xA9, *b"bar"], "<a>\u00e9", "fo"),
    ],
)
def test_what_a_special_token_in_a_stop_string_means(script, stop, text):
    made, chunks = write(script, draft="always right", k=4, stop=(stop,))
    assert ("".join(chunks), made.text, made.stop) == (text, text, stop if text != "foobar" else None)


def test_an_end_token_is_no_part_of_a_stop_string():
    made, _ = write([*b"foo", 256, *b"x"], stop=("foo<end>", "<end>"), end_tokens=[256])
    assert (made.text, made.stop) == ("foo", 256)


def test_an_empty_stop_string_and_stop_strings_without_a_tokenizer_are_refused():
    with pytest.raises(ConfigError, match="empty"):
        write(TEXT, stop=("",))
    with pytest.raises(ConfigError, match="tokenizer"):
        Stop(limit=WIDTH, strings=("x",))
