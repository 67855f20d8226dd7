"""Explanations: one at a time, a few waiting, beside the predictions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from copy import copy
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.evaluation.explanation import Method, explain
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.serving.batch_queue import RoomFullError

__all__ = ["Explanations", "methods_of"]

PLACES = 8
"""Explanations under way and waiting; an explanation by occlusion is as much work as a text for each of its words."""


def methods_of(classifier: HierarchicalClassifier) -> list[Method]:
    """Return the methods of explanation that a model has, the best first."""
    return ["integrated", "gradient", "occlusion"] if isinstance(classifier.backend, TorchBackend) else ["occlusion"]


class ExplanationCall:
    """An explanation that is under way.

    Attributes:
        future: the explanation in plain Python types.
    """

    def __init__(self) -> None:
        self.future: Future[dict[str, Any]] = Future()
        self._dropped = threading.Event()

    def drop(self) -> None:
        """Do nothing more for it: before it begins, or before its next batch."""
        self._dropped.set()
        self.future.cancel()

    def check(self) -> None:
        """Stop here if nobody wants the explanation any more.

        Raises:
            CancelledError: if it is so.
        """
        if self._dropped.is_set():
            raise CancelledError


class Explanations:
    """Explain one text at a time, in a thread of its own.

    It shares the model with the predictions, and the CPU: they go on, at about half their speed at worst.

    Args:
        classifier: the model.
        places: explanations under way and waiting.
    """

    def __init__(self, classifier: HierarchicalClassifier, places: int = PLACES) -> None:
        self._classifier, self._places = classifier, places
        self._calls: set[ExplanationCall] = set()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
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
        return len(self._calls)

    def submit(self, text: str, labels: Sequence[str] | None, method: Method, keep: float) -> ExplanationCall:
        """Explain a text when its turn comes.

        Raises:
            RoomFullError: if too many wait.
        """
        with self._lock:
            if len(self._calls) >= self._places:
                raise RoomFullError
            call = ExplanationCall()
            self._calls.add(call)
        self._queue.put(partial(self._explain, call, text, labels, method, keep))
        return call

    def stop(self) -> None:
        """Take nothing more and drop what is under way."""
        with self._lock:
            self._places = 0
            calls = list(self._calls)
        for call in calls:
            call.drop()
        self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _explain(
        self, call: ExplanationCall, text: str, labels: Sequence[str] | None, method: Method, keep: float
    ) -> None:
        try:
            call.check()
            explanation = explain(
                _watched(self._classifier, call.check), text, labels=labels, method=method, keep=keep
            ).to_json()
        except CancelledError:
            return
        except Exception as error:  # it is the request's to answer
            if call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)
        else:
            if call.future.set_running_or_notify_cancel():
                call.future.set_result(explanation)
        finally:
            with self._lock:
                self._calls.discard(call)


def _watched(classifier: HierarchicalClassifier, check: Callable[[], None]) -> HierarchicalClassifier:
    """Return the same classifier with a check before every batch, so that work nobody wants ends there."""
    compute = classifier.backend.logits

    def logits(input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        check()
        return compute(input_ids, attention_mask)

    watched = copy(classifier)
    watched.backend = copy(classifier.backend)  # still of its own class, which tells what it can do
    watched.backend.logits = logits  # type: ignore[method-assign]
    return watched
