"""What the server measures of HTTP, for Prometheus; docs/operations.md says what each is for.

Labels are bounded: route templates, statuses, names of models, codes of errors; never what a client
sent.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.server.context import RequestContext

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class HttpMetrics:
    """Counts the requests of one app."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "macaron_http_requests",
            "HTTP requests answered; the model is empty where none was chosen",
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
        self, context: RequestContext, route: str, status: int, seconds: float, *, left: bool
    ) -> None:
        """Count a request that has ended; `left` says that its client left before that."""
        self._requests.labels(route, str(status), context.model).inc()
        self._seconds.labels(route).observe(seconds)
        if context.error:
            self._errors.labels(context.error).inc()
        if left:
            self._cancelled.labels(route).inc()

    def text(self) -> bytes:
        """These metrics in Prometheus' text format."""
        return generate_latest(self._registry)
