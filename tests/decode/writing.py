"""Write scripted texts through the loop, plainly or with a draft that is right where it should be."""

from __future__ import annotations

from draftproof.clock import DeviceClock
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.models.tokens import TextStream
from draftproof.propose.draft import Draft
from draftproof.testing import Scripted, byte_tokenizer, scripted_session

TOKENIZER = byte_tokenizer(added=("<end>", "<a>"))
WIDTH = 258
PROMPT = list(b"Hi ")


def always_right(prompt, script):
    return Draft(scripted_session(prompt, script, width=WIDTH), WIDTH)


def wrong_at_every(n):
    """A draft that is right but for every n-th token of the text."""

    def make(prompt, script):
        whole = [*prompt, *script]

        def propose(sequence, k):
            at = len(sequence)
            return [(t + (i % n == 0)) % 256 for i, t in enumerate(whole[at : at + k], at - len(prompt) + 1)]

        return Scripted(propose)

    return make


DRAFTS = {"always right": always_right, "wrong at every third": wrong_at_every(3), "always wrong": wrong_at_every(1)}


def write(script, *, draft=None, k=0, limit=None, prompt=PROMPT, end_tokens=(), stop=()):
    """Return (generation, chunks of the stream) of the scripted text."""
    script = list(script.encode()) if isinstance(script, str) else list(script)
    rule = Stop(
        limit=len(script) if limit is None else limit,
        end_tokens=end_tokens,
        strings=stop,
        text=TextStream(TOKENIZER, prompt),
    )
    decoding = Decoding(
        scripted_session(prompt, script, width=WIDTH),
        prompt,
        proposer=draft and DRAFTS[draft](prompt, script),
        k=k,
        stop=rule,
        clock=DeviceClock(),
    )
    chunks = [rule.readable() for _ in decoding]
    return decoding.generation(), chunks
