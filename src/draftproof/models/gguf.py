"""Models in one GGUF file, as llama.cpp writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from draftproof.errors import LoadError, brief
from draftproof.models.checkpoint import judge_loading, refuse_deeper, require_memory, unused_note
from draftproof.models.declared import never_asking
from draftproof.models.folder import Read
from draftproof.models.placement import DTYPES
from draftproof.models.support import refuse_unsupported
from draftproof.models.tokenizer import read_gguf_tokenizer
from draftproof.records import Placement


def read_gguf(
    name: str, path: Path, decide: Callable[..., Placement], *, weights: str | None = None, trust: bool = False
) -> Read:
    """Return the model in the file `path`. There is no code in it to trust, and it may be quantised to `weights`.

    Raises `LoadError` and `CacheError`.
    """
    from transformers import GgufConfig

    architecture, tensors = _read_header(path)
    placement = decide()
    require_memory(name, sum(tensors.values()) * DTYPES[placement.dtype].itemsize, placement)
    with _alone(path) as file:
        _refuse_architecture(name, architecture, file)
        tokenizer = read_gguf_tokenizer(name, file)
        with never_asking():
            model, info = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                dtype=DTYPES[placement.dtype],
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
                trust_remote_code=False,
                local_files_only=True,
            )
    model = model.to(DTYPES[placement.dtype])
    model.config.name_or_path = tokenizer.name_or_path = str(path)
    notes = judge_loading(name, info, model.config)
    return model, tokenizer, placement, notes + _on_unused(name, architecture, tensors, model)


def _refuse_architecture(name: str, architecture: str, file: Path) -> None:
    try:
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except Exception as error:  # an architecture that is not known, or metadata that make no sense of it
        raise LoadError(
            f"{name!r} is a {architecture!r} model, which transformers cannot read from this GGUF file "
            f"({brief(error)}); give the model's folder with .safetensors weights."
        ) from error
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not known and not config.is_encoder_decoder:
        raise LoadError(f"{name!r} is a {config.model_type!r} model, which does not write text token by token.")
    refuse_unsupported(config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] if known else None)


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """Give the file without its neighbours: transformers would heed settings and code that lie beside it."""
    with TemporaryDirectory() as folder:
        link = Path(folder) / path.name
        try:
            link.symlink_to(path.resolve())
        except OSError:  # not everybody may make links everywhere
            link = path
        yield link


def _read_header(path: Path) -> tuple[str, dict[str, int]]:
    """Return the architecture, and the names of the tensors with how many numbers each holds.

    Raises `LoadError` for a file that is cut off, no GGUF file, or a part of one.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        parts, part = reader.get_field("split.count"), reader.get_field("split.no")
        kind = reader.get_field("general.architecture")
        architecture = str(kind.contents()) if kind else ""
        tensors = {str(tensor.name): int(tensor.n_elements) for tensor in reader.tensors}
        of, this = (int(field.contents()) if field else 0 for field in (parts, part))
    except Exception as error:  # the reader trusts every length that it finds
        raise LoadError(
            f"{str(path)!r} is cut off, damaged or no GGUF file ({brief(error)}); download it again."
        ) from error
    if of > 1:
        raise LoadError(
            f"{str(path)!r} is part {this + 1} of {of}, and holds only some of the layers; join the parts with "
            "llama.cpp's llama-gguf-split --merge, and give the one file."
        )
    if not tensors:
        raise LoadError(f"{str(path)!r} holds no weights; give the file that does.")
    return architecture, tensors


def _on_unused(name: str, architecture: str, tensors: dict[str, int], model: PreTrainedModel) -> tuple[str, ...]:
    """Name the tensors that transformers passed over; it says nothing of them itself."""
    left = sum(tensors.values()) - sum(parameter.numel() for parameter in model.parameters())
    unused = sorted(set(tensors) - _names_of(model, architecture))
    refuse_deeper(name, unused, model.config)
    if left <= 0:  # everything has its place, even where the names do not tell which
        return ()
    if unused and sum(tensors[key] for key in unused) == left:
        return (unused_note(name, unused),)
    return (f"{name}: {left} numbers of the file have no place in the model; they are not used",)


def _names_of(model: PreTrainedModel, architecture: str) -> set[str]:
    """Return what the weights of `model` are called in a GGUF file, as far as the package knows."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kind = next((kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture), None)
    if kind is None:
        return set()
    names = get_tensor_name_map(kind, model.config.get_text_config(decoder=True).num_hidden_layers)
    stems = [key.rpartition(".") for key in model.state_dict()]
    return {f"{names.get_name(stem)}.{suffix}" for stem, _, suffix in stems}
