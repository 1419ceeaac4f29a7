"""The structures of kernels.cpp, as ctypes has them."""

from __future__ import annotations

import ctypes


class Matrix(ctypes.Structure):
    """As `Matrix` in kernels.cpp."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("steps", ctypes.c_int32),
        ("kind", ctypes.c_int32),
    )


class Layer(ctypes.Structure):
    """As `Layer` in kernels.cpp."""

    _fields_ = (
        *((name, Matrix) for name in ("qkv", "out", "gate_up", "down")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "before_attention",
                "query_norm",
                "key_norm",
                "after_attention",
                "before_mlp",
                "after_mlp",
            )
        ),
        ("window", ctypes.c_int32),
        ("rope", ctypes.c_int32),
    )


class Model(ctypes.Structure):
    """As `Model` in kernels.cpp."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "layers",
                "hidden",
                "heads",
                "kv_heads",
                "head_dim",
                "rotated",
                "intermediate",
                "activation",
            )
        ),
        *(
            (name, ctypes.c_float)
            for name in ("epsilon", "attention_scale", "embedding_scale", "attention_cap", "logit_cap")
        ),
        ("cache_kind", ctypes.c_int32),
        ("layer", ctypes.POINTER(Layer)),
        ("final_norm", ctypes.c_void_p),
        ("head", Matrix),
        ("embedding", Matrix),
    )


class Angles(ctypes.Structure):
    """As `Angles` in kernels.cpp."""

    _fields_ = (("cos", ctypes.c_void_p * 2), ("sin", ctypes.c_void_p * 2))


class Place(ctypes.Structure):
    """As `Place` in kernels.cpp."""

    _fields_ = (("cache", ctypes.c_void_p), ("capacity", ctypes.c_int64))


class Span(ctypes.Structure):
    """As `Span` in kernels.cpp."""

    _fields_ = (
        ("place", Place),
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "parents", "states")),
        *((name, ctypes.c_int32) for name in ("count", "start", "last")),
    )
