"""Copies of logits processors that share no state with the originals: functions too, with what their closures hold."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import types
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SHARED = (type, types.ModuleType, types.CodeType, PreTrainedModel, PreTrainedTokenizerBase)
"""What has no state that a request could change, or is too large to copy: models and tokenizers stay shared."""
_CONSTANT = (int, float, complex, str, bytes, type(None), types.FunctionType, *_SHARED)


def copy_together(things: list[Any]) -> list[Any]:
    """Return copies of all things; what several of them share, their copies share too.

    Unlike `copy.deepcopy`, functions are copied with their closures, defaults and attributes, also where they lie deep
    inside. What globals and classes hold stays shared. Raises whatever pickling raises for what cannot be copied, and
    `TypeError` for objects whose class keeps a state in a closure.
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
        self._memo: dict[int, Any] = {}
        self._places: dict[int, int] = {}
        self._globals: set[int] = set()

    def persistent_id(self, thing: Any) -> int | None:
        if id(thing) in self._places:
            return self._places[id(thing)]
        if isinstance(thing, type):
            _check_class(thing)
        if isinstance(thing, _SHARED) or id(thing) in self._globals:
            return self._keep(thing, thing)
        if hasattr(type(thing), "__deepcopy__") and not isinstance(thing, _Cached):
            return self._keep(thing, copy.deepcopy(thing, self._memo))
        return None

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, types.CellType):
            return types.CellType, ()  # the functions that have it fill it: it may hold one of them
        if isinstance(thing, types.MethodType):  # pickling would look it up by name, and find what overrides it
            return types.MethodType, (thing.__func__, thing.__self__)
        if isinstance(thing, types.BuiltinMethodType) and not isinstance(thing.__self__, types.ModuleType | None):
            return getattr, (thing.__self__, thing.__name__)
        if isinstance(thing, _Cached) and "<locals>" in thing.__qualname__:
            return _cached, (thing.cache_parameters(), thing.__wrapped__)
        if isinstance(thing, types.FunctionType):
            self._globals.add(id(thing.__globals__))
            closure = thing.__closure__ or ()
            state = thing.__defaults__, thing.__kwdefaults__, thing.__dict__, [_content(cell) for cell in closure]
            made = thing.__code__, thing.__globals__, thing.__name__, None, tuple(closure)
            return types.FunctionType, made, state, None, None, _finish
        return NotImplemented

    def _keep(self, thing: Any, given: Any) -> int:
        self._places[id(thing)] = len(self.kept)
        self.kept += [given, thing]  # the original too, so that no other object gets its id meanwhile
        return self._places[id(thing)]


class _Reader(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_load(self, place: Any) -> Any:
        return self._kept[place]


_Cached = functools._lru_cache_wrapper


def _cached(parameters: dict[str, Any], function: Any) -> Any:
    return functools.lru_cache(**parameters)(function)


def _check_class(kind: type) -> None:
    """Raise `TypeError` for a class whose methods close over something that can change: classes are not copied."""
    for name, method in vars(kind).items():
        for cell in getattr(method, "__closure__", None) or ():
            content = _content(cell)
            parts = content if isinstance(content, tuple | frozenset) else (content,)
            if not all(isinstance(part, _CONSTANT) for part in parts):
                raise TypeError(f"{kind.__name__}.{name} closes over a {type(content).__name__}; keep it in the object")


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
