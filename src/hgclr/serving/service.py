"""The service behind the endpoints: settings, threads, metrics and state."""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from starlette.requests import Request

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.explanation import Method
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, TorchBackend
from hgclr.serving.engine import Engine, Reason
from hgclr.serving.messages import Problem
from hgclr.serving.monitoring import Metrics

Result = TypeVar("Result")
logger = logging.getLogger(__name__)

CACHED_DECISIONS = 64
"""Size of the cache of decisions: texts with the same object are decided together."""
MOST_ASIDE = 8
"""Limit on explanations and tables, running and waiting; occlusion computes the text once for each of its words."""
KEY, KEY_FILE = "HGCLR_API_KEY", "HGCLR_API_KEY_FILE"


@dataclass(frozen=True)
class Settings:
    """Limits and timeouts of a service.

    Args:
        max_queue: texts in the queue; a request beyond that gets 429.
        batch_tokens: tokens in a batch, padding included; None is the backend's default.
        max_wait: seconds for which the oldest text waits for others to fill its batch.
        deadline: seconds after which a request gets 504 and its texts are dropped.
        body_bytes: bytes in a request's body.
        texts_per_request: texts in one request.
        characters_per_text: characters in one text.
        grace: seconds for running requests to finish when the service stops.
        max_connections: open connections; requests beyond that get 503.
        hosts: allowed values of the Host header besides this machine's names; None allows any.
        key: the key that clients must send; None needs no key.

    Raises:
        InputError: if a limit is not positive, or the queue cannot hold the texts of one request.
    """

    max_queue: int = 1024
    batch_tokens: int | None = None
    max_wait: float = 0.002
    deadline: float = 30.0
    body_bytes: int = 4 * 2**20
    texts_per_request: int = 256
    characters_per_text: int = 20_000
    grace: int = 30
    max_connections: int = 4096
    hosts: tuple[str, ...] | None = None
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, least = getattr(self, setting.name), 0 if setting.name in ("max_wait", "grace") else 1e-9
            if isinstance(value, int | float) and not value >= least:
                raise InputError(f"{setting.name} is {value}", remedy="set a larger number")
        if self.texts_per_request > self.max_queue:
            raise InputError(
                f"the queue holds {self.max_queue} texts, fewer than the {self.texts_per_request} of one request",
                remedy="raise max_queue, or lower texts_per_request",
            )
        for host in self.hosts or ():
            if host != "*" and "*" in host.removeprefix("*."):
                raise InputError(f"{host!r} is not a host name", remedy="write *.example.com for all its subdomains")


def read_key(environment: Mapping[str, str]) -> str | None:
    """Return the key from HGCLR_API_KEY, or from the file in HGCLR_API_KEY_FILE; None if neither is set."""
    given, file = environment.get(KEY), environment.get(KEY_FILE)
    if given is not None and file is not None:
        raise InputError(f"both {KEY} and {KEY_FILE} are set", remedy="set one of them")
    if file is not None:
        try:
            given = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the key: {error}", path=file) from None
    if given is None:
        return None
    if not given or not all("!" <= character <= "~" for character in given):
        raise InputError(
            "the key is empty, or has a character that is not printable ASCII",
            path=file,
            remedy="create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return given


class Service:
    """A model with its engine, explanations and metrics.

    Attributes:
        decisions: cached :meth:`~hgclr.decisions.settings.Decisions.changed` of the model's decisions.
        methods: methods of explanation that the model supports, the best first.
    """

    def __init__(self, classifier: HierarchicalClassifier, settings: Settings, name: str) -> None:
        self.classifier, self.settings, self.name = classifier, settings, name
        self.backend: Literal["torch", "onnx"] = "onnx" if isinstance(classifier.backend, OnnxBackend) else "torch"
        self.metrics = Metrics(version("hgclr"), self.backend)
        self.engine = Engine(
            classifier,
            self.metrics,
            max_queue=settings.max_queue,
            batch_tokens=settings.batch_tokens,
            max_wait=settings.max_wait,
        )
        self.aside: set[Future[Any]] = set()
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="hgclr-aside")  # starts no thread yet
        self.decisions: Callable[..., Decisions] = lru_cache(CACHED_DECISIONS)(classifier.decisions.changed)
        differentiable = isinstance(classifier.backend, TorchBackend)
        self.methods: list[Method] = ["integrated", "occlusion"] if differentiable else ["occlusion"]
        self.metrics.watch("queue_texts", "Texts in the queue.", lambda: self.engine.queue.length)
        self.metrics.watch("explanations", "Explanations and tables, running or waiting.", lambda: len(self.aside))
        self.metrics.watch("ready", "Processes that accept requests.", lambda: self.state == "ready")

    @property
    def state(self) -> Literal["ready", "warming up", "broken"]:
        """``ready`` if the service accepts requests."""
        if not self.engine.alive:
            return "broken"
        return "ready" if self.engine.warm.is_set() else "warming up"

    def require_ready(self) -> None:
        """Raise a `Problem` unless the service accepts requests."""
        if self.state != "ready":
            seconds = max(1, math.ceil((self.engine.warm_at or 0) - time.monotonic()))
            message = f"the service is {self.state}; try again in {seconds} s"
            raise Problem("not_ready", message, retry_after=seconds)

    async def watch(self, *, supervised: bool) -> None:
        """Refresh the gauges once a second.

        A broken ``supervised`` worker exits, to be replaced: /livez may reach another worker. One whose supervisor has
        died stops, to free the port.
        """
        supervisor = multiprocessing.parent_process()
        while True:
            self.metrics.refresh()
            if supervised and self.state == "broken":
                logger.error("a thread of this worker has ended or hangs; the worker exits")
                os._exit(1)
            if supervised and supervisor is not None and not supervisor.is_alive():
                os.kill(os.getpid(), signal.SIGTERM)
                return
            await asyncio.sleep(1)

    def run_aside(self, work: Callable[[Callable[[], None]], Result]) -> tuple[Future[Result], Callable[[], object]]:
        """Queue work beside the batches, one at a time; return its future, and a function that drops it.

        ``work`` gets a function to call again and again, which ends it once it is dropped.

        Raises:
            Problem: if too much work waits.
        """
        if len(self.aside) >= MOST_ASIDE:
            raise Problem("overloaded", f"{MOST_ASIDE} explanations or tables already wait", retry_after=1)
        unwanted = threading.Event()

        def check_wanted() -> None:
            if unwanted.is_set():
                raise CancelledError

        def start() -> Result:
            check_wanted()
            return work(check_wanted)

        future = self._aside.submit(start)
        self.aside.add(future)
        future.add_done_callback(self.aside.discard)
        return future, unwanted.set

    async def stop(self) -> None:
        self._aside.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.engine.stop)

    async def wait_for(self, future: Future[Result], request: Request, drop: Callable[[Reason], object]) -> Result:
        """Wait for a result and return it; call ``drop`` with the reason if the wait ends without one.

        Raises:
            Problem: if the deadline has passed, or the client has disconnected.
        """

        async def disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        left = request.state.arrived + self.settings.deadline - time.monotonic()
        result: asyncio.Future[Any] = asyncio.wrap_future(future)
        gone: asyncio.Future[Any] = asyncio.ensure_future(disconnect())
        reason: Reason = "shutdown"  # if this coroutine is cancelled
        try:
            await asyncio.wait({result, gone}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return cast("Result", result.result())
            reason = "client_gone" if gone.done() else "deadline"
        finally:
            gone.cancel()
            if not result.done():
                drop(reason)
                result.cancel()
        if reason == "client_gone":
            raise Problem("client_gone", "the client has disconnected")
        raise Problem("deadline", f"no answer within {self.settings.deadline:g} seconds", retry_after=1)
