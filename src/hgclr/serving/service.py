"""A model being served: its threads, its counts, and whether it takes requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from hgclr.decisions.settings import Decisions
from hgclr.evaluation.explanation import Method
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, TorchBackend
from hgclr.serving.engine import Engine, QueueFullError, Reason
from hgclr.serving.messages import Problem
from hgclr.serving.monitoring import Metrics
from hgclr.serving.settings import Settings

__all__ = ["ClientGoneError", "Service", "methods_of"]

Result = TypeVar("Result")

WAYS_TO_DECIDE = 64
"""Ways to decide that are kept at hand: clients ask for few, and requests that share one share its work."""
LAST_BATCH = 5.0
"""Seconds that a batch has to end in when the process does."""
PLACES = 8
"""Explanations under way and waiting; an explanation by occlusion is as much work as a text for each of its words."""


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Service:
    """Everything behind the endpoints.

    Attributes:
        draining: whether the service has been told to stop.
        decisions: the model's, with what a request wants in their place; see
            :meth:`~hgclr.decisions.settings.Decisions.changed`.
    """

    def __init__(self, classifier: HierarchicalClassifier, settings: Settings, name: str) -> None:
        self.classifier, self.settings, self.name = classifier, settings, name
        self.metrics = Metrics()
        self.engine = Engine(classifier, settings, self.metrics)
        self.explanations = Explanations(classifier)
        self.draining = False
        self._in_flight: set[asyncio.Future[Any]] = set()
        self.metrics.watch("queue_texts", "Texts that wait.", lambda: self.engine.waiting)
        self.metrics.watch("explanations", "Explanations under way or waiting.", lambda: self.explanations.under_way)
        self.metrics.watch("ready", "Processes that take requests.", lambda: self.state == "ready")
        self.decisions: Callable[..., Decisions] = lru_cache(WAYS_TO_DECIDE)(classifier.decisions.changed)

    @property
    def backend(self) -> Literal["torch", "onnx"]:
        return "onnx" if isinstance(self.classifier.backend, OnnxBackend) else "torch"

    @property
    def state(self) -> Literal["ready", "warming up", "draining", "broken"]:
        """Whether requests are taken, or why they are not."""
        if not (self.engine.alive and self.explanations.alive):
            return "broken"
        if self.draining:
            return "draining"
        return "ready" if self.engine.warm.is_set() else "warming up"

    def require_ready(self) -> None:
        """Raise a `Problem` if requests cannot be served now."""
        if self.state != "ready":
            raise Problem("not_ready", f"the service is {self.state}", retry_after=1)

    def start(self) -> None:
        self.engine.start()
        self.explanations.start()

    @property
    def in_flight(self) -> int:
        """Requests that were let in and are not answered."""
        return len(self._in_flight)

    def abandon(self) -> None:
        """Answer what is in flight with a refusal."""
        for result in self._in_flight:
            result.cancel()

    async def stop(self) -> None:
        self.draining = True
        self.explanations.stop()
        await asyncio.to_thread(self.engine.stop, LAST_BATCH)

    async def wait_for(self, future: Future[Result], request: Request, drop: Callable[[Reason], object]) -> Result:
        """Return a result when it is there; ``drop`` is told to stop the work for it if nobody waits any more, and why.

        Raises:
            Problem: if the deadline has passed, or the service stops.
            ClientGoneError: if nobody is there to take the answer.
        """
        left = request.state.arrived + self.settings.deadline - time.monotonic()
        result, gone = asyncio.wrap_future(future), asyncio.ensure_future(_disconnected(request))
        awaited: set[asyncio.Future[Any]] = {result, gone}
        reason: Reason = "shutdown"
        self._in_flight.add(result)
        try:
            await asyncio.wait(awaited, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if result.done() and not result.cancelled():
                return result.result()
            if not result.cancelled():
                reason = "client_gone" if gone.done() else "deadline"
        finally:
            self._in_flight.discard(result)
            gone.cancel()
            if result.cancelled() or not result.done():
                drop(reason)
                result.cancel()
        if reason == "client_gone":
            raise ClientGoneError
        if reason == "shutdown":
            raise Problem("not_ready", "the service is stopping", retry_after=1)
        raise Problem("deadline", f"no answer within {self.settings.deadline:g} seconds", retry_after=self.engine.wait)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def methods_of(classifier: HierarchicalClassifier) -> list[Method]:
    """Return the methods of explanation that a model has, the best first."""
    return ["integrated", "gradient", "occlusion"] if isinstance(classifier.backend, TorchBackend) else ["occlusion"]


class Explanations:
    """Explain one text at a time, in a thread of its own.

    It shares the model with the predictions, and the CPU: they go on, at about half their speed at worst.
    """

    def __init__(self, classifier: HierarchicalClassifier, places: int = PLACES) -> None:
        self._classifier, self._places = classifier, places
        self._futures: set[Future[dict[str, Any]]] = set()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[Future[dict[str, Any]], str, dict[str, Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="hgclr-explain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def under_way(self) -> int:
        return len(self._futures)

    def submit(self, text: str, labels: Sequence[str] | None, method: Method, keep: float) -> Future[dict[str, Any]]:
        """Explain a text when its turn comes, in plain Python types; raise `QueueFullError` if too many wait.

        Once the future is cancelled nothing more is done: it is not begun, or ends before the model's next pass.
        """
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if len(self._futures) >= self._places:
                raise QueueFullError
            self._futures.add(future)
        self._queue.put((future, text, {"labels": labels, "method": method, "keep": keep}))
        return future

    def stop(self) -> None:
        """Take nothing more and drop what is under way."""
        with self._lock:
            self._places = 0
            futures = list(self._futures)
        for future in futures:
            future.cancel()
        self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            future, text, options = work
            go_on = partial(_go_on, future)
            try:
                go_on()
                explanation = self._classifier.explain(text, before_pass=go_on, **options).to_json()
            except CancelledError:
                pass
            except Exception as error:  # it is the request's to answer
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            else:
                if future.set_running_or_notify_cancel():
                    future.set_result(explanation)
            finally:
                with self._lock:
                    self._futures.discard(future)


def _go_on(future: Future[dict[str, Any]]) -> None:
    """Raise `CancelledError` once nobody wants the explanation any more."""
    if future.cancelled():
        raise CancelledError
