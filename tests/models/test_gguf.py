"""A GGUF file is loaded whole, or not at all, and what of it has no place in the model is named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gguf import GGUFWriter

from draftproof import LoadError, Speculator
from draftproof.models.load import load
from tests.forking import command, forked

WIDTH, INNER, HEADS = 32, 64, 2
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁"]


def write(path, *, blocks=2, layers=None, drop=(), extra=(), architecture="llama", part=None, tokenizer=True):
    """Write a llama with `blocks` layers in its metadata and `layers` among its tensors."""
    writer = GGUFWriter(str(path), architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    if tokenizer:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(TOKENS)
        writer.add_token_scores([0.0] * len(TOKENS))
        writer.add_token_types([2, 3, 3] + [6] * 256 + [1])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
    if part:
        writer.add_uint16("split.no", part[0])
        writer.add_uint16("split.count", part[1])
    shapes = {"token_embd.weight": (len(TOKENS), WIDTH), "output_norm.weight": (WIDTH,)}
    shapes["output.weight"] = (len(TOKENS), WIDTH)
    for i in range(blocks if layers is None else layers):
        shapes |= {f"blk.{i}.attn_{n}.weight": (WIDTH, WIDTH) for n in ("q", "k", "v", "output")}
        shapes |= {f"blk.{i}.{n}.weight": (WIDTH,) for n in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{i}.ffn_{n}.weight": (INNER, WIDTH) for n in ("gate", "up")}
        shapes[f"blk.{i}.ffn_down.weight"] = (WIDTH, INNER)
    shapes |= dict.fromkeys(extra, (8,))
    chance = np.random.default_rng(0)
    for name, shape in shapes.items():
        if name not in drop:
            writer.add_tensor(name, (chance.standard_normal(shape) * 0.2).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_whole_file_loads_without_a_word_and_writes_the_same_text_each_time(tmp_path):
    file = write(tmp_path / "whole.gguf")
    texts = [Speculator(file, dtype="float32").generate("Hello", max_new_tokens=12).tokens for _ in range(2)]
    assert texts[0] == texts[1]
    assert load(file).notes == ()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"layers": 1}, r"lacks the weight 'model\.layers\.1\.input_layernorm\.weight' \(and 8 more\).*random numbers"),
        ({"drop": ["output_norm.weight"]}, r"lacks the weight 'model\.norm\.weight'"),
        ({"layers": 1, "part": (0, 2)}, r"part 1 of 2.*llama-gguf-split --merge"),
        ({"layers": 3}, r"has 2 layers by its config, and weights for layer 2 too"),
        (
            {"architecture": "nosuch"},
            r"is a 'nosuch' model, which transformers cannot read from this GGUF file \(",
        ),
        ({"drop": ["token_embd.weight"]}, r"lacks the weight 'model\.embed_tokens\.weight'"),
        ({"tokenizer": False}, r"cannot load the tokenizer of .*with its tokenizer\.$"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path, how, says):
    with pytest.raises(LoadError, match=says) as error:
        load(write(tmp_path / "model.gguf", **how))
    assert "\n" not in str(error.value)


def test_tensors_without_a_place_are_named(tmp_path):
    file = write(tmp_path / "model.gguf", extra=["rope_freqs.weight", "blk.0.attn_q.bias"])
    (note,) = load(file).notes
    assert "the model has no place for the weights blk.0.attn_q.bias, rope_freqs.weight; they are not used" in note


@pytest.mark.parametrize("keep", [0, 3, 24, 200, 5000, 40000])
def test_a_file_that_is_cut_off_is_one_line(tmp_path, keep):
    file = write(tmp_path / "model.gguf")
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(LoadError, match=r"model\.gguf' is cut off, damaged or no GGUF file \(.+\); download") as error:
        load(file)
    assert "\n" not in str(error.value)


def test_bytes_turned_over_in_the_head_are_one_line_each(tmp_path):
    """Wherever the head is damaged, it either does not matter or is said; nothing hangs or fills the memory."""
    whole = write(tmp_path / "model.gguf").read_bytes()
    for at in range(4, 1200, 97):
        (tmp_path / "model.gguf").write_bytes(whole[:at] + bytes([whole[at] ^ 0x7F]) + whole[at + 1 :])
        try:
            load(tmp_path / "model.gguf")
        except LoadError as error:
            assert "\n" not in str(error)


def test_what_lies_beside_a_file_does_not_matter(tmp_path):
    file = write(tmp_path / "model.gguf")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["x.Y", None]}}))
    (tmp_path / "adapter_config.json").write_text("{")
    loaded = load(file)
    assert loaded.end_tokens == frozenset({2})
    assert loaded.model.config.name_or_path == str(file)


def test_a_part_is_refused_on_the_command_line(tmp_path):
    file = write(tmp_path / "model-00001-of-00002.gguf", layers=1, part=(0, 2))
    ended = forked(command("run", "--target", file, "--prompt", "Hello"))
    assert ended.returncode == 2
    assert "part 1 of 2" in " ".join(ended.stderr.split())
