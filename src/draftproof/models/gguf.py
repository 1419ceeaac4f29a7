"""Models in one GGUF file, as llama.cpp writes them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel

from draftproof.errors import MissingExtraError
from draftproof.models.checkpoint import require_memory
from draftproof.models.placement import DTYPES
from draftproof.models.session import refuse_unsupported
from draftproof.models.tokenizer import read_tokenizer
from draftproof.records import Placement


def read_gguf(name: str, path: Path, decide: Callable[..., Placement]) -> tuple[PreTrainedModel, Any, Placement]:
    """Return the model in the file `path`, its tokenizer and its placement. Raises `LoadError` and `CacheError`."""
    missing = [p for p in ("gguf", "accelerate") if importlib.util.find_spec(p) is None]
    if missing:
        raise MissingExtraError(f"a .gguf file needs {' and '.join(missing)}: pip install 'draftproof[gguf]'")
    from transformers import GgufConfig

    placement = decide()
    require_memory(name, 4 * path.stat().st_size, placement)
    tokenizer = read_tokenizer(name, path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=DTYPES[placement.dtype],
        quantization_config=GgufConfig(dequantize=True),
    ).to(DTYPES[placement.dtype])
    refuse_unsupported(model.config, type(model))
    return model, tokenizer, placement
