"""Numbers for Prometheus, under the names that vLLM has for them, so that dashboards and load generators read them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from draftproof.records import Generation, Round
from draftproof.server.engine import Engine
from draftproof.server.texts import Running, Watcher

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics(Watcher):
    """Counts what an engine does."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._registry = CollectorRegistry()
        self._drafts = self._counter("vllm:spec_decode_num_drafts", "Rounds with guesses.")
        self._guesses = self._counter("vllm:spec_decode_num_draft_tokens", "Guesses.")
        self._accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Guesses that were kept.")
        self._per_position = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Guesses that were kept, by their place in a round.",
            ("model_name", "position"),
            registry=self._registry,
        )
        self._prompt = self._counter("vllm:prompt_tokens", "Tokens of prompts.")
        self._cached = self._counter("vllm:prefix_cache_hits", "Tokens of prompts that had been read for another text.")
        self._written = self._counter("vllm:generation_tokens", "Tokens written.")
        self._ended = Counter(
            "vllm:request_success",
            "Texts that ended.",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        self._first = self._histogram("vllm:time_to_first_token_seconds", "Until a text's first token.", SECONDS)
        self._between = self._histogram("vllm:inter_token_latency_seconds", "Between two tokens of a text.", BETWEEN)
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", "Of a whole text.", SECONDS)
        self._checked = self._counter(
            "draftproof:checked", "Finished texts that were written again, alone and plainly."
        )
        self._different = self._counter("draftproof:differences", "Those of them that were not the same.")

    def _counter(self, name: str, about: str) -> Counter:
        made = Counter(name, about, ("model_name",), registry=self._registry)
        made.labels(self._model)
        return made

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(name, about, ("model_name",), registry=self._registry, buckets=buckets)
        made.labels(self._model)
        return made

    def watch(self, engine: Engine) -> None:
        """Tell of an engine's state too, whenever it is asked for."""
        self._registry.register(_State(engine, self._model))
        self._now = engine.speculator.clock.now

    def round(self, running: Running, done: Round) -> None:
        now, model = self._now(), self._model
        if running.last_s is None:
            self._first.labels(model).observe(now - running.arrived_s)
        else:
            each = (now - running.last_s) / max(1, len(done.tokens))
            for _ in done.tokens:
                self._between.labels(model).observe(each)
        running.last_s = now
        self._written.labels(model).inc(len(done.tokens))
        if done.proposed:
            self._drafts.labels(model).inc()
            self._guesses.labels(model).inc(len(done.proposed))
            self._accepted.labels(model).inc(done.accepted)
            for position in range(done.accepted):
                self._per_position.labels(model, str(position)).inc()

    def ended(self, running: Running, generation: Generation) -> None:
        self._ended.labels(self._model, generation.finish_reason).inc()
        self._prompt.labels(self._model).inc(generation.prompt_tokens)
        self._cached.labels(self._model).inc(generation.prompt_tokens_reused)
        self._whole.labels(self._model).observe(self._now() - running.arrived_s)

    def checked(self, same: bool) -> None:
        self._checked.labels(self._model).inc()
        self._different.labels(self._model).inc(not same)

    def text(self) -> bytes:
        """Return all of it in Prometheus' text form."""
        return bytes(generate_latest(self._registry))


class _State:
    """What an engine is doing just now."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        memory = self._engine.batch.scheduler.memory
        used = memory.used / memory.limit if memory.limit else 0.0
        for name, about, value in (
            ("vllm:num_requests_running", "Texts that are being written.", len(self._engine.running)),
            ("vllm:num_requests_waiting", "Texts that wait.", self._engine.waiting),
            ("vllm:kv_cache_usage_perc", "Share of the caches' limit that is used, 0 without one.", used),
            ("draftproof:kv_cache_bytes", "Bytes of the caches.", memory.used),
        ):
            gauge = GaugeMetricFamily(name, about, labels=("model_name",))
            gauge.add_metric((self._model,), value)
            yield gauge
