"""A model being served: its threads, its counts, and whether it takes requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from hgclr.decisions.settings import Decisions
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend
from hgclr.serving.engine import Engine, Reason
from hgclr.serving.explanations import Explanations
from hgclr.serving.messages import Problem
from hgclr.serving.metrics import Metrics
from hgclr.serving.settings import Settings

__all__ = ["ClientGoneError", "Service"]

Result = TypeVar("Result")

WAYS_TO_DECIDE = 64
"""Ways to decide that are kept at hand: clients ask for few, and requests that share one share its work."""
LAST_BATCH = 5.0
"""Seconds that a batch has to end in when the process does."""


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
        """What computes."""
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
        """Warm up and begin to work."""
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
        """End what is still under way."""
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
