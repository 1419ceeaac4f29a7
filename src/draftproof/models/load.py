"""Load a model and its tokenizer from a folder, a GGUF file or the hub, or say in one line why not."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from safetensors import SafetensorError, safe_open
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from draftproof.errors import CompileError, ConfigError, DraftproofError, LoadError, MissingExtraError, first_line
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.placement import DTYPES, place
from draftproof.models.quantise import check_weights, quantise
from draftproof.models.session import ModelSession, Sample, agrees, check_cache, refuse_unsupported, sample_of
from draftproof.records import Placement

EMBEDDED = {"demo-target": "target", "demo-draft": "draft"}
"""Names of the pair that ships inside the package, and their folders."""
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HUB_DUPLICATES = ["consolidated*", "original/*"]  # the same weights again, in other layouts


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to run."""

    name: str
    model: PreTrainedModel
    tokenizer: Any
    placement: Placement
    end_tokens: frozenset[int]
    notes: tuple[str, ...] = ()
    why_not_compiled: str | None = None
    """What stood in the way of compiled passes, where they were wanted."""
    decoder: NativeDecoder | None = None
    """Compiled passes, if there are any. Unless they were asked to stay, the weights of `model` are given up then."""
    graphs: bool = False
    """Whether short passes are captured as CUDA graphs."""

    def session(self, window: int | None = None, *, shape: int | None = None) -> ModelSession:
        """Return a session of its own on this model; the arguments are those of `ModelSession`."""
        return ModelSession(self.model, window, decoder=self.decoder, shape=shape, graphs=self.graphs)


COMPILE = ("auto", "on", "off")


def load(
    name: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    revision: str | None = None,
    because: str = "asked for",
    compile: str = "off",
    keep_weights: bool = False,
    weights: str | None = None,
) -> Loaded:
    """Load `name`: a hub name, a folder, a `.gguf` file, or one of `EMBEDDED`; the rest is as in `place`.

    `compile` is one of `COMPILE`: `"off"` leaves all passes to transformers; `"on"` has them compiled where that can be
    done, and says in the result why not; `"auto"` does so too, but lets no request wait for the compiler: what is not
    there yet is made in the background, for the next time. A model whose passes are compiled loses its own copy of the
    weights unless `keep_weights`. `weights` quantises it first (see `models.quantise`).

    Raises `LoadError` for what is missing or broken, `CacheError` for an architecture that cannot go back, and
    `ConfigError` for a device that is not there; all before the weights are read where that can be known.
    """
    if compile not in COMPILE:
        raise ConfigError(f"compile is {compile!r}; choose one of {', '.join(COMPILE)}.")
    weights = check_weights(weights)
    path = find(str(name), revision)
    try:
        read = _load_gguf if path.is_file() else _load_folder

        def fresh() -> Loaded:
            loaded = read(str(name), path, partial(place, device, dtype, because=because))
            return loaded if weights is None else _quantised(loaded, weights)

        try:
            return compiled(fresh(), compile, keep_weights=keep_weights)
        except CompileError as error:  # found too late: the weights were given up
            return replace(fresh(), why_not_compiled=_went_on(str(name), error))
    except DraftproofError:
        raise
    except Exception as error:  # a damaged folder makes the libraries raise almost anything
        raise LoadError(f"cannot load {str(name)!r}: {_first_line(error)}") from error


def find(name: str, revision: str | None = None) -> Path:
    """Return the folder or file that `name` stands for, downloading it from the hub if it is a hub name."""
    found = _find_here(name)
    if found is None:
        return _download(name, revision)
    if revision is not None:
        raise ConfigError(f"a revision ({revision!r}) is for hub names, and {name!r} lies here; leave it out.")
    return found


def _find_here(name: str) -> Path | None:
    if name in EMBEDDED:
        return Path(__file__).parent.parent / "pair" / EMBEDDED[name]
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"{name!r} is a folder without config.json; give the folder that holds the model's files.")
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise LoadError(f"{name!r} is a file, but not a .gguf file; give a folder, a .gguf file or a hub name.")
        return path
    if path.suffix == ".gguf" or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise LoadError(
            f"{name!r} does not exist; give a folder, a .gguf file or a hub name such as 'Qwen/Qwen3-0.6B'."
        )
    return None


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=HUB_FILES, ignore_patterns=HUB_DUPLICATES)
        )
    except Exception as error:  # the hub's client raises a dozen unrelated kinds; each means the same to the user
        raise LoadError(
            f"{name!r} is neither a folder or file here nor to be had from the model hub "
            f"({type(error).__name__}: {_first_line(error)}). Check the spelling and the network, or give a folder."
        ) from error


def _load_folder(name: str, path: Path, decide: Callable[..., Placement]) -> Loaded:
    config = AutoConfig.from_pretrained(path)
    stored = str(getattr(config, "dtype", None) or "").removeprefix("torch.") or None
    placement = decide(stored=stored)
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not known and not config.is_encoder_decoder:
        raise LoadError(f"{name!r} is a {config.model_type!r} model, which does not write text token by token.")
    refuse_unsupported(config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] if known else None)
    _check_weights(name, path, placement)
    tokenizer = _tokenizer(name, path)
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[placement.dtype], output_loading_info=True)
    _refuse_random_weights(name, info)
    return _ready(name, model, tokenizer, placement)


def _load_gguf(name: str, path: Path, decide: Callable[..., Placement]) -> Loaded:
    missing = [p for p in ("gguf", "accelerate") if importlib.util.find_spec(p) is None]
    if missing:
        raise MissingExtraError(f"a .gguf file needs {' and '.join(missing)}: pip install 'draftproof[gguf]'")
    from transformers import GgufConfig

    placement = decide()
    _require_memory(name, 4 * path.stat().st_size, placement)
    tokenizer = _tokenizer(name, path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=DTYPES[placement.dtype],
        quantization_config=GgufConfig(dequantize=True),
    ).to(DTYPES[placement.dtype])
    refuse_unsupported(model.config, type(model))
    return _ready(name, model, tokenizer, placement)


def _ready(name: str, model: PreTrainedModel, tokenizer: Any, placement: Placement) -> Loaded:
    model = model.to(placement.device).eval()
    check_cache(model)
    return Loaded(name, model, tokenizer, placement, end_tokens_of(model), notes_of(model))


def _quantised(loaded: Loaded, weights: str) -> Loaded:
    quantise(loaded.model, weights)
    placement = replace(loaded.placement, reason=f"{loaded.placement.reason}; {weights} weights", weights=weights)
    return replace(loaded, placement=placement)


def compiled(loaded: Loaded, compile: str, *, keep_weights: bool) -> Loaded:
    """Return `loaded` with compiled passes, or with a note that says why there are none; `compile` is as in `load`.

    Whatever stands in the way, the model goes on through transformers. The compiled passes have to give transformers'
    logits on a few tokens before they are used; where they do not, and the weights are given up already, a
    `CompileError` is raised.
    """
    if compile == "off":
        return loaded
    name = loaded.model.config.model_type
    passes: Literal["compiled", "graphs"]
    try:
        sample = sample_of(loaded.model)
        if loaded.model.device.type == "cuda":
            passes, found = "graphs", replace(loaded, graphs=True)
        else:
            decoder = NativeDecoder(loaded.model, wait=compile == "on", consume=not keep_weights)
            passes, found = "compiled", replace(loaded, decoder=decoder)
        if not _agrees(found.session(), sample):
            raise CompileError(f"compiled passes give other logits for {name!r} than transformers does")
    except CompileError as error:
        if loaded.model.device.type == "meta":
            raise
        return replace(loaded, why_not_compiled=_went_on(loaded.name, error))
    return replace(found, placement=_told(loaded.placement, passes))


def _went_on(name: str, error: CompileError) -> str:
    return f"{name}: passes go through transformers: {error}"


def _agrees(session: ModelSession, sample: Sample) -> bool:
    try:
        return agrees(session, sample)
    except Exception as error:  # a capture may fail in many ways
        raise CompileError(f"{session.model.config.model_type!r} cannot be captured as a graph: {error}") from error


def _told(placement: Placement, passes: Literal["compiled", "graphs"]) -> Placement:
    words = {"compiled": "compiled passes", "graphs": "passes captured as CUDA graphs"}[passes]
    return replace(placement, reason=f"{placement.reason}; {words}", passes=passes)


def end_tokens_of(model: PreTrainedModel) -> frozenset[int]:
    """Return the ids that end a text, as transformers' `generate` takes them: one, several or none."""
    config = model.generation_config or model.config.get_text_config(decoder=True)
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset(int(i) for i in (ids if isinstance(ids, list | tuple) else [ids]))


_NEUTRAL: dict[str, tuple[object, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "suppress_tokens": (),
    "begin_suppress_tokens": (),
    "sequence_bias": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
}
"""Settings that change even greedy text in transformers' `generate`, and the values at which they do not."""


def notes_of(model: PreTrainedModel) -> tuple[str, ...]:
    """Say which settings shipped with a model would change its greedy text, and are not applied here."""
    config = model.generation_config
    set_ = [
        f"{name}={value}"
        for name, neutral in _NEUTRAL.items()
        if (value := getattr(config, name, None)) is not None and value not in neutral
    ]
    if not set_:
        return ()
    return (f"the model ships {', '.join(set_)}; not applied here: greedy means the model's own logits",)


def _tokenizer(name: str, path: Path, **kwargs: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(path, **kwargs)
    except Exception as error:  # tokenizers raise bare exceptions of their own for broken files
        raise LoadError(f"cannot load the tokenizer of {name!r}: {_first_line(error)}") from error


def _check_weights(name: str, path: Path, placement: Placement) -> None:
    """Raise `LoadError` if weight files are absent, cut off, or larger than the memory left."""
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").is_file():
        files = [path / "model.safetensors"]
    elif index.is_file():
        files = sorted({path / name for name in json.loads(index.read_text())["weight_map"].values()})
    else:
        other = " (it has .bin files: save it again with model.save_pretrained)" if list(path.glob("*.bin")) else ""
        raise LoadError(f"{name!r} has no .safetensors weights{other}.")
    if absent := [file.name for file in files if not file.is_file()]:
        raise LoadError(f"{name!r} lacks {absent[0]!r}, which its index names; download it again.")
    parameters = 0
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                parameters += sum(_size(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise LoadError(
                f"{str(file)!r} is cut off or damaged ({_first_line(error)}); download it again."
            ) from error
    _require_memory(name, parameters * DTYPES[placement.dtype].itemsize, placement)


def _size(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())


def _require_memory(name: str, needed: int, placement: Placement) -> None:
    free = psutil.virtual_memory().available
    if placement.device.startswith("cuda"):
        free = torch.cuda.mem_get_info(placement.device)[0]
    if needed > free:
        raise LoadError(
            f"{name!r} needs {needed / 2**30:.1f} GiB in {placement.dtype}, and {free / 2**30:.1f} GiB are free on "
            f"{placement.device}; close other programs, choose a smaller model, or --dtype bfloat16."
        )


def _refuse_random_weights(name: str, info: dict[str, Any]) -> None:
    missing = sorted(info["missing_keys"])
    mismatched = sorted(str(m[0]) for m in info["mismatched_keys"])
    if missing or mismatched:
        what = f"lacks the weight {missing[0]!r}" if missing else f"has {mismatched[0]!r} in another shape than it says"
        more = len(missing) + len(mismatched) - 1
        also = f" (and {more} more)" if more else ""
        raise LoadError(f"{name!r} {what}{also}; it would run with random numbers there, so it is not run.")


def _first_line(error: BaseException) -> str:
    return first_line(error)[:300]
