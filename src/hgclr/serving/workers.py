"""Several processes behind one address, each with a model of its own; one that dies or hangs is replaced."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from typing import TYPE_CHECKING, Any

from hgclr.errors import HGCLRError, InputError
from hgclr.inference.backends import usable_threads
from hgclr.serving.monitoring import SHARED_FOLDER, start_log
from hgclr.serving.settings import Settings

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from hgclr.inference import HierarchicalClassifier

__all__ = ["Deployment", "run_workers"]

logger = logging.getLogger(__name__)

THREADS = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")
"""Environment variables for the threads of torch and onnxruntime, and of the tokenizer."""
BEAT = 1.0
"""Seconds between signs of life."""
HUNG = 60.0
"""Seconds without a sign of life after which a worker that has been ready is replaced."""
STEADY = 30.0
"""Seconds that a worker must have answered for to be replaced at once; for one that dies younger there is a pause."""
LONGEST_PAUSE = 30.0
"""What the pause grows to, in seconds."""
EARLY_DEATHS = 3
"""Workers that may die before the first is ready; then there is no hope."""
LAST_MOMENT = 15.0
"""Seconds beyond the grace time after which a worker that was told to stop is ended."""


@dataclass(frozen=True)
class Deployment:
    """What each worker serves, in a form that can be sent to another process.

    Args:
        load: returns the classifier.
        settings: limits and waiting times; they hold for each worker.
        name: how to call the model.
        level: how much is logged.
        log_requests: whether each request is logged.
    """

    load: Callable[[], HierarchicalClassifier]
    settings: Settings
    name: str
    level: int = logging.WARNING
    log_requests: bool = False


def run_workers(
    deployment: Deployment,
    listener: socket.socket,
    count: int,
    *,
    started: Callable[[int], None] = lambda _: None,
) -> None:
    """Let ``count`` workers share a listener until told to stop; ``started`` is told how many labels there are.

    The cores are divided among them, unless the environment says how many threads each has.

    Raises:
        InputError: if the system has no such processes, or no worker can begin its work.
    """
    if not hasattr(os, "setpgrp"):
        raise InputError("several workers need a Unix system", remedy="serve with one")
    with _environment(count):
        _Supervisor(deployment, listener, count, started).run()


@contextmanager
def _environment(count: int) -> Iterator[None]:
    each = os.environ.get(THREADS[0]) or str(max(1, usable_threads() // count))
    with tempfile.TemporaryDirectory(prefix="hgclr-metrics-") as folder:
        added = {name: each for name in THREADS if name not in os.environ} | {SHARED_FOLDER: folder}
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@dataclass(eq=False)
class _Worker:
    """A process, and what is known of it.

    Attributes:
        seen: when it last gave a sign of life.
        ready: when it began to answer; None if it has not.
    """

    process: SpawnProcess
    pipe: Connection
    seen: float = field(default_factory=time.monotonic)
    ready: float | None = None
    failure: str | None = None


class _Supervisor:
    """Start workers, listen to their signs of life, and replace those that end."""

    def __init__(
        self, deployment: Deployment, listener: socket.socket, count: int, started: Callable[[int], None]
    ) -> None:
        self._deployment, self._listener, self._count, self._started = deployment, listener, count, started
        self._workers: list[_Worker] = []
        self._answered = False  # any worker, ever
        self._early_deaths, self._pause, self._next_start = 0, 0.0, 0.0
        self._signals = 0

    def run(self) -> None:
        """Supervise until a signal comes, then let all workers finish."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._signals:
                self._start_missing()
                self._look()
            self._drain()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _start_missing(self) -> None:
        while len(self._workers) < self._count and time.monotonic() >= self._next_start:
            ours, theirs = get_context("spawn").Pipe(duplex=False)
            process = get_context("spawn").Process(
                target=_work, args=(self._deployment, self._listener, theirs), name="hgclr-worker"
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def _look(self) -> None:
        """Take the signs of life that come within a moment, and count the dead."""
        pipes = {worker.pipe: worker for worker in self._workers}
        for pipe in connection.wait(list(pipes), timeout=BEAT / 4):
            self._hear(pipes[pipe])  # type: ignore[index]
        for worker in list(self._workers):
            if worker.ready is not None and time.monotonic() - worker.seen > HUNG:
                logger.error("worker %d hangs", worker.process.pid)
                worker.process.kill()
                worker.process.join()
            if worker.process.exitcode is not None:
                self._bury(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            what, value = worker.pipe.recv()
        except (EOFError, OSError):  # it has ended
            worker.process.join()
            return
        worker.seen = time.monotonic()
        if what == "failed":
            worker.failure = value
        elif what == "ready":
            worker.ready = time.monotonic()
            if not self._answered:
                self._answered = True
                self._started(value)

    def _bury(self, worker: _Worker) -> None:
        """Let a dead worker go; another takes its place, later and later as long as they die young."""
        from prometheus_client.multiprocess import mark_process_dead

        self._workers.remove(worker)
        worker.pipe.close()
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        if self._signals:
            return
        self._early_deaths += worker.ready is None
        if not self._answered and (worker.failure or self._early_deaths >= EARLY_DEATHS):
            raise InputError(worker.failure or f"workers end before they answer, with {_ending(worker)}")
        steady = worker.ready is not None and time.monotonic() - worker.ready >= STEADY
        self._pause = 0.0 if steady else min(LONGEST_PAUSE, 2 * self._pause or 1.0)
        self._next_start = time.monotonic() + self._pause
        logger.error("worker %d ended with %s: another takes its place", worker.process.pid, _ending(worker))

    def _drain(self) -> None:
        """Tell all workers to finish, and once more whoever told us; wait for them within reason."""
        told, end = 0, time.monotonic() + self._deployment.settings.grace + LAST_MOMENT
        while self._workers and time.monotonic() < end:
            for worker in self._workers if told < self._signals else ():
                worker.process.terminate()
            told = self._signals
            self._look()


def _ending(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    return worker.failure or (f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")


def _work(deployment: Deployment, listener: socket.socket, pipe: Connection) -> None:
    """Serve in this process, and tell the supervisor how it goes."""
    os.setpgrp()  # Ctrl-C is for the supervisor, which tells all workers once
    threading.Thread(target=_follow, daemon=True).start()
    logging.getLogger("hgclr").setLevel(deployment.level)
    start_log(requests=deployment.log_requests)
    try:
        classifier = deployment.load()
    except HGCLRError as error:
        pipe.send(("failed", str(error)))
        sys.exit(2)
    from hgclr.serving.app import create_app
    from hgclr.serving.server import run

    app = create_app(classifier, deployment.settings, name=deployment.name)
    last = 0.0

    def live() -> None:
        nonlocal last
        if app.state.service.state == "broken":  # what its own process would say at /livez, another might answer
            logger.error("a thread of this worker has ended or hangs")
            os._exit(1)
        if time.monotonic() - last >= BEAT:
            last = time.monotonic()
            _send(pipe, ("alive", None))

    run(app, listener, started=lambda: _send(pipe, ("ready", len(classifier.taxonomy))), tick=live)
    supervisor = parent_process()
    if supervisor is not None and not supervisor.is_alive():  # it has left this to its workers
        shutil.rmtree(os.environ[SHARED_FOLDER], ignore_errors=True)


def _send(pipe: Connection, message: tuple[str, Any]) -> None:
    with suppress(OSError):  # the supervisor has gone; this process is about to follow
        pipe.send(message)


def _follow() -> None:
    """End this process in good order when the supervisor's does."""
    supervisor = parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
