"""Metrics of HTTP, of the models and of the process, for Prometheus; docs/how-to/operations.md
explains each.

Labels are bounded: route templates, statuses, names of models, codes of errors; never data from a
client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from serving.queue.observer import Observer

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_RATIOS = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)


class HttpMetrics:
    """Counts the requests of one app."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "macaron_http_requests",
            "HTTP requests answered; the model is empty if none was chosen",
            ["route", "status", "model"],
            registry=registry,
        )
        self._seconds = Histogram(
            "macaron_http_request_seconds",
            "From the head of a request to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge(
            "macaron_http_requests_in_progress", "HTTP requests not yet answered", registry=registry
        )
        self._errors = Counter(
            "macaron_errors",
            "Requests that ended with an error, by its code",
            ["reason"],
            registry=registry,
        )
        self._cancelled = Counter(
            "macaron_cancelled_requests",
            "Requests whose client left before the end of the answer",
            ["route"],
            registry=registry,
        )

    def count(
        self, route: str, status: int, seconds: float, *, model: str, error: str, left: bool
    ) -> None:
        """Count a finished request. `model` is empty if none was chosen; `error` is the code of the
        error that ended it, or empty. `left` is whether its client left before the end."""
        self._requests.labels(route, str(status), model).inc()
        self._seconds.labels(route).observe(seconds)
        if error:
            self._errors.labels(error).inc()
        if left:
            self._cancelled.labels(route).inc()

    def text(self) -> bytes:
        """The metrics of HTTP in Prometheus' text format."""
        return generate_latest(self._registry)


@dataclass(frozen=True)
class ModelState:
    """A model's properties, and the number of its requests at the time of a scrape."""

    name: str
    task: str
    family: str
    precision: str
    queue_depth: int
    rows: int
    """Number of texts or outputs that are being decoded."""
    cache_bytes: int
    """Bytes that the cache of answers holds."""
    loaded: bool


@dataclass(frozen=True)
class State:
    """The state of the server at the time of a scrape."""

    ready: bool
    models: Sequence[ModelState]
    decoder_bytes: int = 0
    """Memory of the decoding processes in bytes; 0 if there are none."""


class Metrics:
    """All metrics of one server process except those of HTTP."""

    def __init__(self, state: Callable[[], State]) -> None:
        """`state` is called at each scrape."""
        self._registry = registry = CollectorRegistry()
        self.reloads = Counter(
            "macaron_reloads", "Reloads of the bundles", ["result"], registry=registry
        )
        self._models = _ModelMetrics(registry)
        registry.register(_StateCollector(state))
        ProcessCollector(registry=registry)

    def observer(self, model: str) -> ModelObserver:
        """An observer that counts the activity of the scheduler of the model with this name."""
        return ModelObserver(self._models, model)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _ModelMetrics:
    """Metrics that schedulers update while they work, each with the model as its label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, help: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, help, ["model"], buckets=buckets, registry=registry)

        def counter(name: str, help: str) -> Counter:
            return Counter(name, help, ["model"], registry=registry)

        self.queue_wait = histogram(
            "macaron_queue_wait_seconds", "From submission to the first step", _SECONDS
        )
        self.batch_size = histogram(
            "macaron_batch_size", "Rows of a batch after others have joined it", _ROWS
        )
        self.batch_tokens = histogram(
            "macaron_batch_tokens", "Rows x longest source of a batch, padding included", _TOKENS
        )
        self.padding = histogram(
            "macaron_batch_padding_ratio",
            "Share of a batch's source tokens that is padding",
            _RATIOS,
        )
        self.first_token = histogram(
            "macaron_time_to_first_token_seconds",
            "From submission of a prompt to its first token",
            _SECONDS,
        )
        self.decoded = counter("macaron_decoded", "Texts or prompts decoded to the end")
        self.tokens = counter("macaron_generated_tokens", "Tokens of their best outputs")
        self.lost = counter(
            "macaron_decoders_lost", "Engines that failed or ended and were restarted"
        )
        self.repairs = Counter(
            "macaron_repairs",
            "Faults of translations, by their kind and by what put them right, `none` if nothing",
            ["model", "kind", "by"],
            registry=registry,
        )
        self.coalesced = counter("macaron_coalesced", "Texts that were in flight already")
        self.cache_hits = counter("macaron_cache_hits", "Texts answered from the cache")
        self.cache_misses = counter("macaron_cache_misses", "Texts that the cache did not contain")


class ModelObserver(Observer):
    """Counts the activity that one model's scheduler reports; `Observer` says when each method is
    called."""

    def __init__(self, metrics: _ModelMetrics, model: str) -> None:
        self._queue_wait = metrics.queue_wait.labels(model)
        self._batch_size = metrics.batch_size.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._padding = metrics.padding.labels(model)
        self._first_token = metrics.first_token.labels(model)
        self._decoded = metrics.decoded.labels(model)
        self._tokens = metrics.tokens.labels(model)
        self._lost = metrics.lost.labels(model)
        self._model, self._repairs = model, metrics.repairs
        self._coalesced = metrics.coalesced.labels(model)
        self._hits = metrics.cache_hits.labels(model)
        self._misses = metrics.cache_misses.labels(model)

    def joined(self, waits_s: Sequence[float], lengths: Sequence[int]) -> None:
        for wait in waits_s:
            self._queue_wait.observe(wait)
        padded = len(lengths) * max(lengths)
        self._batch_size.observe(len(lengths))
        self._batch_tokens.observe(padded)
        self._padding.observe(1 - sum(lengths) / padded)

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def decoded(self, tokens: int) -> None:
        self._decoded.inc()
        self._tokens.inc(tokens)

    def repaired(self, kind: str, by: str) -> None:
        self._repairs.labels(self._model, kind, by).inc()

    def lost(self) -> None:
        self._lost.inc()

    def coalesced(self) -> None:
        self._coalesced.inc()

    def looked_up(self, *, found: bool) -> None:
        (self._hits if found else self._misses).inc()


class _StateCollector(Collector):
    """Gauges that are computed at each scrape, from the server's present state."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """Yield the present state of the server as gauges."""
        state = self._state()
        yield GaugeMetricFamily(
            "macaron_ready", "1 if requests should be sent here", value=state.ready
        )
        info = GaugeMetricFamily(
            "macaron_model_info",
            "1 for every model served",
            labels=["model", "task", "family", "precision"],
        )
        depth = GaugeMetricFamily("macaron_queue_depth", "Texts that wait", labels=["model"])
        rows = GaugeMetricFamily("macaron_rows", "Texts being decoded", labels=["model"])
        loaded = GaugeMetricFamily(
            "macaron_model_loaded",
            "1 for a loaded model, 0 for one that is loaded on demand",
            labels=["model"],
        )
        held = GaugeMetricFamily(
            "macaron_cache_bytes", "Bytes held by the cache of answers", labels=["model"]
        )
        yield GaugeMetricFamily(
            "macaron_decoder_resident_bytes",
            "Memory of the decoding processes, beside the server's; what they share counts once",
            value=state.decoder_bytes,
        )
        for model in state.models:
            info.add_metric([model.name, model.task, model.family, model.precision], 1)
            depth.add_metric([model.name], model.queue_depth)
            rows.add_metric([model.name], model.rows)
            held.add_metric([model.name], model.cache_bytes)
            loaded.add_metric([model.name], model.loaded)
        yield from (info, depth, rows, held, loaded)
        if (threads := _threads()) is not None:
            yield GaugeMetricFamily("process_threads", "Threads of the process", value=threads)


def _threads() -> int | None:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:  # another system than Linux
        return None
