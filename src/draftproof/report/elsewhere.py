"""The same choice as settings of other engines. Sources: each project's own documentation of speculative decoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from draftproof.propose.ngram import LONGEST

CARRIES = "the draft's agreement carries over, costs and so the best k do not; measure there"


def elsewhere(target: str, draft: str | None, k: int) -> dict[str, dict[str, str]]:
    """Return, by engine, `settings` ready to paste for a fixed k, and a `note` of what does not carry over.

    `draft` is a model's name, `"ngram"`, or None where nothing pays.
    """
    found = {}
    for name, (start, add) in _ENGINES.items():
        plain = start(target)
        settings, note = (plain, "no speculation") if draft is None or k == 0 else add(plain, draft, k)
        found[name] = {"settings": settings, "note": note}
    return found


def _vllm(plain: str, draft: str, k: int) -> tuple[str, str]:
    config: dict[str, object] = {"method": "draft_model", "model": draft, "num_speculative_tokens": k}
    if draft == "ngram":
        config = {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": LONGEST, "prompt_lookup_min": 1}
    return f"{plain} --speculative-config '{json.dumps(config)}'", f"{CARRIES}; its batches change both"


def _sglang(plain: str, draft: str, k: int) -> tuple[str, str]:
    if draft == "ngram":
        flags = f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {k + 1}"
        return f"{plain} {flags}", f"{CARRIES}; CUDA only"
    flags = (
        f"--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
        f"--speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {k + 1}"
    )
    return f"{plain} {flags}", CARRIES


def _llama_cpp(plain: str, draft: str, k: int) -> tuple[str, str]:
    flags = f"-md {_gguf(draft)} --draft-max {k} --draft-min 0 --draft-p-min 0"
    if draft == "ngram":
        flags = f"--spec-type ngram-simple --spec-ngram-size-n {LONGEST} --spec-ngram-size-m {k} --draft-max {k}"
    note = "models as .gguf files; newer builds call --draft-max --spec-draft-n-max"
    return f"{plain} {flags}", f"{CARRIES}; {note}; texts agree up to its own near ties"


def _transformers(plain: str, draft: str, k: int) -> tuple[str, str]:
    call = plain.removesuffix(")")
    lines = [
        f'assistant = AutoModelForCausalLM.from_pretrained("{draft}")',
        f'assistant.generation_config.update(num_assistant_tokens={k}, num_assistant_tokens_schedule="constant", '
        "assistant_confidence_threshold=0.0)",
        f"{call}, assistant_model=assistant)",
    ]
    if draft == "ngram":
        lines = [f"{call}, prompt_lookup_num_tokens={k}, max_matching_ngram_size={LONGEST})"]
    return "\n".join(lines), f"{CARRIES}; one text at a time"


def _gguf(name: str) -> str:
    return name if name.endswith(".gguf") else f"{name.rstrip('/').rpartition('/')[2]}.gguf"


_ENGINES: Mapping[str, tuple[Callable[[str], str], Callable[[str, str, int], tuple[str, str]]]] = {
    "vllm": (lambda target: f"vllm serve {target}", _vllm),
    "sglang": (lambda target: f"python -m sglang.launch_server --model-path {target}", _sglang),
    "llama.cpp": (lambda target: f"llama-server -m {_gguf(target)}", _llama_cpp),
    "transformers": (lambda target: "model.generate(**inputs)", _transformers),
}
"""By engine: how it is started plainly, and what speculation adds to that."""
