"""What ships with a model about the text it writes: end tokens, and settings of transformers' `generate`."""

from __future__ import annotations

from transformers import PreTrainedModel

from draftproof.errors import LoadError


def end_tokens_of(model: PreTrainedModel) -> frozenset[int]:
    """Return the ids that end a text, as transformers' `generate` takes them: one, several or none.

    Raises `LoadError` for what is no id.
    """
    config = model.generation_config or model.config.get_text_config(decoder=True)
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    ids = ids if isinstance(ids, list | tuple) else [ids]
    if bad := [i for i in ids if not isinstance(i, int) or isinstance(i, bool)]:
        raise LoadError(
            f"the model ships eos_token_id={bad[0]!r}, which is no token id; mend its generation_config.json."
        )
    return frozenset(ids)


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
