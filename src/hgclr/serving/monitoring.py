"""What the service tells of itself: metrics for Prometheus, and a log with no fault over and over."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "SHARED_FOLDER", "Metrics", "SameFault", "start_log"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable for a folder in which several processes keep their metrics; the library reads it, too."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
ACCESS = "hgclr.serving.access"
"""The log of requests, a line each: id, method, endpoint, status, milliseconds, number of texts. Never a text."""
QUIET = 1.0
"""Seconds for which a fault that has been told is not told again."""
DIFFERENT = 1000
"""Faults that are told apart."""


class _AllProcesses(Collector):
    """The metrics of all processes, without the files that one which is just starting has made and not yet filled."""

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in Path(os.environ[SHARED_FOLDER]).glob("*.db") if _has_content(file)]
        found: Iterable[Metric] = MultiProcessCollector.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return found


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # of a process that has ended
        return False


class Metrics:
    """The metrics of one service, in a registry of its own; with a shared folder they are told for all processes.

    Labels have few values: routes, statuses, types and reasons that stand in the code, nothing that a client sends.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._info = Gauge(
            "hgclr_info", "What is served.", ("version", "backend"), registry=registry, multiprocess_mode="livemax"
        )
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

    def describe(self, version: str, backend: str) -> None:
        self._info.labels(version, backend).set(1)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is asked for by :meth:`refresh`; over several processes it is the sum."""
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

    def _seconds(self, name: str, description: str) -> Histogram:
        return Histogram(f"hgclr_{name}_seconds", description, registry=self.registry, buckets=SECONDS)


def start_log(stream: TextIO | None = None, *, requests: bool = False) -> logging.Handler:
    """Write what the service and its server log, a line each with its time (UTC); ``requests`` adds one for each.

    Standard error is the stream by default. How much else is told is as for the other commands.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(SameFault())
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler.setFormatter(formatter)
    for name in ("hgclr", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if requests:  # which are quieter than the rest of the log otherwise
        logging.getLogger(ACCESS).setLevel(logging.INFO)
    return handler


class SameFault(logging.Filter):
    """Tell of a fault at most once a second; the next time it is told, with how many others there were."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        fault, now = (record.name, str(record.msg).partition("\n")[0]), time.monotonic()
        told, untold = self._told.get(fault, (float("-inf"), 0))
        if now - told < QUIET:
            self._told[fault] = told, untold + 1
            return False
        if len(self._told) >= DIFFERENT:
            self._told.clear()
        self._told[fault] = now, 0
        if untold:
            record.msg, record.args = f"({untold} more of these meanwhile) {record.getMessage()}", ()
        return True
