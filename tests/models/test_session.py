"""A session runs only what it has not read, and entries of rejected tokens never weigh in."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

from draftproof import CacheError, ConfigError, Speculator
from draftproof.models.session import ModelSession, common_prefix
from draftproof.models.trial import check_cache
from draftproof.testing import noisy
from tests.architectures import CONFIGS, build


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30))
def test_common_prefix_is_the_longest(a, b):
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def count_tokens(session):
    """Record how many tokens each forward pass of the session reads."""
    seen = []
    run = session.runner.run
    session.runner.run = lambda spans: seen.extend(len(span.tokens) for span in spans) or run(spans)
    return seen


def test_only_what_is_missing_is_read(model):
    session = ModelSession(model)
    seen = count_tokens(session)
    session.read([1, 2, 3, 4, 5])
    session.read([1, 2, 3, 4, 5, 6])
    session.read([1, 2, 3, 9, 9])
    session.read([1, 2, 3, 9, 9])
    assert seen == [5, 1, 2, 1]
    assert session.held == [1, 2, 3, 9, 9]


@pytest.mark.parametrize("name", CONFIGS)
def test_stale_entries_filled_with_huge_numbers_never_change_a_bit(name):
    model = build(name)
    prompt = [5, 9, 200, 7, 33, 1, 2, 3, 4, 8]

    def rows(poisoned):
        speculator = Speculator(model, noisy(model, 0.3), k=4)
        kept = []
        for session in (speculator._target_session, speculator._model.session):
            read = session.read

            @torch.inference_mode()
            def spoil(sequence, last=1, whole=None, session=session, read=read):
                if poisoned:
                    stay = common_prefix(session.held, sequence)
                    for layer in session.cache.layers:
                        if layer.is_initialized:
                            layer.keys[:, :, stay:] = 1e30
                            layer.values[:, :, stay:] = -1e30
                out = read(sequence, last, whole)
                kept.append(out.clone())
                return out

            session.read = spoil
        made = speculator.generate(prompt, max_new_tokens=30)
        assert made.counts.discarded
        return made.tokens, kept

    (clean_tokens, clean), (tokens, poisoned) = rows(False), rows(True)
    assert tokens == clean_tokens
    assert all(torch.equal(a, b) for a, b in zip(clean, poisoned, strict=True))


def test_proposals_are_those_of_a_draft_without_a_cache(model):
    draft = noisy(model, 0.1)
    speculator = Speculator(model, draft, k=4)
    text = [5, 9, 200, 7]
    for chunk in speculator.stream(text, max_new_tokens=80):
        standing = list(text)
        for guess in chunk.round.proposed:
            with torch.inference_mode():
                logits = draft(input_ids=torch.tensor([standing]), use_cache=False).logits
            assert guess == int(logits[0, -1].argmax())
            standing.append(guess)
        text += chunk.round.tokens
        assert len(speculator._model.session.held) <= len(text) - 1 + chunk.round.draft_passes
    assert len(text) == 84


@pytest.mark.parametrize(("prompt", "k"), [(50, 8), (56, 16), (63, 3)])
def test_the_text_ends_where_the_targets_window_does(prompt, k):
    from draftproof.testing import random_model

    model = random_model(max_position_embeddings=64)
    ids = [(11 * i + 3) % 300 for i in range(prompt)]
    made = Speculator(model, model, k=k).generate(ids, max_new_tokens=200)
    assert len(ids) + len(made.tokens) == 64
    assert made.finish_reason == "length"
    assert [warning.split(",")[0] for warning in made.warnings] == ["the target's window of 64 tokens is full"]
    assert not Speculator(model, model, k=k).generate(ids, max_new_tokens=64 - len(ids)).warnings
    assert made.tokens == Speculator(model).generate(ids, max_new_tokens=200).tokens
    with pytest.raises(ConfigError, match="window"):
        Speculator(model).generate([1] * 64)


def test_a_window_larger_than_the_models_is_refused(model):
    with pytest.raises(ConfigError, match="257"):
        Speculator(model, model, draft_window=257)


def test_recurrent_and_encoder_decoder_models_are_refused_by_name():
    config = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(CacheError, match="mamba"):
        ModelSession(MambaForCausalLM(config))


def test_a_model_that_reads_pieces_otherwise_than_the_whole_is_refused(model):
    class Forgetful(LlamaForCausalLM):
        def forward(self, input_ids=None, position_ids=None, cache=None, attention_mask=None, **kwargs):
            mask = None if attention_mask is None else attention_mask[..., -input_ids.shape[1] :]
            return super().forward(input_ids=input_ids, position_ids=position_ids, attention_mask=mask, **kwargs)

    broken = Forgetful(LlamaConfig(**model.config.to_dict())).eval()
    with pytest.raises(CacheError, match="in pieces"):
        check_cache(broken)
    check_cache(model)


def test_a_model_in_training_mode_is_sent_to_eval():
    from draftproof.testing import random_model

    with pytest.raises(ConfigError, match=r"eval\(\)"):
        check_cache(random_model().train())


@pytest.mark.parametrize("kind", ["moshi", "doge"])
def test_windows_applied_in_a_way_of_their_own_are_refused(kind):
    from transformers import DogeConfig, DogeForCausalLM, MoshiConfig, MoshiForCausalLM

    shape = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if kind == "moshi":
        model = MoshiForCausalLM(MoshiConfig(**shape, ffn_dim=32, sliding_window=8, head_dim=8))
    else:
        model = DogeForCausalLM(DogeConfig(**shape, intermediate_size=32, keep_window_size=8))
    with pytest.raises(CacheError, match="way of its own"):
        check_cache(model.eval())


def test_what_an_architecture_raises_in_the_check_is_a_cache_error():
    from transformers import FalconConfig, FalconForCausalLM

    shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(CacheError, match="falcon"):
        check_cache(FalconForCausalLM(FalconConfig(**shape, alibi=True)).eval())


def test_two_threads_may_use_one_speculator(model):
    from concurrent.futures import ThreadPoolExecutor

    speculator = Speculator(model, noisy(model, 0.1), k=3)
    prompts = [[i, 9, 200] for i in range(6)]
    expected = [speculator.generate(p, max_new_tokens=20, k=0).tokens for p in prompts]
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda p: speculator.generate(p, max_new_tokens=20).tokens, prompts * 3))
    assert made == expected * 3


def test_other_attention_kernels_are_refused(model):
    import copy

    twin = copy.deepcopy(model)
    twin.config._attn_implementation = "flash_attention_2"
    with pytest.raises(CacheError, match="sdpa"):
        ModelSession(twin)


def test_drafts_can_be_swapped_in_one_process(model):
    prompt = [5, 9, 7]
    plain = Speculator(model).generate(prompt, max_new_tokens=40).tokens
    deep, shallow = noisy(model, 0.1), build("llama")
    for draft in (deep, shallow, None, deep):
        assert Speculator(model, draft, k=4).generate(prompt, max_new_tokens=40).tokens == plain


def test_a_run_depends_on_no_run_before_it(model):
    speculator = Speculator(model, noisy(model, 0.1), k=4)
    first = speculator.generate([5, 9, 7], max_new_tokens=40)
    other = speculator.generate([8, 8, 1, 2], max_new_tokens=40)
    again = speculator.generate([5, 9, 7], max_new_tokens=40)
    assert again.counts == first.counts != other.counts
    assert [r.proposed for r in again.rounds] == [r.proposed for r in first.rounds]


@pytest.mark.parametrize(
    ("where", "says"),
    [("disk", "weights are offloaded .*load it without device_map"), ("meta", "hold no numbers .*from_pretrained")],
)
def test_a_model_without_numbers_is_told_why(model, tmp_path, where, says):
    model.save_pretrained(tmp_path)
    if where == "disk":
        absent = LlamaForCausalLM.from_pretrained(tmp_path, device_map={"": "disk"}, offload_folder=tmp_path / "off")
    else:
        with torch.device("meta"):
            absent = LlamaForCausalLM(model.config).eval()
    with pytest.raises(ConfigError, match=says):
        Speculator(absent)


def test_a_text_that_is_begun_again_is_read_but_for_what_is_held(model):
    """Compiled, a prompt that goes on from what was written is read from there, with the same bits."""
    speculator = Speculator(model, noisy(model, 0.1), k=3, compile="on")
    first = speculator.generate([5, 9, 200, 7], max_new_tokens=30, logprobs=True)
    turn = [5, 9, 200, 7, *first.tokens, 11, 12]
    session = speculator._target_session
    before = session.passes
    second = speculator.generate(turn, max_new_tokens=20, logprobs=True)
    assert second.prompt_tokens_reused == len(turn) - 3  # the first text's last token was never read
    assert session.passes - before == second.counts.rounds + 1
    fresh = Speculator(model, noisy(model, 0.1), k=3, compile="on").generate(turn, max_new_tokens=20, logprobs=True)
    assert (fresh.tokens, fresh.logprobs) == (second.tokens, second.logprobs) and fresh.prompt_tokens_reused == 0
    speculator.forget()
    assert speculator.generate(turn, max_new_tokens=20).prompt_tokens_reused == 0
    again = speculator.samples(turn, 3, max_new_tokens=5, temperature=1.0)
    assert [made.prompt_tokens_reused for made in again] == [0, len(turn) - 1, len(turn) - 1]


def test_through_transformers_nothing_is_held_from_one_request_to_the_next(model):
    speculator = Speculator(model)
    speculator.generate([5, 9, 200, 7], max_new_tokens=5)
    assert speculator.generate([5, 9, 200, 7], max_new_tokens=5).prompt_tokens_reused == 0


@pytest.mark.parametrize("numerics", ["fixed", "fast"])
def test_two_requests_in_turns_write_what_each_writes_alone(model, numerics):
    """The second may be longer: the first's passes keep their shape, and re-read what they had written alike."""
    if numerics == "fixed":
        model = copy.deepcopy(model).to(torch.bfloat16)
    speculator = Speculator(model, noisy(model, 0.1), k=4, numerics=numerics)
    prompts = [[5, 9, 200, 7], [5, 9, 200, 7, 11, 3] * 3]
    limits = [30, 200]
    given = [{"max_new_tokens": limit, "logprobs": True} for limit in limits]
    alone = [speculator.generate(p, **how) for p, how in zip(prompts, given, strict=True)]
    streams = [speculator.stream(p, **how) for p, how in zip(prompts, given, strict=True)]
    for _ in range(8):
        for stream in streams:
            next(stream)
    together = [stream.generation for stream in streams]
    for mine, theirs in zip(together, alone, strict=True):
        written = len(mine.tokens)
        assert mine.tokens == theirs.tokens[:written] and written >= 8
        if numerics == "fixed":
            assert mine.logprobs == theirs.logprobs[:written]
