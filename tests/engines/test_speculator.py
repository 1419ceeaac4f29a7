"""The Python interface: streaming, checking, chat, and a process that stays the same size."""

from __future__ import annotations

import gc

import pytest
import torch

from draftproof import ConfigError, Speculator
from draftproof.testing import byte_tokenizer, chain_model, noisy, random_model


def follow(path, size):
    """A table of logits that walks along `path` and then stays."""
    table = torch.zeros(size, size)
    for here, there in zip(path, [*path[1:], path[-1]], strict=True):
        table[here, there] = 5.0
    return table


def test_five_lines_of_python(model):
    tokenizer = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
    speculator = Speculator(model, noisy(model, 0.1), k=5, tokenizer=tokenizer, draft_tokenizer=tokenizer)
    stream = speculator.stream("Hello", max_new_tokens=30)
    pieces = [chunk.text for chunk in stream]
    generation = speculator.generate("Hello", max_new_tokens=30, check=True)
    assert generation.identical
    assert "".join(pieces) == generation.text == stream.generation.text
    assert generation.prompt_tokens == 5
    assert generation.tokens_per_s > 0


def test_a_stream_can_be_left_early(model):
    stream = Speculator(model, model, k=3).stream([5, 9, 7], max_new_tokens=100)
    for _ in stream:
        break
    made = stream.cancel()
    assert made.finish_reason == "cancelled"
    assert len(made.tokens) == 4


def test_a_chat_ends_at_the_end_of_the_turn_that_only_the_target_knows():
    """Ids 257 and 260 end a text for the target; the draft's own settings name none."""
    tokenizer = byte_tokenizer(added=("<end>", "<eos>", "<user>", "<reply>", "<turn>"))
    tokenizer.chat_template = "<user>{{ messages[0]['content'] }}<reply>"
    path = [259, *dict.fromkeys(b"Fine!"), 260, 259]
    target = chain_model(follow(path, 264))
    target.generation_config.eos_token_id = [257, 260]
    speculator = Speculator(target, chain_model(follow(path, 264)), k=6, tokenizer=tokenizer)
    made = speculator.generate("How?", chat=True, check=True)
    assert made.text == "Fine!"
    assert (made.finish_reason, made.stop) == ("stop", 260)
    assert made.counts.acceptance_rate == 1.0


def test_added_tokens_beyond_the_vocabularys_own_size_are_kept():
    tokenizer = byte_tokenizer(added=("<end>", "<mark>"))
    path = [97, 257, 98, 99]
    model = chain_model(follow(path, 264))
    speculator = Speculator(model, model, k=3, tokenizer=tokenizer, draft_tokenizer=tokenizer)
    assert speculator.encode("x<mark>a") == [120, 257, 97]
    made = speculator.generate("a", max_new_tokens=3, check=True)
    assert made.tokens == (257, 98, 99)
    assert made.text == "bc"


def test_a_chain_model_is_its_table():
    table = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    logits = chain_model(table)(input_ids=torch.arange(20)[None]).logits[0]
    assert torch.allclose(logits, table, atol=1e-5)


@pytest.mark.parametrize("k", [0, 4])
def test_many_requests_leave_nothing_behind(k):
    model = random_model(num_hidden_layers=1)
    speculator = Speculator(model, noisy(model, 0.1), k=4)

    def tensors():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    for _ in range(5):
        speculator.generate([5, 9, 7], max_new_tokens=8, k=k)
    before = tensors()
    for i in range(60):
        speculator.generate([i, 9, 7], max_new_tokens=8, k=k)
    assert tensors() <= before


def test_long_requests_do_not_use_up_the_draft(model):
    speculator = Speculator(model, model, k=4, draft_window=128)
    for i in range(10):
        counts = speculator.generate([(i + 7 * j) % 300 for j in range(100)], max_new_tokens=20).counts
        assert counts.acceptance_rate == 1.0
        assert counts.proposed > 0


def test_the_global_random_state_and_the_models_configs_are_left_alone(model):
    state = torch.get_rng_state()
    before = model.config.to_dict() | model.generation_config.to_dict()
    Speculator(model, model, k=3).generate([5, 9, 7], max_new_tokens=20)
    assert torch.equal(state, torch.get_rng_state())
    assert before == model.config.to_dict() | model.generation_config.to_dict()


def test_a_conversation_is_written_after_by_every_way_of_asking(model):
    tokenizer = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
    tools = "{% for t in tools or [] %}{{ t.name }}{% endfor %}"
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}" + tools
    speculator = Speculator(model, noisy(model, 0.1), k=3, tokenizer=tokenizer, draft_tokenizer=tokenizer)
    talk = {
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "tools": [{"name": "f"}],
        "max_new_tokens": 9,
    }
    made = speculator.generate(**talk, check=True)
    stream = speculator.stream(**talk)
    assert "".join(chunk.text for chunk in stream) == made.text
    assert made.tokens == stream.generation.tokens
    assert [g.tokens for g in speculator.samples(**talk, n=2)] == [made.tokens] * 2
    assert speculator.generate(list(b"system:s|user:u|f"), max_new_tokens=9).tokens == made.tokens
    rest = speculator.encode(messages=talk["messages"], continue_final_message=True)
    assert rest == list(b"system:s|user:u")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "no prompt"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "whole prompt"),
        ({"chat": True, "messages": [{"role": "user", "content": "x"}]}, "whole prompt"),
        ({"prompt": "x", "tools": []}, "belong to a conversation"),
    ],
)
def test_a_request_names_one_thing_to_continue(model, asked, says):
    with pytest.raises(ConfigError, match=says):
        Speculator(model, tokenizer=byte_tokenizer()).generate(**asked)


@pytest.mark.parametrize(("ends", "noted"), [({"eos_token_id": 256}, False), ({"eos_token_id": 9}, True), ({}, True)])
def test_a_tokenizers_end_token_that_ends_no_text_is_noted(ends, noted):
    speculator = Speculator(random_model(num_hidden_layers=1, **ends), tokenizer=byte_tokenizer())
    said = [note for note in speculator.notes if "'<end>' (id 256) is not among the model's end tokens" in note]
    assert len(said) == noted


@pytest.mark.parametrize("asked", [{}, {"temperature": 1.0}, {"temperature": 1.0, "verify": "block"}])
def test_an_id_that_the_draft_names_otherwise_is_written_and_never_guessed(asked):
    names = [f"<{i}>" for i in range(44)]
    others = ["<end>" if i == 5 else name for i, name in enumerate(names)]
    path = [65, 66, 256 + 5, 67, 68]
    target = chain_model(follow(path, 300) * 10)
    speculator = Speculator(target, target, 4, tokenizer=byte_tokenizer(names), draft_tokenizer=byte_tokenizer(others))
    assert any("id 261 is '<5>' for the target and '<end>' for the draft" in note for note in speculator.notes)
    made = speculator.generate([65], max_new_tokens=12, **asked, seed=0)
    assert made.tokens[:4] == tuple(path[1:])
    assert not any(261 in r.proposed for r in made.rounds)
    assert made.counts.discarded == 0 < made.counts.accepted
