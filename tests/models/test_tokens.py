"""Text comes out whole and once; two tokenizers are one only if their tables agree."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from draftproof import ConfigError, PairError
from draftproof.models.tokens import Agreement, TextStream, compare_vocabularies, encode
from draftproof.testing import byte_tokenizer
from tests.decode.writing import DRAFTS, TOKENIZER, write

HARD = "naïve ďábel 漢字 👩‍👩‍👧 e\u0301"


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", range(1, 9))
def test_no_chunk_ever_holds_half_a_character(draft, k):
    made, chunks = write(HARD, draft=draft, k=k)
    assert "".join(chunks) == made.text == HARD
    assert not any("\ufffd" in chunk for chunk in chunks)


def test_bytes_that_never_became_a_character_are_flushed_as_decode_does():
    script = "漢字".encode()[:5]
    made, chunks = write(script, draft="always right", k=3)
    assert "".join(chunks) == made.text == TOKENIZER.decode(list(script)) == "漢\ufffd"


def test_a_character_that_the_prompt_began_belongs_to_the_text():
    character = "漢".encode()
    made, chunks = write([*character[2:], *b"!"], prompt=[*b"Hello ", *character[:2]], draft="always right", k=2)
    assert "".join(chunks) == made.text == "漢!"


@given(st.lists(st.integers(0, 256), min_size=1, max_size=120), st.binary(min_size=1, max_size=30))
def test_joined_pieces_are_what_decoding_everything_gives(tokens, prompt):
    """Any bytes at all, valid text or not: streaming shows what decoding at once would."""
    stream = TextStream(TOKENIZER, list(prompt))
    streamed = "".join([*(stream.push(t) for t in tokens), stream.finish()])
    shown = TOKENIZER.decode(list(prompt)).rstrip("\ufffd")
    assert streamed == TOKENIZER.decode([*prompt, *tokens], skip_special_tokens=True)[len(shown) :]


def sentencepiece_like():
    vocabulary = {"<unk>": 0, "▁the": 1, "▁cat": 2, "s": 3, "▁": 4}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_the_space_before_the_first_word_is_kept():
    stream = TextStream(sentencepiece_like(), [1])
    assert [stream.push(2), stream.push(3), stream.push(2)] == [" cat", "s", " cat"]


def byte_fallback():
    """Tokens for single bytes beside whole words, as Llama 2, Mistral and Gemma have them."""
    vocabulary = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}, "▁": 257, "h": 258, "i": 259, "▁hi": 260}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def stream_all(tokenizer, prompt, tokens):
    stream = TextStream(tokenizer, prompt)
    return "".join([*(stream.push(t) for t in tokens), stream.finish()])


@pytest.mark.parametrize("prompt", ["hi", "漢字" * 4, "hi" + "漢字" * 7])
@pytest.mark.parametrize("text", ["hi", "漢字" * 10, "hi漢hi字" * 8])
def test_runs_of_byte_tokens_stream_whole_and_never_repeat_the_prompt(prompt, text):
    as_bytes = [[b + 1 for b in t.encode()] for t in (prompt, text)]
    assert stream_all(byte_fallback(), *as_bytes) == text


def test_a_stray_byte_in_a_run_leaves_what_was_shown():
    tokens = [b + 1 for b in "漢".encode()] + [0xE6 + 1, 258]
    assert stream_all(byte_fallback(), [258], tokens) == "漢\ufffdh"


def test_a_prompt_that_really_ends_in_the_replacement_character_keeps_it():
    assert stream_all(TOKENIZER, list("a\ufffd".encode()), list(b"bc")) == "bc"


def test_what_is_finished_is_shown_before_the_unfinished_rest_of_a_token():
    tokenizer = byte_tokenizer(merges=[("a", "Ã")])  # one token: an a, and the first byte of é
    stream = TextStream(tokenizer, list(b"x"))
    assert [stream.push(256), stream.push(0xA9)] == ["a", "é"]


def test_special_tokens_are_left_out_of_the_text_and_kept_as_ids():
    made, chunks = write([*b"ab", 256, *b"cd"], draft="always right", k=3)
    assert made.text == "".join(chunks) == "abcd"
    assert made.tokens == (*b"ab", 256, *b"cd")


def test_an_empty_prompt_needs_a_start_token():
    with pytest.raises(ConfigError, match="prompt is empty"):
        encode(byte_tokenizer(), "")
    tokenizer = byte_tokenizer(added=("<end>", "<start>"))
    tokenizer.bos_token = "<start>"
    assert encode(tokenizer, "") == [257]


def test_a_chat_needs_a_template_and_a_message():
    tokenizer = byte_tokenizer(added=("<end>", "<user>", "<reply>"))
    with pytest.raises(ConfigError, match="chat template"):
        encode(tokenizer, "hi", chat=True)
    tokenizer.chat_template = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}<reply>"
    assert encode(tokenizer, "hi", chat=True) == [257, *b"hi", 258]
    with pytest.raises(ConfigError, match="empty"):
        encode(tokenizer, " ", chat=True)


def test_bytes_that_are_no_text_and_templates_that_refuse_are_config_errors():
    tokenizer = byte_tokenizer()
    with pytest.raises(ConfigError, match="UTF-8"):
        encode(tokenizer, "abc \udcff")
    tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    with pytest.raises(ConfigError, match="no such role"):
        encode(tokenizer, "hi", chat=True)


def test_equal_tables_are_one_tokenizer_whatever_their_class():
    assert compare_vocabularies(byte_tokenizer(), byte_tokenizer()) == Agreement()


def test_a_few_tokens_more_on_one_side_are_allowed_with_a_note():
    longer = byte_tokenizer(added=("<end>", "<image>", "<audio>"))
    assert "2 more only in the target's" in compare_vocabularies(longer, byte_tokenizer()).note
    assert "2 only in the draft's" in compare_vocabularies(byte_tokenizer(), longer).note


def test_few_reserved_tokens_may_have_other_names_and_are_never_guessed():
    ours, theirs = byte_tokenizer(added=("<x>", "<end>")), byte_tokenizer(added=("<x>", "<stop>"))
    found = compare_vocabularies(ours, theirs)
    assert found.differing == {257}
    assert "1 reserved ids are named differently (id 257 is '<end>' for the target and '<stop>' for" in found.note


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (
            ("<x>", "<a>", "<b>", "<c>"),
            ("<x>", "<b>", "<c>", "<a>"),
            "id 257 is '<a>' for the target and '<b>'.*3 of 260",
        ),
        ((), ("<x>",), None),
    ],
)
def test_more_than_one_in_a_hundred_is_too_many(ours, theirs, says):
    ours, theirs = byte_tokenizer(added=ours), byte_tokenizer(added=theirs)
    if says is None:
        assert compare_vocabularies(ours, theirs).differing == set()
    else:
        with pytest.raises(PairError, match=says):
            compare_vocabularies(ours, theirs)


@pytest.mark.parametrize("name", ["word", "<0x0A>"])
def test_a_token_that_is_text_for_one_of_them_may_not_differ(name):
    tables = [{f"t{i}": i for i in range(300)} for _ in range(2)]
    del tables[1]["t7"]
    tables[1][name] = 7
    ours, theirs = (PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(t, []))) for t in tables)
    with pytest.raises(PairError, match="id 7 is"):
        compare_vocabularies(ours, theirs)


def test_ids_that_read_alike_are_told_apart_by_their_entries():
    ours, theirs = byte_tokenizer(), byte_tokenizer()
    table = json.loads(theirs.backend_tokenizer.to_str())
    vocabulary = table["model"]["vocab"]
    one, two, *_ = (name for name, token in vocabulary.items() if ours.decode([token]) == "\N{REPLACEMENT CHARACTER}")
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    theirs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(table)))
    with pytest.raises(
        PairError, match=f"'{one}' for the target and '{two}' for|'{two}' for the target and '{one}' for"
    ):
        compare_vocabularies(ours, theirs)


def test_equal_sizes_with_swapped_tokens_are_refused():
    one = byte_tokenizer(merges=[("t", "h"), ("h", "e")])
    two = byte_tokenizer(merges=[("h", "e"), ("t", "h")])
    assert len(one) == len(two)
    with pytest.raises(PairError, match="id 256 is 'th' for the target and 'he' for the draft \\(2 of 259"):
        compare_vocabularies(one, two)


def test_a_mismatch_is_found_in_150_000_tokens_without_a_wait():
    size = 150_000
    tables = [{f"t{i + (shift if i == size - 1 else 0)}": i for i in range(size)} for shift in (0, 1)]
    ours, theirs = (PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(t, []))) for t in tables)
    started = time.process_time()
    with pytest.raises(PairError, match="id 149999"):
        compare_vocabularies(ours, theirs)
    assert time.process_time() - started < 30, "a sanity bound, not a benchmark"
