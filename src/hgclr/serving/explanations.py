"""Explanations: one at a time, a few waiting, beside the predictions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from hgclr.evaluation.explanation import Method, explain
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.serving.batch_queue import QueueFullError

__all__ = ["Explanations", "methods_of"]

PLACES = 8
"""Explanations under way and waiting; an explanation by occlusion is as much work as a text for each of its words."""


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
        """Begin to work."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def under_way(self) -> int:
        """How many are under way or wait."""
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
                explanation = explain(self._classifier, text, before_pass=go_on, **options).to_json()
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
