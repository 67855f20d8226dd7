"""The texts that wait: a bounded number, tokenised while they do, and left together in batches of similar length."""

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

__all__ = ["Entry", "RoomFullError", "Ticket", "WaitingRoom"]

WINDOW = 1024
"""Texts, the oldest, that a batch is chosen from."""
Answer = TypeVar("Answer")


class RoomFullError(Exception):
    """There is no room for so many texts now."""


@dataclass(eq=False)
class Ticket(Generic[Answer]):
    """What the texts of one request have in common.

    Args:
        decisions: how to decide about them.
        count: how many they are.
        probabilities: whether the probabilities of all labels are wanted.

    Attributes:
        future: the answers in the order of the texts, once all are there.
        waiting: how many of them nothing has been computed for.
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
class Entry(Generic[Answer]):
    """One text, its place in its request and, once it is tokenised, its token ids."""

    ticket: Ticket[Answer]
    place: int
    text: str
    ids: list[int] = field(default_factory=list)
    truncated: bool = False


class WaitingRoom(Generic[Answer]):
    """Hold texts from their arrival until they are computed.

    Three kinds of threads meet here: those that bring texts, one that tokenises them, one that computes.

    Args:
        places: texts that find room.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._occupied = 0
        self._closed = False
        self._arrived: deque[Entry[Answer]] = deque()
        self._ready: list[Entry[Answer]] = []
        self._lock = threading.Lock()
        self._arrival, self._readiness = threading.Condition(self._lock), threading.Condition(self._lock)

    @property
    def occupied(self) -> int:
        """How many texts wait."""
        return self._occupied

    def admit(self, ticket: Ticket[Answer], texts: Sequence[tuple[int, str]]) -> None:
        """Let texts in, given with their places in the request: all, or none.

        Raises:
            RoomFullError: if there is no room for all, or the room is closed.
        """
        with self._lock:
            if self._closed or self._occupied + len(texts) > self.places:
                raise RoomFullError
            self._occupied += len(texts)
            ticket.waiting += len(texts)
            self._arrived.extend(Entry(ticket, place, text) for place, text in texts)
            self._arrival.notify()

    def leave(self, ticket: Ticket[Answer]) -> int:
        """Drop what still waits of a request, and return how many texts that were."""
        with self._lock:
            left, ticket.waiting, ticket.dropped = ticket.waiting, 0, True
            self._occupied -= left
            if left:  # those being tokenised are not in either; they go when that is done
                self._arrived = deque(entry for entry in self._arrived if entry.ticket is not ticket)
                self._ready = [entry for entry in self._ready if entry.ticket is not ticket]
                self._readiness.notify()
        return left

    def take_arrived(self, most: int) -> list[Entry[Answer]]:
        """Return the oldest texts that are not tokenised; wait for one. None are left once the room is closed."""
        with self._lock:
            while not self._arrived and not self._closed:
                self._arrival.wait()
            return [self._arrived.popleft() for _ in range(min(most, len(self._arrived)))]

    def put_ready(self, entries: Sequence[Entry[Answer]]) -> None:
        """Bring back texts that are tokenised now."""
        with self._lock:
            self._ready.extend(entry for entry in entries if not entry.ticket.dropped)
            self._readiness.notify()

    def take_out(self, entries: Sequence[Entry[Answer]]) -> None:
        """Let texts leave that cannot be tokenised."""
        with self._lock:
            for entry in entries:
                self._left(entry)
            self._readiness.notify()

    def take_batch(self, tokens: int, max_wait: float) -> list[Entry[Answer]]:
        """Return texts to compute together: the one that waits longest, and others of about its length.

        While they are fewer than a batch holds, the first waits up to ``max_wait`` seconds for more.

        Args:
            tokens: what a batch may hold, padding included; a longer text is a batch of its own.
            max_wait: seconds from a text's arrival.

        Returns:
            The batch; nothing once the room is closed and empty.
        """
        with self._lock:
            while not self._ready or (rest := self._patience(tokens, max_wait)) > 0:
                if self._ready:
                    self._readiness.wait(rest)
                elif self._closed and not self._occupied:
                    return []
                else:
                    self._readiness.wait()
            window = self._ready[:WINDOW]
            batches = batches_by_length([len(entry.ids) for entry in window], tokens)
            chosen = set(next(batch for batch in batches if 0 in batch))
            batch = [window[index] for index in sorted(chosen)]
            self._ready = [entry for index, entry in enumerate(self._ready) if index not in chosen]
            for entry in batch:
                self._left(entry)
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
        return self._ready[0].ticket.arrived + max_wait - time.monotonic()

    def _left(self, entry: Entry[Answer]) -> None:
        if not entry.ticket.dropped:
            entry.ticket.waiting -= 1
            self._occupied -= 1
