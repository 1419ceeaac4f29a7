"""The same choice as settings of other engines. Sources: each project's own documentation of speculative decoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from draftproof.propose.ngram import LONGEST

CARRIES = "the draft's agreement carries over, costs and so the best k do not; measure there"
GREEDY = "texts agree up to its own near ties"


def elsewhere(target: str, draft: str | None, k: int) -> dict[str, dict[str, str]]:
    """Return, by engine, `settings` ready to paste for a fixed k, and a `note` of what does not carry over.

    `draft` is a model's name, `"ngram"`, or None where nothing pays.
    """
    return {name: make(target, draft, k) for name, make in _ENGINES.items()}


def _vllm(target: str, draft: str | None, k: int) -> dict[str, str]:
    if draft is None or k == 0:
        return {"settings": f"vllm serve {target}", "note": "no speculation"}
    config: dict[str, object] = {"method": "draft_model", "model": draft, "num_speculative_tokens": k}
    if draft == "ngram":
        config = {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": LONGEST, "prompt_lookup_min": 1}
    return {
        "settings": f"vllm serve {target} --speculative-config '{json.dumps(config)}'",
        "note": f"{CARRIES}; its batches change both",
    }


def _sglang(target: str, draft: str | None, k: int) -> dict[str, str]:
    start = f"python -m sglang.launch_server --model-path {target}"
    if draft is None or k == 0:
        return {"settings": start, "note": "no speculation"}
    if draft == "ngram":
        flags = f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {k + 1}"
        return {"settings": f"{start} {flags}", "note": f"{CARRIES}; CUDA only"}
    flags = (
        f"--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
        f"--speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {k + 1}"
    )
    return {"settings": f"{start} {flags}", "note": CARRIES}


def _llama_cpp(target: str, draft: str | None, k: int) -> dict[str, str]:
    start = f"llama-server -m {_gguf(target)}"
    if draft is None or k == 0:
        return {"settings": start, "note": "no speculation"}
    if draft == "ngram":
        flags = f"--spec-type ngram-simple --spec-ngram-size-n {LONGEST} --spec-ngram-size-m {k} --draft-max {k}"
    else:
        flags = f"-md {_gguf(draft)} --draft-max {k} --draft-min 0 --draft-p-min 0"
    note = "models as .gguf files; newer builds call --draft-max --spec-draft-n-max"
    return {"settings": f"{start} {flags}", "note": f"{CARRIES}; {note}; {GREEDY}"}


def _transformers(target: str, draft: str | None, k: int) -> dict[str, str]:
    if draft is None or k == 0:
        return {"settings": "model.generate(**inputs)", "note": "no speculation"}
    if draft == "ngram":
        looked_up = f"prompt_lookup_num_tokens={k}, max_matching_ngram_size={LONGEST}"
        return {"settings": f"model.generate(**inputs, {looked_up})", "note": f"{CARRIES}; one text at a time"}
    lines = (
        f'assistant = AutoModelForCausalLM.from_pretrained("{draft}")',
        f'assistant.generation_config.update(num_assistant_tokens={k}, num_assistant_tokens_schedule="constant", '
        "assistant_confidence_threshold=0.0)",
        "model.generate(**inputs, assistant_model=assistant)",
    )
    return {"settings": "\n".join(lines), "note": f"{CARRIES}; one text at a time"}


def _gguf(name: str) -> str:
    return name if name.endswith(".gguf") else f"{name.rstrip('/').rpartition('/')[2]}.gguf"


_ENGINES: Mapping[str, Callable[[str, str | None, int], dict[str, str]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
}
