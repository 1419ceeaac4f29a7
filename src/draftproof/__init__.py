"""Speculative decoding for Hugging Face language models that proves the output did not change.

from draftproof import Speculator

speculator = Speculator("demo-target", "demo-draft", k=5)
generation = speculator.generate("The for statement", max_new_tokens=64, check=True)
print(generation.text, generation.counts.acceptance_rate, generation.identical)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.engines.hook import custom_generate
    from draftproof.engines.local import Speculator
    from draftproof.engines.stream import Chunk, Stream
    from draftproof.errors import (
        CacheError,
        CompileError,
        ConfigError,
        DivergenceError,
        DraftproofError,
        EngineError,
        LoadError,
        MissingExtraError,
        PairError,
        ResultError,
    )
    from draftproof.options import Options
    from draftproof.records import Counts, Divergence, Generation, Logprob, Round, Seconds

__version__ = "0.1.0"

_HOMES = {
    "CacheError": "errors",
    "Chunk": "engines.stream",
    "CompileError": "errors",
    "ConfigError": "errors",
    "Counts": "records",
    "Divergence": "records",
    "DivergenceError": "errors",
    "DraftproofError": "errors",
    "EngineError": "errors",
    "Generation": "records",
    "LoadError": "errors",
    "Logprob": "records",
    "MissingExtraError": "errors",
    "Options": "options",
    "PairError": "errors",
    "ResultError": "errors",
    "Round": "records",
    "Seconds": "records",
    "Speculator": "engines.local",
    "Stream": "engines.stream",
    "custom_generate": "engines.hook",
}

__all__ = [
    "CacheError",
    "Chunk",
    "CompileError",
    "ConfigError",
    "Counts",
    "Divergence",
    "DivergenceError",
    "DraftproofError",
    "EngineError",
    "Generation",
    "LoadError",
    "Logprob",
    "MissingExtraError",
    "Options",
    "PairError",
    "ResultError",
    "Round",
    "Seconds",
    "Speculator",
    "Stream",
    "custom_generate",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds to import, and `--help` should not wait."""
    if name not in _HOMES:
        raise AttributeError(f"module 'draftproof' has no attribute {name!r}")
    return getattr(import_module(f"draftproof.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
