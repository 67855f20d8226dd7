"""What Prometheus may ask: how much is done, how long each part of it takes, what goes wrong."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one service, in a registry of its own.

    Labels have few values: routes, statuses, types and reasons that stand in the code, nothing that a client sends.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.info = Info("hgclr", "What is served.", registry=registry)
        self.requests = Counter("hgclr_requests", "Answers.", ("endpoint", "status"), registry=registry)
        self.request_seconds = Histogram(
            "hgclr_request_seconds", "From arrival to answer.", ("endpoint",), registry=registry, buckets=SECONDS
        )
        self.errors = Counter("hgclr_errors", "Requests and texts that went wrong.", ("type",), registry=registry)
        self.texts = Counter("hgclr_texts", "Texts labelled.", registry=registry)
        self.dropped = Counter(
            "hgclr_dropped_texts", "Texts dropped before they were computed.", ("reason",), registry=registry
        )
        self.tokenise = self._seconds("tokenise", "Tokenising a group of texts.")
        self.queue = self._seconds("queue", "From a text's arrival to the start of its batch.")
        self.compute = self._seconds("compute", "Computing a batch, decisions included.")
        self.batch_texts = Histogram("hgclr_batch_texts", "Texts in a batch.", registry=registry, buckets=TEXTS)
        self.batch_tokens = Histogram(
            "hgclr_batch_tokens", "Tokens in a batch, padding included.", registry=registry, buckets=TOKENS
        )

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is asked for when the metrics are."""
        Gauge(f"hgclr_{name}", description, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """Return everything in Prometheus' format."""
        return generate_latest(self.registry)

    def _seconds(self, name: str, description: str) -> Histogram:
        return Histogram(f"hgclr_{name}_seconds", description, registry=self.registry, buckets=SECONDS)
