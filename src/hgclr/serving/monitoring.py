"""Metrics for Prometheus, and a log that shows each fault at most once a second."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which workers share their metrics; prometheus_client reads it, too."""
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
ACCESS = "hgclr.serving.access"
"""The log of requests, one line each: id, method, endpoint, status, milliseconds, number of texts; never a text."""
QUIET = 1.0
"""Seconds after which a fault may be logged again."""

logger = logging.getLogger(__name__)


class _AllProcesses(Collector):
    """The metrics of all workers: totals include dead workers, gauges do not."""

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in Path(os.environ[SHARED_FOLDER]).glob("*.db") if self._counts(file)]
        found: Iterable[Metric] = MultiProcessCollector.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def _counts(file: Path) -> bool:
        """Return whether a file has content and is not a gauge of a dead worker."""
        try:
            if file.name.startswith("gauge_live"):
                os.kill(int(file.stem.rpartition("_")[2]), 0)
            return file.stat().st_size > 0
        except (FileNotFoundError, ProcessLookupError):
            return False


class Metrics:
    """The metrics of one service, in a separate registry; with a shared folder, those of all workers.

    Metric labels are routes, statuses, types and reasons from the code, never content from a client.
    """

    def __init__(self, version: str, backend: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        names = ("version", "backend")
        info = Gauge("hgclr_info", "Version and backend.", names, registry=registry, multiprocess_mode="livemax")
        info.labels(version, backend).set(1)
        self.requests = Counter("hgclr_requests", "Answers.", ("endpoint", "status"), registry=registry)
        self.request_seconds = Histogram(
            "hgclr_request_seconds", "From arrival to answer.", ("endpoint",), registry=registry, buckets=SECONDS
        )
        self.errors = Counter("hgclr_errors", "Requests and texts that failed.", ("type",), registry=registry)
        self.texts = Counter("hgclr_texts", "Texts labelled.", registry=registry)
        self.dropped = Counter(
            "hgclr_dropped_texts", "Texts dropped before they were computed.", ("reason",), registry=registry
        )
        self.tokenise, self.queue, self.compute = (
            Histogram(f"hgclr_{name}_seconds", description, registry=registry, buckets=SECONDS)
            for name, description in (
                ("tokenise", "Tokenising a group of texts."),
                ("queue", "From a text's arrival to the start of its batch."),
                ("compute", "Computing a batch, decisions included."),
            )
        )
        self.batch_texts = Histogram("hgclr_batch_texts", "Texts in a batch.", registry=registry, buckets=TEXTS)
        self.batch_tokens = Histogram(
            "hgclr_batch_tokens", "Tokens in a batch, padding included.", registry=registry, buckets=TOKENS
        )

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge that :meth:`refresh` updates; workers are summed."""
        gauge = Gauge(f"hgclr_{name}", description, registry=self.registry, multiprocess_mode="livesum")
        self._watched.append((gauge, value))

    def refresh(self) -> None:
        for gauge, value in self._watched:
            gauge.set(value())

    def text(self) -> bytes:
        self.refresh()
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self.registry)
        everywhere = CollectorRegistry()
        everywhere.register(_AllProcesses())
        return generate_latest(everywhere)


def start_log(stream: TextIO | None = None, *, requests: bool = False) -> None:
    """Write the log of the service and of uvicorn to a stream (default: standard error), with times in UTC.

    ``requests`` adds a line for each request.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(SameFault())
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler.setFormatter(formatter)
    for name in ("hgclr", "uvicorn", "asyncio"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if requests:
        logging.getLogger(ACCESS).setLevel(logging.INFO)


class SameFault(logging.Filter):
    """Log each line of code's warnings at most once a second; the next one counts the skipped ones."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        fault, now = (record.pathname, record.lineno), time.monotonic()
        last, left_out = self._logged.get(fault, (float("-inf"), 0))
        if now - last < QUIET:
            self._logged[fault] = last, left_out + 1
            return False
        self._logged[fault] = now, 0
        if left_out:
            record.msg, record.args = f"({left_out} more of these in between) {record.getMessage()}", ()
        return True


def log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the event loop in one line, without the error's message, which may quote a text."""
    error = context.get("exception")
    kind = error.strerror if isinstance(error, OSError) else type(error).__name__
    logger.error("%s: %s", context["message"], kind)
