"""Train the pair that ships inside the package: a small target and a draft several times cheaper in time.

    python models/train_pair.py --out src/draftproof/pair

The text is the standard library of the Python that runs this script (the language reference kept in `pydoc_data`, and
the source of its modules), so a fresh machine has it already; its licence is PSF-2.0. Three stages, all on the CPU:

1. a byte-level BPE tokenizer, shared by both models;
2. target and draft together: the target learns the text, the draft learns the target's distribution (same batch);
3. the draft alone, on what the target itself writes greedily, since that is the text it will have to guess.

Weights are written in bfloat16 (about 18 MB in all) beside a model card with the measured losses.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import sys
import sysconfig
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|endoftext|>"
VOCABULARY = 4096
WINDOW = 512
REFERENCE_SHARE = 0.3  # of the training tokens; the rest is source code
SKIPPED = {
    "__pycache__", "ctypes", "distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "msilib", "pydoc_data",
    "site-packages", "test", "tests", "tkinter", "turtledemo", "_pydecimal.py", "turtle.py",
}  # fmt: skip
TARGET = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 8, "num_attention_heads": 4}
DRAFT = {"hidden_size": 160, "intermediate_size": 448, "num_hidden_layers": 2, "num_attention_heads": 5}


def read_corpus() -> tuple[list[str], list[str]]:
    """Return the language reference, one text a topic, and the library's modules, one text a file."""
    from pydoc_data.topics import topics

    root = Path(sysconfig.get_path("stdlib"))
    modules = []
    for path in sorted(root.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(root).parts):
            text = path.read_text(encoding="utf-8", errors="ignore")
            if "\x00" not in text and len(text) > 400:
                modules.append(text)
    return [topics[name] for name in sorted(topics)], modules


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, model_max_length=WINDOW, clean_up_tokenization_spaces=False
    )


def split(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokenize; return (training, validation) streams. Every 40th piece of 2,000 tokens is held out."""
    ids: list[int] = []
    for text in texts:
        ids += [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    pieces = list(torch.tensor(ids).split(2000))
    return torch.cat([p for i, p in enumerate(pieces) if i % 40 != 7]), torch.cat(pieces[7::40])


def make_model(shape: dict[str, int], end_id: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=WINDOW,
        num_key_value_heads=shape["num_attention_heads"],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        **shape,
    )
    return LlamaForCausalLM(config)


class Optimiser:
    """Muon for the matrices inside the layers, AdamW for the rest, one learning-rate schedule for both."""

    def __init__(self, model: LlamaForCausalLM, rate: float) -> None:
        inner = [p for n, p in model.named_parameters() if p.ndim == 2 and ".layers." in n]
        rest = [p for n, p in model.named_parameters() if not (p.ndim == 2 and ".layers." in n)]
        self.parts = [
            torch.optim.Muon(inner, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.01),
        ]
        self.rate = rate
        self.parameters = [*inner, *rest]

    def step(self, fraction: float) -> None:
        """Apply the gradients; `fraction` in 0..1 is how far the stage is: a short rise, then a cosine to zero."""
        scale = min(1.0, fraction / 0.03) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * fraction)))
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.rate * scale
            part.step()
            part.zero_grad()


def divergence(draft_logits: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """KL(target || draft) in nats a token, rows flattened."""
    p = target_logits.float().flatten(0, -2).log_softmax(-1)
    q = draft_logits.float().flatten(0, -2).log_softmax(-1)
    return functional.kl_div(q, p, log_target=True, reduction="batchmean")


def logits_of(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(input_ids=ids, use_cache=False).logits


@torch.no_grad()
def validate(model: LlamaForCausalLM, stream: torch.Tensor) -> float:
    """Return the loss in nats a token over a held-out stream."""
    model.eval()
    losses = []
    for ids in stream[: stream.numel() // 256 * 256].view(-1, 256).split(16)[:12]:
        logits = logits_of(model, ids)[:, :-1].float()
        losses.append(functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item())
    model.train()
    return sum(losses) / len(losses)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model. It computes in float32, as its config says, and is stored in bfloat16: half the bytes."""
    state = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    half = LlamaForCausalLM(model.config).to(torch.bfloat16)
    half.load_state_dict(state)
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1600, help="steps of stage 2, 4,096 tokens each")
    parser.add_argument("--own-text-rounds", type=int, default=60, help="rounds of stage 3")
    options = parser.parse_args()
    started = time.monotonic()
    random.seed(0)
    torch.manual_seed(0)

    reference, modules = read_corpus()
    tokenizer = train_tokenizer(reference + modules)
    random.shuffle(modules)
    (reference_train, reference_val), (code_train, code_val) = split(reference, tokenizer), split(modules, tokenizer)
    print(f"tokens: reference {reference_train.numel()}, code {code_train.numel()}", flush=True)

    target, draft = make_model(TARGET, tokenizer.eos_token_id), make_model(DRAFT, tokenizer.eos_token_id)
    target_optimiser, draft_optimiser = Optimiser(target, 3e-3), Optimiser(draft, 4e-3)

    def batch(rows: int, length: int) -> torch.Tensor:
        picked = []
        for _ in range(rows):
            stream = reference_train if random.random() < REFERENCE_SHARE else code_train
            start = random.randrange(stream.numel() - length)
            picked.append(stream[start : start + length])
        return torch.stack(picked)

    for step in range(options.steps):
        ids = batch(8, WINDOW)
        logits = logits_of(target, ids)
        loss = functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        target_optimiser.step(step / options.steps)
        gap = divergence(logits_of(draft, ids), logits.detach())
        gap.backward()
        draft_optimiser.step(step / options.steps)
        if step % 50 == 49:
            spent = time.monotonic() - started
            print(f"step {step + 1} loss {loss.item():.3f} draft KL {gap.item():.3f} {spent:.0f} s", flush=True)
        if step % 400 == 399:
            save(target, tokenizer, options.out / "target")
            save(draft, tokenizer, options.out / "draft")
            print(f"validation {validate(target, reference_val):.3f} {validate(target, code_val):.3f}", flush=True)

    target.eval()
    optimiser = Optimiser(draft, 2e-3)
    for round_ in range(options.own_text_rounds):
        starts = batch(64, random.choice((16, 32, 64)))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            text = target.generate(
                starts, attention_mask=torch.ones_like(starts), max_new_tokens=160, do_sample=False, pad_token_id=0
            )
        inputs = torch.cat([text, batch(16, text.shape[1])])
        inputs = inputs[torch.randperm(inputs.shape[0])]
        for part in inputs.split(20):
            with torch.no_grad():
                wanted = logits_of(target, part)
            gap = divergence(logits_of(draft, part), wanted)
            gap.backward()
            optimiser.step(round_ / options.own_text_rounds)
        if round_ % 10 == 9:
            print(f"own text {round_ + 1} KL {gap.item():.3f} {time.monotonic() - started:.0f} s", flush=True)

    save(target, tokenizer, options.out / "target")
    save(draft, tokenizer, options.out / "draft")
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokens": {"reference": reference_train.numel(), "code": code_train.numel()},
        "steps": options.steps,
        "own_text_rounds": options.own_text_rounds,
        "seconds": round(time.monotonic() - started),
        "parameters": {"target": target.num_parameters(), "draft": draft.num_parameters()},
        "validation_loss": {
            "target": {"reference": validate(target, reference_val), "code": validate(target, code_val)},
            "draft": {"reference": validate(draft, reference_val), "code": validate(draft, code_val)},
        },
    }
    (options.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts), file=sys.stderr)


if __name__ == "__main__":
    main()
