"""At load compiled passes show, on this machine, that a row's bits hang on its own text only; if not, they are left."""

from __future__ import annotations

import shutil

import pytest
import torch

from draftproof import Speculator
from draftproof.models.native import library as library_module
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.steady import keeps_bits
from draftproof.models.quantise import quantise
from draftproof.testing import random_model
from tests.architectures import NATIVE, build

FAULTS = {
    "rows": ("products.h", "if (a.bias) v +=", "if (rows == 5) v = v * 1.000001f;\n            if (a.bias) v +="),
    "neighbours": ("attention.h", ": span.start + row.depth;", ": span.start + row.depth + 2 * s;"),
    "trees": ("attention.h", "slot = place < start ? place :", "slot = place <= start ? place :"),
}


@pytest.mark.parametrize("name", NATIVE)
def test_they_do_here(name):
    assert keeps_bits(NativeDecoder(build(name)))
    assert keeps_bits(NativeDecoder(build(name).to(torch.bfloat16)))


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_they_do_here_with_quantised_weights(weights):
    model = random_model()
    quantise(model, weights)
    assert keeps_bits(NativeDecoder(model))


def test_a_model_of_a_few_positions_and_one_without_numbers_are_tried_too():
    assert keeps_bits(NativeDecoder(random_model(max_position_embeddings=4)))
    model = random_model()
    with torch.no_grad():
        model.lm_head.weight[17] = float("nan")
    assert keeps_bits(NativeDecoder(model))


@pytest.mark.parametrize("fault", FAULTS)
def test_where_they_do_not_passes_are_left_to_transformers(fault, tmp_path, monkeypatch, nothing_checked):
    source = tmp_path / "source"
    shutil.copytree(library_module.SOURCE.parent, source)
    name, right, wrong = FAULTS[fault]
    text = (source / name).read_text()
    assert text.count(right) == 1
    (source / name).write_text(text.replace(right, wrong))
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    vectors = ("-mavx2", "-mfma") if {"avx2", "fma"} <= set(library_module.processor().split()) else ()
    monkeypatch.setattr(library_module, "FLAGS", ("-O1", "-std=c++17", "-fPIC", "-fopenmp", "-w", *vectors))
    monkeypatch.setattr(library_module, "SOURCE", source / "kernels.cpp")
    speculator = Speculator("demo-target", "demo-draft", compile="on")
    assert "demo-target and demo-draft: passes go through transformers: compiled here, on this processor" in str(
        speculator.notes
    )
    assert speculator.target.placement.passes == speculator.draft.placement.passes == "transformers"
    assert speculator.generate("The", max_new_tokens=5, check=True).identical
