"""What Python hands to the kernels is what they take: said by both, and compared when they are loaded."""

from __future__ import annotations

import ctypes

import pytest

from draftproof import CompileError
from draftproof.models.native import structures
from draftproof.models.native.library import library


def test_both_sides_say_the_same():
    kernels = library()
    assert kernels.draftproof_contract().decode() == structures.contract()
    assert "Span: 64 bytes, place at 0" in structures.contract()
    assert (
        "write: pointer pointer pointer int32 int32 pointer int32 double pointer pointer -> int32"
        in structures.contract()
    )


def swapped(structure, a, b):
    fields = [*structure._fields_]
    names = [field[0] for field in fields]
    i, j = names.index(a), names.index(b)
    fields[i], fields[j] = fields[j], fields[i]
    return type(structure.__name__, (ctypes.Structure,), {"_fields_": fields})


@pytest.mark.parametrize(
    ("structure", "a", "b"),
    [("Span", "tokens", "positions"), ("Model", "epsilon", "logit_cap"), ("Matrix", "rows", "data")],
)
def test_fields_in_another_order_are_found_at_load(structure, a, b, monkeypatch):
    monkeypatch.setattr(structures, structure, swapped(getattr(structures, structure), a, b))
    with pytest.raises(CompileError, match=f"built for other structures: '{structure}: "):
        structures.declare(library())


def test_an_argument_of_another_type_is_found_at_load(monkeypatch):
    taken, given = structures._FUNCTIONS["pack"]
    monkeypatch.setitem(structures._FUNCTIONS, "pack", ((*taken[:-1], ctypes.c_int32), given))
    with pytest.raises(CompileError, match="pack: pointer pointer int64 int64 int32"):
        structures.declare(library())


def test_a_wrong_argument_is_refused_before_it_is_passed():
    with pytest.raises(ctypes.ArgumentError):
        library().draftproof_pack(1.5, None, 0, 0, 0)
