"""Load a model and its tokenizer from a folder, a GGUF file or the hub, or say in one line why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedModel

from draftproof.errors import CompileError, DraftproofError, LoadError, brief
from draftproof.files.adapter import Adapter, settle
from draftproof.files.find import EMBEDDED, find
from draftproof.models.checked import Checked
from draftproof.models.folder import read_folder
from draftproof.models.gguf import read_gguf
from draftproof.models.merge import about_base, merge_and_take_text_side, tokenizer_of
from draftproof.models.native.cover import refuse
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.library import library
from draftproof.models.native.steady import keeps_bits
from draftproof.models.placement import place
from draftproof.models.quantise import quantise
from draftproof.models.session import ModelSession
from draftproof.models.shipped import end_tokens_of, notes_of
from draftproof.models.text_side import text_side
from draftproof.models.tokenizer import same_tokenizer
from draftproof.models.trial import Sample, agrees, check_cache, sample_of
from draftproof.models.windows import masks_by_length
from draftproof.records import Placement
from draftproof.settings import check_settings

__all__ = ["EMBEDDED", "Loaded", "compiled", "end_tokens_of", "find", "load", "notes_of"]


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
    tokenizer_from: Path | None = None
    """The folder that the tokenizer was read from, as it is there."""
    checked: Checked | None = None
    """What was found right of the same files before; None for a model that is more than its files."""

    def told(self) -> tuple[str, ...]:
        """Return all that there is to say about how it was loaded."""
        return (*self.notes, *why_not_compiled(self))

    def __repr__(self) -> str:
        kind, placement = self.model.config.model_type, self.placement
        bits = f", {placement.weights} weights" if placement.weights else ""
        return f"<Loaded {self.name!r}: {kind} on {placement.device} in {placement.dtype}{bits}, {placement.passes}>"

    def session(self, window: int | None = None, *, shape: int | None = None) -> ModelSession:
        """Return a session of its own on this model; the arguments are those of `ModelSession`."""
        return ModelSession(self.model, window, decoder=self.decoder, shape=shape, graphs=self.graphs)


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
    adapter: str | Path | None = None,
    trust_remote_code: bool = False,
    beside: Loaded | None = None,
) -> Loaded:
    """Load `name`: a hub name, a folder, a `.gguf` file, or one of `EMBEDDED`; the rest is as in `place`.

    `compile` is one of `settings.COMPILE`: `"off"` leaves all passes to transformers; `"on"` has them compiled where
    that can be done, and says in the result why not; `"wait"` does so too, but not where compiled passes are slower
    than what they replace (see `native.library`); `"auto"` is as `"wait"`, but lets no request wait for the compiler:
    what is not there yet is made in the background, for the next time. A model whose passes are compiled loses its own
    copy of the weights unless `keep_weights`. `weights` quantises it first (see `models.quantise`).

    `adapter` is a LoRA adapter's folder or hub name, to be merged into the weights before all that (see
    `models.merge`); `"none"` leaves out one that lies in the model's own folder. Of a model that also sees, the text
    side is loaded.

    Where this model's tokens are those of `beside`, for which it is going to guess, that one's tokenizer is taken, its
    chat template included: reading the same files again takes seconds.

    Nobody is asked anything, and nothing is fetched for a folder. Code that a model brings along runs only with
    `trust_remote_code`; without it, a model that cannot do without is refused.

    Raises `LoadError` for what is missing or broken, `CacheError` for an architecture that cannot go back, and
    `ConfigError` for a device that is not there; all before the weights are read where that can be known.
    """
    check_settings(device=device, dtype=dtype, compile=compile, weights=weights)
    weights = None if weights == "none" else weights
    found = find(str(name), revision, code=trust_remote_code)
    path, changes, told = settle(str(name), found, None if adapter is None else str(adapter))
    try:
        read = read_gguf if path.is_file() else partial(read_folder, tokenizer=_known_tokenizer(path, beside))

        def fresh() -> Loaded:
            decide = partial(place, device, dtype, because=because)
            model, tokenizer, where, notes = read(str(name), path, decide, weights=weights, trust=trust_remote_code)
            loaded = _ready(str(name), model, tokenizer, where, (*told, *notes), changes)
            if changes is None:
                loaded = replace(loaded, tokenizer_from=path, checked=_checked(path, where, weights))
            return loaded if weights is None else _quantised(loaded, weights)

        try:
            return compiled(fresh(), compile, keep_weights=keep_weights)
        except CompileError as error:  # found too late: the weights were given up
            return replace(compiled(fresh(), "off"), why_not_compiled=str(error))
    except DraftproofError:
        raise
    except Exception as error:  # a damaged folder makes the libraries raise almost anything
        raise LoadError(
            f"cannot load {str(name)!r}: {brief(error)}. Its files are damaged, incomplete or of another version; "
            "download them again."
        ) from error


def _checked(path: Path, placement: Placement, weights: str | None) -> Checked | None:
    if placement.device != "cpu" or placement.own_code:
        return None
    return Checked(path, placement.dtype, weights)


def _known_tokenizer(path: Path, beside: Loaded | None) -> Any:
    known = beside is not None and beside.tokenizer_from is not None and same_tokenizer(path, beside.tokenizer_from)
    return beside.tokenizer if beside is not None and known else None


def _ready(
    name: str,
    model: PreTrainedModel,
    tokenizer: Any,
    placement: Placement,
    notes: tuple[str, ...],
    adapter: Adapter | None,
) -> Loaded:
    if adapter is None:
        model, told = text_side(model)
    else:
        model, told = merge_and_take_text_side(model.eval(), adapter)
        tokenizer, of_tokenizer = tokenizer_of(adapter, tokenizer, model)
        told = (*about_base(adapter, name), *told, *of_tokenizer)
        reason = f"{placement.reason}; adapter {adapter.name!r} merged into the weights"
        placement = replace(placement, reason=reason, adapter=adapter.name)
    model = model.to(placement.device).eval()
    return Loaded(name, model, tokenizer, placement, end_tokens_of(model), (*notes, *told, *notes_of(model)))


def _quantised(loaded: Loaded, weights: str) -> Loaded:
    _check(loaded, "of transformers, before quantising")  # strictly: a quantised model's logits tell less
    quantise(loaded.model, weights)
    placement = replace(loaded.placement, reason=f"{loaded.placement.reason}; {weights} weights", weights=weights)
    return replace(loaded, placement=placement)


def compiled(loaded: Loaded, compile: str, *, keep_weights: bool = False) -> Loaded:
    """Return `loaded` with compiled passes, or with a note that says why there are none; `compile` is as in `load`.

    Whatever stands in the way, the model goes on through transformers. Passes of either kind have to give transformers'
    own logits on a few tokens before they are used, and compiled ones the same bits in every shape, once for the same
    files: a model whose passes through transformers
    do not raises `CacheError`, and one whose weights are given up already for compiled passes that do not,
    `CompileError`.
    """
    if compile == "off":
        _check(loaded)
        return loaded
    sample: Sample | None = None
    name = loaded.model.config.model_type
    passes: Literal["compiled", "graphs"]
    try:
        if loaded.model.device.type == "cuda":
            if masks_by_length(loaded.model):
                raise CompileError(f"{name!r} finds its place by the cache's length, so no pass of it can be replayed")
            sample = sample_of(loaded.model)
            passes, found = "graphs", replace(loaded, graphs=True)
        else:
            refuse(loaded.model)
            kernels = library(wait=compile != "auto", slower=compile == "on")
            own = f"of {Path(kernels._name).stem}"
            if loaded.checked is None or not loaded.checked.holds(own):
                sample = sample_of(loaded.model)
            decoder = NativeDecoder(loaded.model, kernels, consume=not keep_weights)
            passes, found = "compiled", replace(loaded, decoder=decoder)
        if sample is not None and not _agrees(found.session(), sample):
            raise CompileError(f"compiled passes give other logits for {name!r} than transformers does")
        if sample is not None and found.decoder is not None and not keeps_bits(found.decoder):
            raise CompileError("compiled here, on this processor, a row's bits depend on what else its pass holds")
        if sample is not None and loaded.checked is not None:
            loaded.checked.keep(own)
    except CompileError as error:
        if loaded.model.device.type == "meta":
            raise
        _check(loaded, sample=sample)
        return replace(loaded, why_not_compiled=str(error))
    return replace(found, placement=_told(loaded.placement, passes))


def _check(loaded: Loaded, passes: str = "of transformers", *, sample: Sample | None = None) -> None:
    if loaded.checked is not None and loaded.checked.holds(passes):
        return
    check_cache(loaded.model, sample)
    if loaded.checked is not None:
        loaded.checked.keep(passes)


def why_not_compiled(*models: Loaded | None) -> list[str]:
    """Say for which of these models compiled passes were wanted and are not there, and why: a line for each reason."""
    names: dict[str, list[str]] = {}
    for loaded in models:
        if loaded is not None and loaded.why_not_compiled is not None:
            names.setdefault(loaded.why_not_compiled, []).append(loaded.name)
    return [
        f"{' and '.join(dict.fromkeys(of))}: passes go through transformers: {reason}" for reason, of in names.items()
    ]


def _agrees(session: ModelSession, sample: Sample) -> bool:
    try:
        return agrees(session, sample)
    except Exception as error:  # a capture may fail in many ways
        raise CompileError(f"{session.model.config.model_type!r} cannot be captured as a graph: {error}") from error


def _told(placement: Placement, passes: Literal["compiled", "graphs"]) -> Placement:
    words = {"compiled": "compiled passes", "graphs": "passes captured as CUDA graphs"}[passes]
    return replace(placement, reason=f"{placement.reason}; {words}", passes=passes)
