"""The texts that wait: a bounded number, tokenised while they do, and taken together in batches of similar length."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hgclr.decisions.settings import Decisions
from hgclr.inference.backends import batches_by_length

__all__ = ["BatchQueue", "PendingRequest", "PendingText", "QueueFullError"]

WINDOW = 1024
"""Texts, the oldest, that a batch is chosen from."""
Answer = TypeVar("Answer")


class QueueFullError(Exception):
    """There is no room for so many texts now."""


@dataclass(eq=False)
class PendingRequest(Generic[Answer]):
    """What the texts of one request have in common.

    Attributes:
        probabilities: whether the probabilities of all labels are wanted.
        future: the answers in the order of the texts, once all are there.
        waiting: how many texts nothing has been computed for.
        dropped: whether nobody wants the answers any more.
    """

    decisions: Decisions
    count: int
    probabilities: bool = False
    future: Future[list[Answer]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    waiting: int = 0
    dropped: bool = False

    def __post_init__(self) -> None:
        self._answers: list[Answer | None] = [None] * self.count
        self._missing, self._lock = self.count, threading.Lock()

    def deliver(self, place: int, answer: Answer) -> None:
        """Put an answer in its place; with the last, the request is answered."""
        with self._lock:
            self._answers[place] = answer
            self._missing -= 1
            complete = not self._missing
        if complete and self.future.set_running_or_notify_cancel():
            self.future.set_result([answer for answer in self._answers if answer is not None])


@dataclass(eq=False, slots=True)
class PendingText(Generic[Answer]):
    """One text, its place in its request and, once it is tokenised, its token ids."""

    request: PendingRequest[Answer]
    place: int
    text: str
    ids: list[int] = field(default_factory=list)
    truncated: bool = False


class BatchQueue(Generic[Answer]):
    """Hold texts from their arrival until they are computed.

    Three kinds of threads meet here: those that bring texts, one that tokenises them, one that computes.

    Attributes:
        length: how many texts wait, ``capacity`` at most.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._closed = False
        self._untokenised: deque[PendingText[Answer]] = deque()
        self._ready: list[PendingText[Answer]] = []
        self._lock = threading.Lock()
        self._arrival, self._readiness = threading.Condition(self._lock), threading.Condition(self._lock)

    def put(self, request: PendingRequest[Answer], texts: Sequence[tuple[int, str]]) -> None:
        """Let texts in, given with their places in the request: all, or none (`QueueFullError`)."""
        with self._lock:
            if self._closed or self.length + len(texts) > self.capacity:
                raise QueueFullError
            self.length += len(texts)
            request.waiting += len(texts)
            self._untokenised.extend(PendingText(request, place, text) for place, text in texts)
            self._arrival.notify()

    def drop(self, request: PendingRequest[Answer]) -> int:
        """Drop what still waits of a request, and return how many texts that were."""
        with self._lock:
            left, request.waiting, request.dropped = request.waiting, 0, True
            self.length -= left
            if left:  # those being tokenised are not in either; they go when that is done
                self._untokenised = deque(entry for entry in self._untokenised if entry.request is not request)
                self._ready = [entry for entry in self._ready if entry.request is not request]
                self._readiness.notify()
        return left

    def take_untokenised(self, most: int) -> list[PendingText[Answer]]:
        """Return the oldest texts that are not tokenised; wait for one. None are left once the queue is closed."""
        with self._lock:
            while not self._untokenised and not self._closed:
                self._arrival.wait()
            return [self._untokenised.popleft() for _ in range(min(most, len(self._untokenised)))]

    def put_tokenised(self, entries: Sequence[PendingText[Answer]]) -> None:
        """Bring back texts that are tokenised now."""
        with self._lock:
            self._ready.extend(entry for entry in entries if not entry.request.dropped)
            self._readiness.notify()

    def remove(self, entries: Sequence[PendingText[Answer]]) -> None:
        """Let texts leave that cannot be tokenised."""
        with self._lock:
            self._leave(entries)
            self._readiness.notify()

    def take_batch(self, tokens: int, max_wait: float) -> list[PendingText[Answer]]:
        """Return texts to compute together: the one that waits longest, and others of about its length.

        They have ``tokens`` at most, padding included; a longer text is a batch of its own. While they are fewer than a
        batch holds, the first waits up to ``max_wait`` seconds for more. A closed queue ends with empty batches.
        """
        with self._lock:
            while not self._ready or (rest := self._patience(tokens, max_wait)) > 0:
                if self._ready:
                    self._readiness.wait(rest)
                elif self._closed and not self.length:
                    return []
                else:
                    self._readiness.wait()
            window = self._ready[:WINDOW]
            batches = batches_by_length([len(entry.ids) for entry in window], tokens)
            chosen = set(next(batch for batch in batches if 0 in batch))
            batch = [window[index] for index in sorted(chosen)]
            self._ready = [entry for index, entry in enumerate(self._ready) if index not in chosen]
            self._leave(batch)
            return batch

    def close(self) -> None:
        """Let nobody in any more, and let go of those who wait for texts when there are none."""
        with self._lock:
            self._closed = True
            self._arrival.notify_all()
            self._readiness.notify_all()

    def _patience(self, tokens: int, max_wait: float) -> float:
        """Return for how many seconds more texts are waited for."""
        if self._closed or sum(len(entry.ids) for entry in self._ready[:WINDOW]) >= tokens:
            return 0.0
        return self._ready[0].request.arrived + max_wait - time.monotonic()

    def _leave(self, entries: Sequence[PendingText[Answer]]) -> None:
        for entry in entries:
            if not entry.request.dropped:
                entry.request.waiting -= 1
                self.length -= 1
