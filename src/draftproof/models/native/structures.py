"""What kernels take, as ctypes has it: the structures of contract.h and the functions of kernels.cpp."""

from __future__ import annotations

import ctypes
from itertools import zip_longest

from draftproof.errors import CompileError


class Matrix(ctypes.Structure):
    """As `Matrix` in contract.h."""

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
    """As `Layer` in contract.h."""

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
    """As `Model` in contract.h."""

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
    """As `Angles` in contract.h."""

    _fields_ = (("cos", ctypes.c_void_p * 2), ("sin", ctypes.c_void_p * 2))


class Place(ctypes.Structure):
    """As `Place` in contract.h."""

    _fields_ = (("cache", ctypes.c_void_p), ("capacity", ctypes.c_int64))


class Span(ctypes.Structure):
    """As `Span` in contract.h."""

    _fields_ = (
        ("place", Place),
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "parents", "states")),
        *((name, ctypes.c_int32) for name in ("count", "start", "last")),
    )


_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_WORDS: dict[type | None, str] = {
    _POINTER: "pointer",
    _INT32: "int32",
    _INT64: "int64",
    ctypes.c_float: "float",
    ctypes.c_double: "double",
    None: "none",
}
_FUNCTIONS: dict[str, tuple[tuple[type, ...], type | None]] = {
    "pack": ((_POINTER, _POINTER, _INT64, _INT64, _INT64), None),
    "run": ((_POINTER, _POINTER, _POINTER, _INT32, _POINTER), None),
    "write": ((_POINTER,) * 3 + (_INT32, _INT32, _POINTER, _INT32, ctypes.c_double, _POINTER, _POINTER), _INT32),
    "sum": ((_POINTER, _INT64), ctypes.c_float),
    "level": ((), _INT32),
}
"""What each function takes, and what it returns."""


def contract() -> str:
    """Return in words how the structures lie in memory, and what the functions take."""
    lines = []
    for structure in (Matrix, Layer, Model, Angles, Place, Span):
        fields = ", ".join(f"{field[0]} at {getattr(structure, field[0]).offset}" for field in structure._fields_)
        lines.append(f"{structure.__name__}: {ctypes.sizeof(structure)} bytes, {fields}")
    for name, (taken, given) in _FUNCTIONS.items():
        lines.append(f"{' '.join([f'{name}:', *(_WORDS[one] for one in taken)])} -> {_WORDS[given]}")
    return "\n".join(lines) + "\n"


def declare(kernels: ctypes.CDLL) -> None:
    """Give the library's functions their types. Raises `CompileError` if it was built for others."""
    kernels.draftproof_contract.restype = ctypes.c_char_p
    theirs, ours = kernels.draftproof_contract().decode(), contract()
    if theirs != ours:
        lines = zip_longest(theirs.splitlines(), ours.splitlines())
        found = next(pair for pair in lines if pair[0] != pair[1])
        raise CompileError(f"the kernels were built for other structures: {found[0]!r} is not {found[1]!r}")
    for name, (taken, given) in _FUNCTIONS.items():
        function = getattr(kernels, f"draftproof_{name}")
        function.argtypes, function.restype = taken, given
