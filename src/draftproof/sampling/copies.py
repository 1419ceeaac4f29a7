"""Copies of logits processors that share no state with the originals: functions too, with what their closures hold."""

from __future__ import annotations

import copy
import io
import pickle
import types
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

_SHARED = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, nn.Module, PreTrainedTokenizerBase)
"""What has no state that a request could change, or is too large to copy: models and tokenizers stay shared."""


def copy_together(things: list[Any]) -> list[Any]:
    """Return copies of all things; what several of them share, their copies share too.

    Unlike `copy.deepcopy`, functions are copied with their closures, defaults and attributes, also where they lie deep
    inside; what a module's globals hold stays shared. Raises whatever pickling raises for what cannot be copied.
    """
    buffer = io.BytesIO()
    copier = _Copier(buffer)
    copier.dump(things)
    buffer.seek(0)
    return list(_Reader(buffer, copier.kept).load())


class _Copier(pickle.Pickler):
    """Pickles in memory; what is handed over as it is goes into `kept`."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=5)
        self.kept: list[Any] = []
        self._places: dict[int, int] = {}
        self._globals: set[int] = set()

    def persistent_id(self, thing: Any) -> int | None:
        if isinstance(thing, _SHARED) or id(thing) in self._globals:
            return self._keep(thing, thing)
        if isinstance(thing, Tensor) or (hasattr(type(thing), "__deepcopy__") and id(thing) not in self._places):
            return self._keep(thing, copy.deepcopy(thing))
        return self._places.get(id(thing))

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, types.CellType):
            return types.CellType, ()  # the functions that have it fill it: it may hold one of them
        if isinstance(thing, types.FunctionType):
            self._globals.add(id(thing.__globals__))
            closure = thing.__closure__ or ()
            state = thing.__defaults__, thing.__kwdefaults__, thing.__dict__, [_content(cell) for cell in closure]
            made = thing.__code__, thing.__globals__, thing.__name__, None, tuple(closure)
            return types.FunctionType, made, state, None, None, _finish
        return NotImplemented

    def _keep(self, thing: Any, given: Any) -> int:
        if id(thing) not in self._places:
            self._places[id(thing)] = len(self.kept)
            self.kept += [given, thing]  # the original too, so that no other object gets its id meanwhile
        return self._places[id(thing)]


class _Reader(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_load(self, place: Any) -> Any:
        return self._kept[place]


class _Empty:
    """Stands for the content of a cell that has none."""


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _finish(function: types.FunctionType, state: Any) -> None:
    function.__defaults__, function.__kwdefaults__, attributes, contents = state
    function.__dict__.update(attributes)
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        if content is not _Empty:
            cell.cell_contents = content
