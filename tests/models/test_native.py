"""Compiled passes give transformers' logits, and a row's bits depend on nothing but the text before it."""

from __future__ import annotations

import pytest
import torch

from draftproof import ConfigError, Speculator
from draftproof.bench.one_pass import one_pass
from draftproof.clock import DeviceClock
from draftproof.engines.hf_assisted import HfAssisted
from draftproof.models.load import load
from draftproof.models.native import library as library_module
from draftproof.models.native.cache import NativeCache
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.quantise import quantise
from draftproof.models.span import Span
from draftproof.testing import noisy, random_model
from tests.architectures import NATIVE, build

IDS = [(11 + 7 * i) % 300 for i in range(60)]


def plain_rows(model, ids=IDS):
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def read(cache, tokens, start, last):
    return NativeRunner(cache.decoder).run([Span(cache, tokens, start, last)])[0].logits


def write(cache, tokens, start, count):
    return NativeRunner(cache.decoder).write(cache, tokens, start, count)


def rows_in_pieces(decoder, pieces, ids=IDS):
    cache, start, rows = NativeCache(decoder), 0, []
    for size in pieces:
        rows.append(read(cache, ids[start : start + size], start, size))
        start += size
    return torch.cat(rows)


@pytest.mark.parametrize("name", NATIVE)
def test_logits_are_those_of_transformers(name):
    model = build(name)
    rows = rows_in_pieces(NativeDecoder(model), [len(IDS)])
    wanted = plain_rows(model)
    assert (rows - wanted).abs().max() < 1e-4 * wanted.abs().max()


@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": True},
        {"vocab_size": 301},
        {"attention_bias": True, "mlp_bias": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 32},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 1e4,
            }
        },
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_a_llama_mean_the_same(settings):
    model = random_model(**settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    rows = rows_in_pieces(NativeDecoder(model), [len(IDS)])
    wanted = plain_rows(model)
    assert (rows - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_in_bfloat16_they_are_closer_to_float32_than_transformers_own():
    exact = plain_rows(random_model())
    model = random_model().to(torch.bfloat16)
    rounded = plain_rows(model.float())  # the same weights, no rounding on the way
    model = model.to(torch.bfloat16)
    ours = (rows_in_pieces(NativeDecoder(model), [len(IDS)]) - rounded).square().mean()
    theirs = (plain_rows(model) - rounded).square().mean()
    assert ours < theirs
    assert ours < exact.square().mean() / 100


PIECES = [[1] * 60, [60], [20, 1, 1, 9, 13, 16], [7, 2, 3, 4, 5, 6, 33], [12, 13, 25, 10]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NATIVE)
def test_a_row_has_the_same_bits_in_passes_of_every_shape(name, dtype):
    decoder = NativeDecoder(build(name).to(dtype))
    first, *others = (rows_in_pieces(decoder, pieces) for pieces in PIECES)
    assert all(torch.equal(first, rows) for rows in others)


def test_the_number_of_threads_changes_no_bit():
    decoder = NativeDecoder(random_model().to(torch.bfloat16))
    one = rows_in_pieces(decoder, [20, 1, 9, 30])
    try:
        torch.set_num_threads(3)
        three = rows_in_pieces(decoder, [20, 1, 9, 30])
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one, three)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "mistral-window"])
def test_stale_entries_filled_with_huge_numbers_never_change_a_bit(name, dtype):
    decoder = NativeDecoder(build(name).to(dtype))
    wanted = rows_in_pieces(decoder, [60])
    layers, _, heads, size = decoder.kv_shape
    cache = NativeCache(decoder)
    cache.need(100)
    cache._data.view(dtype).fill_(1e30)
    rows = torch.cat([read(cache, IDS[:30], 0, 30), read(cache, IDS[30:39], 30, 9), read(cache, IDS[39:], 39, 21)])
    assert torch.equal(rows, wanted)
    assert (layers, heads, size) == (2, 2, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_going_back_is_writing_again(dtype):
    decoder = NativeDecoder(random_model().to(dtype))
    cache = NativeCache(decoder)
    read(cache, IDS[:30], 0, 1)
    read(cache, [5, 6, 7, 8, 9], 20, 1)  # other tokens from position 20 on
    assert torch.equal(read(cache, IDS[20:60], 20, 40), rows_in_pieces(decoder, [60])[20:])


@pytest.mark.parametrize("tokens", [[7], IDS[:20]])
def test_writing_is_reading_the_most_likely_token_again_and_again(tokens):
    decoder = NativeDecoder(random_model())
    cache, other = NativeCache(decoder), NativeCache(decoder)
    written, sure = write(cache, tokens, 0, 8)
    text = list(tokens)
    for token, share in zip(written, sure, strict=True):
        row = read(other, text, 0, 1)[0]
        assert int(row.argmax()) == token
        assert float(row.softmax(-1).max()) == pytest.approx(share, rel=1e-5)
        text.append(token)
    assert torch.equal(read(cache, [written[-1]], len(text) - 1, 1), read(other, text, 0, 1))


def test_of_equal_logits_the_lowest_id_is_written():
    model = random_model()
    with torch.no_grad():
        model.lm_head.weight[:] = model.lm_head.weight[0]
    assert write(NativeCache(NativeDecoder(model)), [7], 0, 3)[0] == [0, 0, 0]


def test_logits_that_are_not_numbers_are_told():
    model = random_model()
    with torch.no_grad():
        model.lm_head.weight[17] = float("nan")
    draft = Speculator(random_model(), model, k=3, compile="on")
    made = draft.generate([5, 9, 7], max_new_tokens=8, check=True)
    assert made.counts.proposed == 0
    assert "non-finite" in made.warnings[0]


def test_kernels_for_another_processor_keep_a_rows_bits(tmp_path, monkeypatch):
    """The code for processors without bfloat16 or 512-bit instructions, which this machine may not choose."""
    vectors = ("-mavx2", "-mfma") if {"avx2", "fma"} <= set(library_module.processor().split()) else ()
    monkeypatch.setattr(library_module, "FLAGS", ("-O1", "-std=c++17", "-fPIC", "-fopenmp", "-w", *vectors))
    target = tmp_path / "kernels.so"
    library_module._compile(target)
    assert library_module._intact(target)
    plainer = library_module._loaded(target)
    assert plainer.draftproof_level() == 0
    for dtype in (torch.float32, torch.bfloat16):
        model = random_model().to(dtype)
        decoder = NativeDecoder(model)
        usual = rows_in_pieces(decoder, [60])
        decoder.library = plainer
        first, *others = (rows_in_pieces(decoder, pieces) for pieces in PIECES)
        assert all(torch.equal(first, rows) for rows in others)
        assert (first - usual).abs().max() < (1e-4 if dtype == torch.float32 else 0.02) * usual.abs().max()
    monkeypatch.setattr(library_module, "_target", lambda: target)
    for compile, passes in (("auto", "transformers"), ("wait", "transformers"), ("on", "compiled")):
        speculator = Speculator("demo-target", "demo-draft", compile=compile)
        assert speculator.target.placement.passes == passes
        assert any("without AVX-512" in note for note in speculator.notes) == (passes == "transformers")


@pytest.mark.parametrize("tokens", [[1, 300], [-1], [10**9]])
def test_ids_that_the_model_does_not_have_are_refused(tokens):
    cache = NativeCache(NativeDecoder(random_model()))
    with pytest.raises(ConfigError, match="between 0 and 299"):
        read(cache, tokens, 0, 1)
    with pytest.raises(ConfigError, match="between 0 and 299"):
        write(cache, tokens, 0, 1)


def test_compiled_passes_that_disagree_are_left_for_transformers(monkeypatch, nothing_checked):
    monkeypatch.setattr("draftproof.models.load.agrees", lambda session, sample: False)
    speculator = Speculator("demo-target", "demo-draft", compile="on")
    assert "other logits" in speculator.notes[0]
    assert speculator.target.placement.passes == "transformers"
    assert speculator.generate("The", max_new_tokens=5, check=True).identical


@pytest.mark.filterwarnings("ignore:You are calling .generate")  # transformers sees that the weights are away, too
def test_weights_that_were_given_up_are_not_used_elsewhere():
    loaded = load("demo-target", compile="on")
    with pytest.raises(ConfigError, match="keep_weights"):
        one_pass(loaded, "some text to read", 1)
    with pytest.raises(ConfigError, match="keep_weights"):
        HfAssisted("hf-plain", loaded, loaded, 3, DeviceClock("cpu"))
    with pytest.raises(ConfigError, match="keep_weights"):
        Speculator(loaded.model)
    with pytest.raises(ConfigError, match="keep_weights"):
        loaded.model(input_ids=torch.tensor([[1, 2]]))
    with pytest.raises(ConfigError, match="keep_weights"):
        loaded.model.generate(torch.tensor([[1, 2]]), max_new_tokens=2)
    later = Speculator(load("demo-target"), compile="on")
    assert later.target.decoder is not None


def test_what_does_not_fit_is_known_before_weights_are_given_up():
    """Rows of 160 inputs are not whole blocks of 64."""
    loaded = load("demo-draft", weights="int4", compile="on")
    assert "multiple of 64" in loaded.why_not_compiled
    assert loaded.model.device.type == "cpu"


def test_weights_are_held_once():
    speculator = Speculator("demo-target", compile="on")
    assert speculator.target.model.device.type == "meta"
    kept = Speculator("demo-target", compile="on", keep_weights=True)
    assert kept.target.model.device.type == "cpu"
    model = random_model()
    assert Speculator(model, noisy(model, 0.1), compile="on").target.model is model
    assert model.device.type == "cpu"


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_weights_are_torchaos(weights):
    """To the last digits, but where an input sits on the edge between two whole numbers, and the model itself jumps.

    A row's largest input does, if it is negative: its scale puts it at -127.5.
    """
    model = random_model(num_hidden_layers=1, vocab_size=301, attention_bias=True)
    full = plain_rows(model)
    quantise(model, weights)
    wanted, rows = plain_rows(model), rows_in_pieces(NativeDecoder(model), [60])
    error = (rows - wanted).abs().amax(dim=1)
    assert (error < 1e-5 * wanted.abs().max()).float().mean() > 0.3
    assert error.max() < 2 * (full - wanted).abs().max()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_rows_have_the_same_bits_in_passes_of_every_shape(weights):
    model = random_model()
    quantise(model, weights)
    decoder = NativeDecoder(model)
    first, *others = (rows_in_pieces(decoder, pieces) for pieces in PIECES)
    assert all(torch.equal(first, rows) for rows in others)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_speculation_on_quantised_weights_writes_their_own_text(weights):
    speculator = Speculator("demo-target", "demo-draft", k=3, weights=weights, draft_weights="int8", compile="on")
    assert (speculator.target.placement.weights, speculator.draft.placement.weights) == (weights, "int8")
    assert speculator.target.placement.passes == speculator.draft.placement.passes == "compiled"
    assert speculator.generate('The "if"', max_new_tokens=40, check=True).identical
    mixed = Speculator("demo-target", "demo-draft", weights=weights, draft_weights="none", compile="on")
    assert mixed.draft.placement.weights is None
    with pytest.raises(ConfigError, match="int3"):
        Speculator("demo-target", weights="int3")
    with pytest.raises(ConfigError, match="loaded already"):
        Speculator(random_model(), weights="int8")
