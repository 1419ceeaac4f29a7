"""What compiled passes cover, and what is refused with the reason and goes through transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof import CompileError, Speculator
from draftproof.models.native.cover import refuse
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.quantise import quantise
from draftproof.models.session import ModelSession
from draftproof.testing import random_model
from tests.architectures import CONFIGS, build
from tests.models.test_native import IDS, plain_rows


class OwnModel(LlamaForCausalLM):
    """Somebody's own forward may do anything."""


class OwnEmbedding(torch.nn.Embedding):
    """So may an embedding."""


def own_model():
    return OwnModel(LlamaConfig(**random_model().config.to_dict())).eval()


def own_embedding():
    model = random_model()
    model.model.embed_tokens = OwnEmbedding(300, 64)
    return model


def hooked():
    model = random_model()
    model.model.layers[2].register_forward_hook(lambda module, inputs, output: output)
    return model


def capped_otherwise():
    model = build("gemma2")
    model.config._attn_implementation_internal = "sdpa"
    return model


def wider_head():
    model = random_model()
    model.lm_head = torch.nn.Linear(64, 400, bias=False)
    return model


def mixed():
    model = random_model()
    model.model.layers[1].mlp.to(torch.bfloat16)
    return model


def from_torchao(config, **settings):
    from torchao.quantization import quantize_

    model = random_model(**settings)
    quantize_(model, config, filter_fn=lambda module, name: isinstance(module, torch.nn.Linear))
    return model


def weight_only():
    from torchao.quantization import Int8WeightOnlyConfig

    return from_torchao(Int8WeightOnlyConfig())


def four_bits_weight_only():
    from torchao.quantization import IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup

    return from_torchao(
        IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), scale_dtype=torch.bfloat16)
    )


def two_bits():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerAxis

    return from_torchao(Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int2, weight_granularity=PerAxis(0)))


def four_bits_of_narrow_rows():
    model = random_model(hidden_size=32, num_attention_heads=2, num_key_value_heads=1)
    quantise(model, "int4")
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: build("gpt2"), "'gpt2'"),
        (lambda: build("mixtral"), "'mixtral'"),
        (own_model, "cover"),
        (own_embedding, "OwnEmbedding"),
        (hooked, "hooks"),
        (wider_head, "300 and 400"),
        (mixed, "one number format"),
        (lambda: random_model().to(torch.float16), "float16"),
        (lambda: random_model(hidden_size=72, num_attention_heads=6), "multiples"),
        (lambda: random_model(hidden_act="relu"), "ReLU"),
        (lambda: random_model(num_hidden_layers=0), "layers"),
        (
            lambda: random_model(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "dynamic",
        ),
        (capped_otherwise, "eager"),
        (weight_only, "this kind of Int8Tensor"),
        (four_bits_weight_only, "this kind of IntxUnpackedToInt8Tensor"),
        (two_bits, "this kind of IntxUnpackedToInt8Tensor"),
        (four_bits_of_narrow_rows, "multiple of 64"),
    ],
)
def test_what_is_not_covered_is_refused_with_the_reason(make, reason):
    with pytest.raises(CompileError, match=reason):
        refuse(make())


def test_what_is_not_covered_goes_through_transformers_and_says_why():
    model = build("gpt2")
    speculator = Speculator(model, model, compile="on")
    assert "passes go through transformers" in " ".join(speculator.notes)
    assert speculator.generate([5, 9], max_new_tokens=5, check=True).identical


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("llama", {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 256}),
        ("llama", {"hidden_activation": "gelu_pytorch_tanh"}),
        ("gemma", {"query_pre_attn_scalar": 256}),
        ("gemma3", {"attn_logit_softcapping": 2.0}),
        ("mistral-window", {"layer_types": ["full_attention"] * 2}),
    ],
)
def test_settings_that_a_family_ignores_are_ignored(name, ignored):
    config = CONFIGS[name]()
    for key, value in ignored.items():
        setattr(config, key, value)
    torch.manual_seed(0)
    model = type(build(name))(config).eval()
    wanted = plain_rows(model)
    for session in (ModelSession(model), ModelSession(model, decoder=NativeDecoder(model))):
        rows = session.read(IDS, last=len(IDS))
        assert (rows - wanted).abs().max() < 1e-4 * wanted.abs().max()
