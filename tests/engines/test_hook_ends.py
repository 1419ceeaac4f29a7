"""What ends a text in the hook, and who hears it: the record's reason, streamers, errors on the way."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from transformers import AsyncTextIteratorStreamer, StopStringCriteria, TextIteratorStreamer, TextStreamer
from transformers.generation import (
    BaseStreamer,
    EosTokenCriteria,
    MaxLengthCriteria,
    StoppingCriteria,
)

from draftproof import custom_generate
from draftproof.testing import byte_tokenizer, noisy

PROMPT = torch.tensor([[5, 9, 200, 7]])
TOKENIZER = byte_tokenizer(added=[f"<{i}>" for i in range(44)])


def plain(model, **options):
    settings = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0} | options
    return model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **settings)


def ended(model, **options):
    """Why the hook says that its text, which is generate's own, ended."""
    hook = custom_generate(noisy(model, 0.1), k=4)
    assert torch.equal(plain(model, custom_generate=hook, **options), plain(model, **options))
    return hook.generation.finish_reason, hook.generation.stop


class After(StoppingCriteria):
    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores, **kwargs):
        return torch.tensor([input_ids.shape[1] >= self.length])


class Plainly(After):
    def __call__(self, input_ids, scores, **kwargs):
        return input_ids.shape[1] >= self.length  # no tensor


@pytest.mark.parametrize("at", [3, 19])
def test_the_record_names_what_ended_the_text_also_at_the_limit(model, at):
    text = plain(model)[0, 4:].tolist()
    limit = {"max_new_tokens": at + 1}
    assert ended(model, **limit) == ("length", None)
    assert ended(model, eos_token_id=[299, text[at]], **limit) == ("stop", text[at])
    assert ended(model, stopping_criteria=[After(4 + at + 1)], **limit) == ("stop", "After")
    assert ended(model, stopping_criteria=[Plainly(4 + at)], **limit) == ("stop", "Plainly")
    string = TOKENIZER.decode(text[at - 1 : at + 1]).lstrip("\ufffd")
    for strings in ([string], ["nowhere", string, "\0never"], ["x" + string, string]):
        criteria = [StopStringCriteria(TOKENIZER, strings)]
        assert ended(model, stopping_criteria=criteria, **limit) == ("stop", string)


def test_a_time_limit_is_an_interruption_and_no_stop(model):
    hook = custom_generate(model, k=3)
    out = plain(model, max_time=0.0, custom_generate=hook)
    assert out.shape == (1, 5)
    assert (hook.generation.finish_reason, hook.generation.stop) == ("cancelled", "MaxTimeCriteria")


def test_criteria_of_the_users_take_the_place_of_generates_own(model):
    text = plain(model, max_new_tokens=40)[0, 4:].tolist()
    assert ended(model, stopping_criteria=[MaxLengthCriteria(9)]) == ("length", None)
    assert ended(model, stopping_criteria=[MaxLengthCriteria(39)], max_new_tokens=3) == ("length", None)
    own = [EosTokenCriteria(text[12])]
    assert ended(model, stopping_criteria=own, eos_token_id=text[5], max_new_tokens=40) == ("stop", text[12])
    penalised = {"repetition_penalty": 1.2, "max_new_tokens": 40}  # so that rows are asked for one by one
    text = plain(model, **penalised)[0, 4:].tolist()
    own = [EosTokenCriteria(text[12])]
    assert ended(model, stopping_criteria=own, eos_token_id=text[5], **penalised) == ("stop", text[12])


class Listener(BaseStreamer):
    def __init__(self):
        self.heard = []

    def put(self, value):
        self.heard.append(value.tolist())

    def end(self):
        self.heard.append("end")


@pytest.mark.parametrize("where", ["hook", "generate", "both"])
def test_a_streamer_hears_what_it_hears_from_generate(model, where):
    expected, listener = Listener(), Listener()
    plain(model, streamer=expected)
    hook = custom_generate(model, k=4, streamer=None if where == "generate" else listener)
    plain(model, custom_generate=hook, streamer=None if where == "hook" else listener)
    assert listener.heard == expected.heard


@pytest.mark.parametrize("skip_prompt", [True, False])
@pytest.mark.parametrize("given_to_generate", [True, False])
def test_streamed_text_is_generates_own(model, capsys, skip_prompt, given_to_generate):
    def write(streamer, with_hook):
        if not with_hook:
            return plain(model, streamer=streamer)
        given = (None, streamer) if given_to_generate else (streamer, None)
        hook = custom_generate(noisy(model, 0.1), k=4, streamer=given[0])
        return plain(model, custom_generate=hook, streamer=given[1])

    def printed(with_hook):
        write(TextStreamer(TOKENIZER, skip_prompt=skip_prompt), with_hook)
        return capsys.readouterr().out

    def iterated(with_hook):
        streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=skip_prompt, timeout=60)
        thread = threading.Thread(target=write, args=(streamer, with_hook))
        thread.start()
        pieces = list(streamer)
        thread.join()
        return pieces

    async def awaited(with_hook):
        streamer = AsyncTextIteratorStreamer(TOKENIZER, skip_prompt=skip_prompt, timeout=60)
        work = asyncio.get_running_loop().run_in_executor(None, write, streamer, with_hook)
        pieces = [piece async for piece in streamer]
        await work
        return pieces

    assert printed(True) == printed(False) != ""
    assert iterated(True) == iterated(False) != []
    assert asyncio.run(awaited(True)) == iterated(False)


def test_a_record_is_kept_of_a_text_that_a_streamer_ended(model):
    class FullError(Exception):
        pass

    class Faulty(Listener):
        def put(self, value):
            super().put(value)
            if len(self.heard) > 6:
                raise FullError

    expected = plain(model)[0, 4:].tolist()
    hook = custom_generate(model, k=3, streamer=(streamer := Faulty()))
    with pytest.raises(FullError):
        plain(model, custom_generate=hook)
    made = hook.generation
    assert made.finish_reason == "cancelled"
    assert list(made.tokens) == expected[: len(made.tokens)]
    assert 6 <= len(made.tokens) < 20
    assert streamer.heard[1:] == [[token] for token in expected[:6]]
    hook.streamer = None
    assert plain(model, custom_generate=hook)[0, 4:].tolist() == expected
