"""A decoder-only model in packed weights, read by the compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftproof.models.given import refuse_given_up
from draftproof.models.native import structures as native
from draftproof.models.native.cover import ACTIVATIONS, refuse
from draftproof.models.native.library import library
from draftproof.models.native.packing import (
    BLOCK4,
    GROUP,
    INT4,
    INT8,
    KINDS,
    LANES,
    Arena,
    four_bits,
    in_panels,
    kind_of,
)
from draftproof.models.windows import layer_kinds


class NativeDecoder:
    """Packed copies of a model's weights. Several caches may stand on one decoder.

    `kernels` are what `library` returns, which is asked if there are none. Raises `CompileError`, with the reason, for
    a model that `cover.refuse` does not let through. With `consume` the model's own weights are given up as they are
    packed, and it is left on the `meta` device.
    """

    def __init__(self, model: PreTrainedModel, kernels: ctypes.CDLL | None = None, *, consume: bool = False) -> None:
        config = model.config.get_text_config(decoder=True)
        refuse(model)
        self.library = kernels or library()
        self.dtype = model.dtype
        body = model.get_decoder()
        self._arena = Arena()
        self._kept: list[Tensor] = []
        """Everything that a pointer in the structures points to."""
        self.weight_bytes = 0
        """Bytes that a pass over one token reads of the weights."""
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kinds = layer_kinds(config)
        ropes = _ropes(body.rotary_emb, list(dict.fromkeys(kinds)))
        self.ropes = list(ropes.values())
        """Inverse frequencies `[rotated / 2]`, and the scaling of cos and sin: one for all layers, or one a kind."""
        layers = (native.Layer * len(body.layers))()
        gemma = config.model_type.startswith("gemma")
        for layer, kind, into in zip(body.layers, kinds, layers, strict=True):
            self._layer(layer, into, gemma)
            into.window = int(config.sliding_window) if kind == "sliding_attention" else 0
            into.rope = list(ropes).index(kind) if len(ropes) > 1 else 0
            if consume and not getattr(model, "weights_given_up", False):
                model.weights_given_up = True
                model.register_forward_pre_hook(_refuse)  # whoever calls the model itself is told why it cannot
            if consume:
                layer.to("meta")
        self._layers = layers
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        self.width = int(head.weight.shape[0])
        packed_head = self._matrix([head])
        tied = head.weight is embedding.weight
        read = self.weight_bytes
        packed_embedding = packed_head if tied else self._pack([embedding.weight])
        self.weight_bytes = read
        family = config.model_type
        embedding_scale = float(torch.tensor(config.hidden_size**0.5, dtype=self.dtype)) if gemma else 1.0
        self.structure = native.Model(
            layers=len(body.layers),
            hidden=config.hidden_size,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rotated=2 * self.ropes[0][0].numel(),
            intermediate=config.intermediate_size,
            activation=ACTIVATIONS[type(body.layers[0].mlp.act_fn).__name__],
            epsilon=config.rms_norm_eps,
            attention_scale=float(body.layers[0].self_attn.scaling),
            embedding_scale=embedding_scale,
            attention_cap=(family == "gemma2" and config.attn_logit_softcapping) or 0.0,
            logit_cap=(family in ("gemma2", "gemma3_text") and config.final_logit_softcapping) or 0.0,
            cache_kind=KINDS[self.dtype],
            layer=layers,
            final_norm=self._norm(body.norm, gemma),
            head=packed_head,
            embedding=packed_embedding,
        )
        if consume:
            model.to("meta")
        self.kv_shape = (len(layers), 2, kv_heads, head_dim)
        self._tables: list[tuple[Tensor, Tensor]] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the packed weights take, the table of embeddings included."""
        return sum(tensor.numel() * tensor.itemsize for tensor in self._kept)

    def angles(self, positions: int) -> tuple[native.Angles, list[tuple[Tensor, Tensor]]]:
        """Return tables of this many positions or more, and what has to be held as long as they are read.

        All caches share them. They are made anew when a text outgrows them, while other threads may read the old ones.
        """
        tables = self._tables
        if not tables or len(tables[0][0]) < positions:
            wanted = max(positions, 2 * len(tables[0][0]) if tables else 256)
            slots = torch.arange(-(-wanted // LANES) * LANES, dtype=torch.float32)  # whole vectors, whatever comes last
            turns = [(slots[:, None] * frequencies, scaling) for frequencies, scaling in self.ropes]
            self._tables = tables = [(turn.cos() * scaling, turn.sin() * scaling) for turn, scaling in turns]
        found = native.Angles()
        for i, (cos, sin) in enumerate(tables):
            found.cos[i], found.sin[i] = cos.data_ptr(), sin.data_ptr()
        return found, tables

    def _layer(self, layer: Any, into: native.Layer, gemma: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        into.qkv = self._matrix([attention.q_proj, attention.k_proj, attention.v_proj])
        into.out = self._matrix([attention.o_proj])
        into.gate_up = self._matrix([mlp.gate_proj, mlp.up_proj], alternate=True)
        into.down = self._matrix([mlp.down_proj])
        into.before_attention = self._norm(layer.input_layernorm, gemma)
        into.query_norm = self._norm(getattr(attention, "q_norm", None), gemma)
        into.key_norm = self._norm(getattr(attention, "k_norm", None), gemma)
        if hasattr(layer, "pre_feedforward_layernorm"):
            into.after_attention = self._norm(layer.post_attention_layernorm, gemma)
            into.before_mlp = self._norm(layer.pre_feedforward_layernorm, gemma)
            into.after_mlp = self._norm(layer.post_feedforward_layernorm, gemma)
        else:
            into.before_mlp = self._norm(layer.post_attention_layernorm, gemma)

    def _norm(self, norm: Any, gemma: bool) -> int | None:
        if norm is None:
            return None
        return self._keep(norm.weight.detach().float() + (1.0 if gemma else 0.0))

    def _keep(self, tensor: Tensor) -> int:
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _matrix(self, linears: Sequence[Any], alternate: bool = False) -> native.Matrix:
        """Pack layers that read the same inputs: one after the other, or their panels in turn if `alternate`."""
        weights = [linear.weight for linear in linears]
        rows = [w.shape[0] for w in weights]
        packed = self._pack(weights, alternate)
        if any(linear.bias is not None for linear in linears):
            packed.bias = self._keep(in_panels([linear.bias for linear in linears], rows, alternate))
        if packed.kind == INT8:
            # inputs have 128 added, so that they are unsigned: this much of every sum is taken off again
            sums = [128 * w.qdata.sum(dim=1, dtype=torch.int32) for w in weights]
            packed.scale = self._keep(in_panels([w.scale.flatten().float() for w in weights], rows, alternate))
            packed.sums = self._keep(in_panels(sums, rows, alternate))
        if packed.kind == INT4:
            totals = [(w.qdata.view(len(w), -1, GROUP).sum(-1) * w.scale.float()).sum(-1) for w in weights]
            packed.scale = self._keep(in_panels(totals, rows, alternate))
        return packed

    def _pack(self, weights: Sequence[Any], alternate: bool = False) -> native.Matrix:
        kind = kind_of(weights[0])
        stored = [w.qdata if kind in (INT8, INT4) else w.detach() for w in weights]
        steps = stored[0].shape[1] * stored[0].dtype.itemsize // 4
        panel = steps // 16 * BLOCK4 if kind == INT4 else 64 * steps
        counts = [-(-w.shape[0] // LANES) for w in weights]
        packed = self._arena.take(sum(counts) * panel)
        whole, first = packed.view(-1, panel), 0
        for i, (weight, count) in enumerate(zip(weights, counts, strict=True)):
            into = whole[i :: len(weights)] if alternate else whole[first : first + count]
            if kind == INT4:
                into.copy_(four_bits(weight))
            else:  # straight into place: a copy of a large matrix would stay in the allocator's hands
                self._panels(stored[i].contiguous(), steps, into)
            first += count
        self._kept.append(packed)
        self.weight_bytes += packed.numel()
        return native.Matrix(data=packed.data_ptr(), rows=len(whole) * LANES, steps=steps, kind=kind)

    def _panels(self, weight: Tensor, steps: int, into: Tensor) -> None:
        self.library.draftproof_pack(into.data_ptr(), weight.data_ptr(), weight.shape[0], steps, into.stride(0))


def _ropes(rotary: Any, kinds: Sequence[str]) -> dict[str, tuple[Tensor, float]]:
    if hasattr(rotary, "inv_freq"):
        return {"all": (rotary.inv_freq.float(), float(rotary.attention_scaling))}
    return {
        kind: (getattr(rotary, f"{kind}_inv_freq").float(), float(getattr(rotary, f"{kind}_attention_scaling")))
        for kind in kinds
    }


def _refuse(model: PreTrainedModel, given: object) -> None:
    refuse_given_up(model)
