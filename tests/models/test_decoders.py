"""A stream shows what its tokens add to the decoded prompt, for every kind of decoder and whatever the ids are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from draftproof.models.tokens import UNFINISHED, TextStream, pieces
from draftproof.testing import byte_tokenizer

WORDS = ["▁", "h", "i", "▁hi", "▁▁", "é", "漢"]
BYTES = [f"<0x{b:02X}>" for b in (0x20, 0x41, 0xC3, 0xA9, 0xE6, 0xBC, 0xA2, 0xFF, 0xEF, 0xBF, 0xBD)]


def fallback(*last):
    """As Llama 2, Mistral and Gemma: single bytes beside words; the first have a space stripped at the front."""
    tokenizer = Tokenizer(models.BPE({w: i for i, w in enumerate(["<unk>", *BYTES, *WORDS])}, [], unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def words(decoder, vocabulary):
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token=vocabulary[0]))
    tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


KINDS = {
    "byte-level": byte_tokenizer(merges=[("a", "Ã"), ("Ġ", "a")]),
    "byte fallback": fallback(),
    "byte fallback, stripped": fallback(decoders.Strip(" ", 1, 0)),
    "metaspace": words(decoders.Metaspace(), ["<unk>", *WORDS]),
    "word pieces": words(decoders.WordPiece("##", cleanup=False), ["[UNK]", "a", "##b", "##c", ".", "don", "'", "t"]),
    "suffixes": words(decoders.BPEDecoder("</w>"), ["<unk>", "a", "b</w>", "c", "d</w>"]),
}


def shown_of(tokenizer, prompt):
    """What of the prompt was readable: not a character that it leaves unfinished."""
    texts = [decode(tokenizer, prompt[: len(prompt) - n]) for n in range(min(4, len(prompt) + 1))]
    return next((text for text in texts if not text.endswith(UNFINISHED)), texts[0].rstrip(UNFINISHED))


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_stream_adds_up_to_what_decoding_everything_adds_to_the_prompt(kind, data):
    tokenizer = KINDS[kind]
    ids = st.integers(0, len(tokenizer) - 1)
    prompt = data.draw(st.lists(ids, min_size=1, max_size=30), label="prompt")
    tokens = data.draw(st.lists(ids, min_size=1, max_size=40), label="tokens")
    stream = TextStream(tokenizer, prompt)
    before = shown_of(tokenizer, prompt)
    parts, rewritten = [], False
    for i, token in enumerate(tokens):
        parts.append(stream.push(token))
        whole = decode(tokenizer, [*prompt, *tokens[: i + 1]])
        rewritten |= not whole.startswith(before + "".join(parts))
    joined = "".join([*parts, stream.finish()])
    whole = decode(tokenizer, [*prompt, *tokens])
    if not rewritten:  # a decoder that makes other characters of bytes that were text before leaves nothing to compare
        assert joined == whole[len(before) :]
    assert "".join(pieces(tokenizer, prompt, tokens)) == joined
