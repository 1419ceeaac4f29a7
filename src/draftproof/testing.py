"""Doubles for tests, ours and yours: small models with known properties, and a clock that is set by hand.

- `random_model` is a small Llama with large random weights: a target whose greedy text is stable in float32.
- `noisy` is a copy with noise on its output layer: a draft that is right now and then; it finds faults in going back.
- The model itself is the draft that is always right, which finds faults at stops and in the draft's cache.
- `TableSession` follows a function of the whole history, without any model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any

import draftproof.models  # noqa: F401  # isort: skip  (first, so that transformers is imported quietly)

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from draftproof.clock import HandSetClock
from draftproof.models.session import Whole
from draftproof.propose.scripted import Scripted

__all__ = [
    "HandSetClock",
    "Scripted",
    "TableSession",
    "byte_tokenizer",
    "chain_model",
    "noisy",
    "random_model",
    "scripted_session",
]


def random_model(seed: int = 0, **settings: Any) -> LlamaForCausalLM:
    """Return a random Llama: 300 tokens, hidden size 64, 4 layers, 4 heads sharing 2, window 256; no end token."""
    config: dict[str, object] = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.5,
        "bos_token_id": None,
        "eos_token_id": None,
        **settings,
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**config)).eval()


def noisy(model: PreTrainedModel, size: float, seed: int = 1) -> PreTrainedModel:
    """Return a copy of `model` with Gaussian noise of `size` times its own spread on the output layer."""
    twin = copy.deepcopy(model)
    head = twin.get_output_embeddings().weight
    noise = torch.randn(head.shape, generator=torch.Generator().manual_seed(seed)) * float(head.detach().float().std())
    head.data = (head.data.float() + size * noise).to(head.dtype)
    return twin


def byte_tokenizer(
    added: Sequence[str] = ("<end>",), merges: Sequence[tuple[str, str]] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the 256 bytes (id = byte), `merges`, and `added` special tokens: the first one ends."""
    alphabet = _byte_alphabet()
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in added])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=added[0] if added else None)


def _byte_alphabet() -> list[str]:
    """The printable stand-ins that byte-level tokenizers use, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [letters[b] for b in range(256)]


class TableSession:
    """A session whose logits are a function of the whole history, so that a stale cache cannot stay unseen.

    Like a real one it keeps what it has read and evaluates only new positions; `rule` gets the tokens up to and
    including a position, and returns that position's logits.
    """

    def __init__(
        self, rule: Callable[[Sequence[int]], Sequence[float]], *, width: int, window: int | None = None
    ) -> None:
        self._rule = rule
        self.width = width
        self.window = window
        self.rounding = 1e-3
        self.passes = 0
        self.on_pass: Callable[[int], None] = lambda tokens: None
        """Called with the number of new tokens at every pass; a test may move a clock here."""

    def begin(self, prompt: Sequence[int], reserve: int) -> int:
        return 0

    def forget(self) -> None:
        pass

    def read(self, sequence: Sequence[int], last: int = 1, whole: Whole | None = None) -> torch.Tensor:
        self.passes += 1
        self.on_pass(last)
        ends = range(len(sequence) - last + 1, len(sequence) + 1)
        return torch.tensor([list(self._rule(sequence[:end])) for end in ends])

    def write(
        self, sequence: Sequence[int], count: int, ends: Collection[int] = (), floor: float = 0.0
    ) -> tuple[list[int], list[float]]:
        written: list[int] = []
        sure: list[float] = []
        stays = 1.0
        for _ in range(count):
            row = self.read([*sequence, *written])[0]
            best, token = row.max(dim=-1)
            written.append(int(token))
            sure.append(float((best - row.logsumexp(-1)).exp()))
            stays *= sure[-1]
            if int(token) in ends or stays < floor:
                break
        return written, sure


def chain_model(table: torch.Tensor, **settings: Any) -> LlamaForCausalLM:
    """Return a Llama whose next-token logits are the row of `table` (`[tokens, tokens]`) for the last token.

    One layer whose weights are zero, an identity embedding, and the table as its output layer.
    """
    size = table.shape[0]
    model = random_model(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        rms_norm_eps=1e-12,
        **settings,
    )
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight.copy_(table.T / size**0.5)
    return model


def scripted_session(prompt: Sequence[int], script: Sequence[int], *, width: int) -> TableSession:
    """Return a session that writes `script` after `prompt`; where the text strays, what its history hashes to."""
    whole = [*prompt, *script]

    def rule(history: Sequence[int]) -> list[float]:
        at = len(history)
        right = list(history) == whole[:at] and at < len(whole)
        token = whole[at] if right else hash(tuple(history)) % width
        return [1.0 if i == token else 0.0 for i in range(width)]

    return TableSession(rule, width=width)
