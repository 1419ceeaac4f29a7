"""From a request's options to what serves them: a sampler and a stop rule for one target."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from draftproof.decode.stop import Stop
from draftproof.errors import ConfigError
from draftproof.models.load import Loaded
from draftproof.models.tokens import TextStream
from draftproof.options import Options
from draftproof.records import Generation
from draftproof.sampling.chance import SeededChance
from draftproof.sampling.processors import Processor, check_ids, clone, processors_of
from draftproof.sampling.sampler import RowSampler


def end_tokens_for(target: Loaded, options: Options) -> Collection[int]:
    """Return the end tokens that the request names, or the target's own."""
    return target.end_tokens if options.end_tokens is None else options.end_tokens


def sampler_of(
    target: Loaded,
    width: int,
    options: Options,
    prompt_tokens: int,
    sample: int = 0,
    processors: Sequence[Processor] = (),
) -> RowSampler:
    """Return what turns the target's rows into tokens; it works on copies of `processors`. Raises `ConfigError`."""
    if not isinstance(sample, int) or isinstance(sample, bool) or not 0 <= sample < 2**32:
        raise ConfigError(f"sample is {sample!r}; it must be a whole number, at least 0 and below 2**32.")
    check_ids("end_tokens", options.end_tokens or (), width)
    device = target.placement.device
    own = processors_of(
        options,
        width=width,
        prompt_tokens=prompt_tokens,
        end_tokens=end_tokens_for(target, options),
        tokenizer=target.tokenizer,
        device=device,
    )
    chance = SeededChance(options.seed or 0, sample)
    return RowSampler(options, chance, width=width, device=device, processors=own, custom=clone(processors))


def seeded_as(generation: Generation, options: Options | None) -> Options:
    """Return the options with the seed that a text was written with."""
    return Options.of(options, **({} if generation.seed is None else {"seed": generation.seed}))


def stop_of(target: Loaded, prompt: Sequence[int], options: Options, window: int | None) -> Stop:
    """Return what ends the text. Raises `ConfigError` for a prompt that fills the target's window."""
    limit, at_limit = options.max_new_tokens, None
    if window is not None:
        if len(prompt) >= window:
            raise ConfigError(
                f"the prompt has {len(prompt)} tokens and the target's window holds {window}; shorten the prompt."
            )
        if limit > window - len(prompt):
            limit = window - len(prompt)
            at_limit = (
                f"the target's window of {window} tokens is full, so the text ended after {limit} of the "
                f"{options.max_new_tokens} that were asked for"
            )
    return Stop(
        limit=limit,
        end_tokens=end_tokens_for(target, options),
        strings=options.stop,
        text=None if target.tokenizer is None else TextStream(target.tokenizer, prompt),
        at_limit=at_limit,
    )
