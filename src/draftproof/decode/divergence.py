"""Where two texts part, and whether arithmetic or a fault is to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

import torch

from draftproof.models.load import Loaded
from draftproof.models.session import Session
from draftproof.records import Divergence, Generation


def same_text(speculative: Generation, plain: Generation) -> bool:
    """Return whether two generations are the same: tokens, text and how they ended."""
    return (speculative.tokens, speculative.text, speculative.finish_reason, speculative.stop) == (
        plain.tokens,
        plain.text,
        plain.finish_reason,
        plain.stop,
    )


def attribute(
    target: Session,
    prompt: Sequence[int],
    speculative: Generation,
    plain: Generation,
    referee: Session | None = None,
    scores: Callable[[torch.Tensor, Sequence[int]], torch.Tensor] | None = None,
) -> Divergence:
    """Find the first differing token and replay both ways to it, to say what made the difference.

    A pass over one token and a pass over several round differently in their last bits. So the plain text is scored
    again, with no draft in play, in passes of the shapes that speculation used, and in one go. If that chooses another
    token than plain decoding did, or if its rounding is larger than plain decoding's margin, the two best tokens are a
    numeric tie. If not, or if the shape makes more difference than rounding can (`target.rounding` of the largest
    logit), something else is wrong: a bug. A `referee`, a session whose numerics are fixed, replays both ways with
    passes of one shape: a tie is one only if both have the same bits there, for then the shapes made the difference.
    `scores` turns a row and its history into what the largest of was taken; without it, rows are taken as they are.
    """
    at = _first_difference(speculative.tokens, plain.tokens)
    theirs = speculative.tokens[at] if at < len(speculative.tokens) else None
    ours = plain.tokens[at] if at < len(plain.tokens) else None
    if theirs is None or ours is None:
        return Divergence(at, theirs, ours, None, None, block_flips=False, noise=None, kind="bug")
    plain_row = _replay(target, prompt, plain, plain.tokens, at)
    speculative_row = _replay(target, prompt, speculative, None, at)
    blocks = [_replay(target, prompt, speculative, plain.tokens, at), _in_one_go(target, prompt, plain.tokens[:at])]
    shared = [*prompt, *plain.tokens[:at]]
    chosen_by = scores or (lambda row, history: row)
    decided = chosen_by(plain_row, shared)
    decided_in_blocks = [chosen_by(row, shared) for row in blocks]
    flips = any(int(row.argmax()) != ours for row in decided_in_blocks)
    noise = max(float((row - plain_row).abs().max()) for row in blocks)
    moved = max(_largest_move(row, decided) for row in decided_in_blocks)
    gap, rounding = _gap(decided), target.rounding * float(plain_row.abs().max())
    settled = None
    if referee is not None:
        settled = torch.equal(*(_replay(referee, prompt, way, None, at) for way in (speculative, plain)))
    tie = (flips or gap <= moved) and noise <= rounding and settled is not False
    return Divergence(
        position=at,
        speculative_token=theirs,
        plain_token=ours,
        speculative_gap=_finite(_gap(chosen_by(speculative_row, shared))),
        plain_gap=_finite(gap),
        block_flips=flips,
        noise=noise,
        kind="numeric tie" if tie else "bug",
        settled=settled,
    )


def describe(found: Divergence, target: Loaded) -> str:
    """Say in words where speculative and plain decoding parted, and what to do."""

    def show(token: int | None) -> str:
        if token is None:
            return "no token (it had ended)"
        return f"{token}" if target.tokenizer is None else f"{token} ({target.tokenizer.decode([token])!r})"

    def gap(value: float | None) -> str:
        return "" if value is None else f", {value:.3g} ahead of its second best"

    lines = [
        f"speculative and plain decoding differ at generated token {found.position}:",
        f"  speculative wrote {show(found.speculative_token)}{gap(found.speculative_gap)}",
        f"  plain wrote {show(found.plain_token)}{gap(found.plain_gap)}",
    ]
    dtype = target.placement.dtype
    if found.kind == "numeric tie":
        shape = "chooses another token too" if found.block_flips else "moves the logits by more than that gap"
        lines.append(
            f"  numeric tie: scoring the same prefix as a block, with no draft in play, {shape} "
            f"(the shape alone moves a logit by up to {found.noise:.3g} in {dtype})."
        )
        advice = "" if target.decoder else "; for texts that agree, use numerics='fixed'"
        if found.settled:
            lines.append("  With all passes in one shape (numerics='fixed') both ways have the same bits here.")
        lines.append(f"  Neither text is wrong{advice}.")
    elif found.noise is None:
        lines.append(
            "  bug: one of the texts had ended there, and the other went on. Please report it with the results file, "
            "or the records of both texts."
        )
    elif found.block_flips:
        lines.append(
            f"  bug: scoring the same prefix as a block, with no draft in play, moves a logit by {found.noise:.3g}, "
            f"more than rounding in {dtype} can: {target.model.config.model_type!r} does not read blocks as it reads "
            "single tokens. Please report it with the results file, or the records of both texts."
        )
    else:
        lines.append(
            "  bug: scoring the same prefix as a block, with no draft in play, chooses plain decoding's token. "
            "Please report it with the results file, or the records of both texts."
        )
    return "\n".join(lines)


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _replay(
    target: Session, prompt: Sequence[int], shapes: Generation, text: Sequence[int] | None, at: int
) -> torch.Tensor:
    """Repeat the passes of `shapes` up to generated token `at`, and return the logits that chose it.

    With `text`, its tokens stand in for the guesses, so that nothing in the pass comes from a draft.
    """
    target.forget()
    target.begin(prompt[:-1], len(prompt) + at + 1)
    if len(prompt) > 1:
        target.read(prompt[:-1])
    done = 0
    for round_ in shapes.rounds:
        written = shapes.tokens[:done] if text is None else text[:done]
        width = len(round_.proposed)
        block = round_.proposed if text is None else tuple(text[done : done + width])
        rows = target.read([*prompt, *written, *block], last=len(block) + 1)
        if at - done < len(round_.tokens):
            return rows[min(at - done, len(block))].float()
        done += len(round_.tokens)
    raise AssertionError("the difference lies behind the last round")


def _in_one_go(target: Session, prompt: Sequence[int], text: Sequence[int]) -> torch.Tensor:
    target.forget()
    target.begin((), len(prompt) + len(text))
    return target.read([*prompt, *text])[0].float()


def _largest_move(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return how far a score moved, of those that are finite both times."""
    both = a.isfinite() & b.isfinite()
    return float((a[both] - b[both]).abs().max()) if both.any() else 0.0


def _finite(gap: float) -> float | None:
    """A gap as it is recorded: none where the second best could not be chosen at all."""
    return gap if isfinite(gap) else None


def _gap(row: torch.Tensor) -> float:
    best, second = row.topk(2).values.tolist()
    return float(best - second)
