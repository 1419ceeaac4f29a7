"""A request under any driver writes its own text: here two requests share every pass of the target."""

from __future__ import annotations

import pytest
import torch

from draftproof import DraftproofError, Options, Speculator
from draftproof.control import controller_of
from draftproof.decode.request import Request
from draftproof.decode.stop import Stop
from draftproof.engines.request import sampler_of
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.session import ModelSession
from draftproof.options import RULES
from draftproof.propose.draft import Draft
from draftproof.testing import HandSetClock, noisy, random_model

PROMPTS = [[5, 9, 200, 7], [11, 3, 250, 8, 40, 9] * 4]
OPTIONS = {"greedy": {}, **{rule: {"temperature": 0.8, "seed": 5, "verify": rule} for rule in RULES}}


class Driver:
    """Drives several requests, one pass of the target for all: what a scheduler does, without its choices."""

    def __init__(self, session, requests, clock):
        self.clock = clock
        self.running = {request: session.another() for request in requests}
        self.errors = {}
        for request, own in self.running.items():
            request.begin(lambda tokens, own=own, request=request: self.read_prompt(own, tokens, request.reserve))

    @staticmethod
    def read_prompt(own, tokens, reserve):
        own.begin(tokens, reserve)
        own.read(tokens)
        return 0

    def turn(self):
        """Run one pass for all that still write; one that fails is left behind, and the others go on."""
        self.leave()
        for request in self.running:
            request.propose()
        started = self.clock.now()
        planned = {request: own.plan(*request.wanted) for request, own in self.running.items()}
        rows = next(iter(self.running.values())).runner.run(list(planned.values()))
        share = (self.clock.now() - started) / sum(len(span.tokens) for span in planned.values())
        for (request, span), found in zip(planned.items(), rows, strict=True):
            self.running[request].commit(span)
            beside = sum(len(other.tokens) for other in planned.values()) - len(span.tokens)
            try:
                request.settle(found.logits, seconds=share * len(span.tokens), beside=beside)
            except DraftproofError as error:
                self.errors[request] = error
        self.leave()

    def leave(self):
        gone = [request for request in self.running if request.over or request in self.errors]
        for request in gone:
            del self.running[request]


def request_of(speculator, draft, prompt, options, clock, k, processors=()):
    sampler = sampler_of(speculator.target, 300, options, len(prompt), 0, processors)
    ends = frozenset(options.end_tokens or ())
    return Request(
        prompt,
        width=300,
        proposer=Draft(ModelSession(draft), 300, sampler, ends),
        controller=controller_of(k),
        stop=Stop(limit=options.max_new_tokens, end_tokens=ends),
        clock=clock,
        sampler=sampler,
    )


@pytest.fixture(scope="module", params=["compiled", "transformers"])
def passes(request):
    model = random_model()
    decoder = NativeDecoder(model) if request.param == "compiled" else None
    return Speculator(model, noisy(model, 0.2), k=4), ModelSession(model, decoder=decoder)


@torch.inference_mode()
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_two_requests_in_one_pass_write_what_each_writes_alone(passes, options):
    speculator, session = passes
    clock = HandSetClock()
    given = [Options(max_new_tokens=n, end_tokens=[17], **options) for n in (40, 60)]
    requests = [
        request_of(speculator, speculator.draft.model, prompt, how, clock, k)
        for prompt, how, k in zip(PROMPTS, given, (4, 2), strict=True)
    ]
    driver = Driver(session, requests, clock)
    while driver.running:
        driver.turn()
    for request, prompt, how, k in zip(requests, PROMPTS, given, (4, 2), strict=True):
        assert request.generation().tokens == speculator.generate(prompt, how, k=k).tokens
    assert all(request.generation().counts.accepted for request in requests)


@torch.inference_mode()
def test_ledgers_of_requests_that_share_passes_add_up_to_the_wall_clock(passes):
    speculator, session = passes
    clock = HandSetClock()
    requests = [
        request_of(speculator, speculator.draft.model, prompt, Options(max_new_tokens=n), clock, 3)
        for prompt, n in zip(PROMPTS, (20, 35), strict=True)
    ]
    driver = Driver(session, requests, clock)
    run = session.runner.run

    def slowly(spans):
        clock.advance(0.125 * len(spans))
        return run(spans)

    turns = 0
    try:
        session.runner.run = slowly
        while driver.running:
            alone = len([request for request in requests if not request.over]) == 1
            driver.turn()
            turns += 1
            last = [request.generation().rounds[-1] for request in driver.running]
            assert all(bool(r.beside) is not alone for r in last)
    finally:
        del session.runner.run
    spent = [request.generation().seconds for request in requests]
    assert sum(one.target_s for one in spent) == pytest.approx(clock.now())
    assert sum(one.total_s for one in spent) == pytest.approx(clock.now())
    assert turns == max(len(request.generation().rounds) for request in requests)


@torch.inference_mode()
def test_one_that_fails_or_is_cancelled_leaves_the_others_alone(passes):
    speculator, session = passes
    clock = HandSetClock()

    def fails(ids, scores):
        return scores * float("nan") if ids.shape[1] > 12 else scores

    how = Options(max_new_tokens=40)
    draft = speculator.draft.model
    bad = request_of(speculator, draft, PROMPTS[0], how, clock, 3, [fails])
    gone = request_of(speculator, draft, PROMPTS[0], how, clock, 2)
    good = request_of(speculator, draft, PROMPTS[1], how, clock, 4)
    driver = Driver(session, [bad, gone, good], clock)
    for turn in range(100):
        if turn == 3:
            assert gone.cancel().finish_reason == "cancelled"
        if not driver.running:
            break
        driver.turn()
    assert "NaN" in str(driver.errors[bad]) and set(driver.errors) == {bad}
    whole = speculator.generate(PROMPTS[0], how).tokens
    assert bad.generation().tokens == whole[: len(bad.generation().tokens)] and len(bad.generation().tokens) >= 8
    assert gone.generation().tokens == whole[: len(gone.generation().tokens)] and len(gone.generation().rounds) == 3
    assert good.generation().tokens == speculator.generate(PROMPTS[1], how).tokens
