"""What computes: one thread that tokenises, one that takes batches from all requests together and labels them.

Between them and the requests is a queue: a bounded number of texts, tokenised while they wait, and taken together in
batches of similar length.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.data.rows import check_text
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier, Prediction
from hgclr.inference.backends import batches_by_length
from hgclr.inference.classifier import TokenisedText
from hgclr.serving.monitoring import Metrics
from hgclr.serving.settings import Settings

__all__ = ["Answer", "BatchQueue", "Engine", "Failure", "PendingRequest", "QueueFullError", "Reason", "fault_of"]

logger = logging.getLogger(__name__)
TOKENISED_TOGETHER = 256
"""Texts that are tokenised together."""
STUCK = 60.0
"""Seconds after which a batch that is still being computed is taken for one that never ends."""
PACE_DECAY = 0.9
"""How much of the pace until now stays in its running mean after a batch."""

Reason = Literal["deadline", "client_gone", "shutdown"]
WINDOW = 1024
"""Texts, the oldest, that a batch is chosen from."""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """The labels of a text, and all probabilities, (K,), if wanted."""

    prediction: Prediction
    probabilities: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a text has no labels: through its own fault (``invalid``) or through ours (``internal``)."""

    kind: Literal["invalid", "internal"]
    message: str


Answer = LabelledText | Failure


def fault_of(text: str) -> str | None:
    """Return what is wrong with a text, None if it can be labelled."""
    try:
        check_text(text)
    except InputError as error:
        return error.what
    return None


class Engine:
    """Label the texts of many requests in batches.

    Attributes:
        max_length: tokens of a text that are read.
        warm: set once the model has labelled a first text and is ready for others.
    """

    def __init__(self, classifier: HierarchicalClassifier, settings: Settings, metrics: Metrics) -> None:
        self.warm = threading.Event()
        self._classifier, self._metrics = classifier, metrics
        self.max_length = classifier.max_length
        self._budget = settings.batch_tokens or classifier.backend.batch_tokens
        self._max_wait = settings.max_wait
        self._queue: BatchQueue = BatchQueue(settings.max_queue)
        self._pace = 0.0  # seconds that a text takes, averaged
        self._begun: float | None = None  # when what is being computed was begun
        self._threads = [
            threading.Thread(target=work, name=f"hgclr-{work.__name__.strip('_')}", daemon=True)
            for work in (self._tokenise, self._compute)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float) -> None:
        """Take nothing more and end, after what is being computed; wait for that as many seconds at most."""
        self._queue.close()
        end = time.monotonic() + patience
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether both threads run, and the model has not been at the same batch for ever."""
        begun = self._begun
        hangs = begun is not None and time.monotonic() - begun > STUCK
        return not hangs and all(thread.is_alive() for thread in self._threads)

    @property
    def waiting(self) -> int:
        return self._queue.length

    @property
    def full(self) -> bool:
        return self._queue.length >= self._queue.capacity

    @property
    def wait(self) -> float:
        """In how many seconds, about, the texts that wait now are done."""
        return self._pace * self._queue.length

    def submit(self, texts: Sequence[str], decisions: Decisions, *, probabilities: bool = False) -> PendingRequest:
        """Let texts wait for their turn; the answers come in the request's future, in order.

        Raises:
            QueueFullError: if there is no room for all of them; nothing has been done for any then.
        """
        request: PendingRequest = PendingRequest(decisions, len(texts), probabilities)
        known = {place: Failure("invalid", fault) for place, text in enumerate(texts) if (fault := fault_of(text))}
        self._queue.put(request, [(place, text) for place, text in enumerate(texts) if place not in known])
        for place, answer in known.items():
            request.deliver(place, answer)
        return request

    def drop(self, request: PendingRequest, reason: Reason) -> None:
        self._metrics.dropped.labels(reason).inc(self._queue.drop(request))

    def _tokenise(self) -> None:
        while entries := self._queue.take_untokenised(TOKENISED_TOGETHER):
            started = time.perf_counter()
            try:
                tokenised = self._classifier.tokenise([entry.text for entry in entries])
            except Exception as error:  # whatever it is, the next texts must not suffer from it
                self._queue.remove(entries)
                self._fail(entries, error)
                continue
            for entry, tokens in zip(entries, tokenised, strict=True):
                entry.tokens = tokens
            self._metrics.tokenise.observe(time.perf_counter() - started)
            self._queue.put_tokenised(entries)

    def _compute(self) -> None:
        # A full batch of the longest texts among them: onnxruntime keeps the memory of its largest batch, and so takes
        # it now, not some time later.
        longest = ["a long text " * self.max_length] * max(1, self._budget // self.max_length)
        self._classifier.predict(["a", "a few words to warm up with", *longest])
        self.warm.set()
        while batch := self._queue.take_batch(self._budget, self._max_wait):
            now = time.monotonic()
            for entry in batch:
                self._metrics.queue.observe(now - entry.request.arrived)
            self._label(batch)
            self._begun = None
            elapsed = (time.monotonic() - now) / len(batch)
            self._pace = PACE_DECAY * self._pace + (1 - PACE_DECAY) * elapsed if self._pace else elapsed

    def _label(self, batch: list[PendingText]) -> None:
        """Label texts together; if that fails, one by one, so that only those fail that must."""
        started, self._begun = time.perf_counter(), time.monotonic()
        try:
            decisions = [entry.request.decisions for entry in batch]
            predictions, probabilities = self._classifier.predict_batch([entry.tokens for entry in batch], decisions)
        except Exception as error:  # whatever it is, the next batch must not suffer from it
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                for entry in batch:
                    self._label([entry])
            return
        self._metrics.compute.observe(time.perf_counter() - started)
        self._metrics.batch_texts.observe(len(batch))
        self._metrics.batch_tokens.observe(len(batch) * max(len(entry.tokens.ids) for entry in batch))
        self._metrics.texts.inc(len(batch))
        for entry, prediction, row in zip(batch, predictions, probabilities, strict=True):
            entry.request.deliver(entry.place, LabelledText(prediction, row if entry.request.probabilities else None))

    def _fail(self, entries: Sequence[PendingText], error: Exception) -> None:
        """Answer with a failure; the error's own message is not logged, for it may quote a text."""
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%d texts could not be labelled: %s\n%s", len(entries), type(error).__name__, frames)
        for entry in entries:
            entry.request.deliver(entry.place, Failure("internal", "the model could not label this text"))


class QueueFullError(Exception):
    """There is no room for so many texts now."""


@dataclass(eq=False)
class PendingRequest:
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
class PendingText:
    """One text, its place in its request and, once it is tokenised, its tokens."""

    request: PendingRequest
    place: int
    text: str
    tokens: TokenisedText = field(default_factory=lambda: TokenisedText([], False, False))


class BatchQueue:
    """Hold texts, ``capacity`` at most, from their arrival until they are computed.

    Three kinds of threads meet here: those that bring texts, one that tokenises them, one that computes.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._closed = False
        self._untokenised: deque[PendingText] = deque()
        self._ready: list[PendingText] = []
        self._lock = threading.Lock()
        self._arrival, self._readiness = threading.Condition(self._lock), threading.Condition(self._lock)

    def put(self, request: PendingRequest, texts: Sequence[tuple[int, str]]) -> None:
        """Let texts in, given with their places in the request: all, or none (`QueueFullError`)."""
        with self._lock:
            if self._closed or self.length + len(texts) > self.capacity:
                raise QueueFullError
            self.length += len(texts)
            request.waiting += len(texts)
            self._untokenised.extend(PendingText(request, place, text) for place, text in texts)
            self._arrival.notify()

    def drop(self, request: PendingRequest) -> int:
        """Drop what still waits of a request, and return how many texts that were."""
        with self._lock:
            left, request.waiting, request.dropped = request.waiting, 0, True
            self.length -= left
            if left:  # those being tokenised are not in either; they go when that is done
                self._untokenised = deque(entry for entry in self._untokenised if entry.request is not request)
                self._ready = [entry for entry in self._ready if entry.request is not request]
                self._readiness.notify()
        return left

    def take_untokenised(self, most: int) -> list[PendingText]:
        """Return the oldest texts that are not tokenised; wait for one. None are left once the queue is closed."""
        with self._lock:
            while not self._untokenised and not self._closed:
                self._arrival.wait()
            return [self._untokenised.popleft() for _ in range(min(most, len(self._untokenised)))]

    def put_tokenised(self, entries: Sequence[PendingText]) -> None:
        with self._lock:
            self._ready.extend(entry for entry in entries if not entry.request.dropped)
            self._readiness.notify()

    def remove(self, entries: Sequence[PendingText]) -> None:
        """Let texts leave that cannot be tokenised."""
        with self._lock:
            self._leave(entries)
            self._readiness.notify()

    def take_batch(self, tokens: int, max_wait: float) -> list[PendingText]:
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
            batches = batches_by_length([len(entry.tokens.ids) for entry in window], tokens)
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
        if self._closed or sum(len(entry.tokens.ids) for entry in self._ready[:WINDOW]) >= tokens:
            return 0.0
        return self._ready[0].request.arrived + max_wait - time.monotonic()

    def _leave(self, entries: Sequence[PendingText]) -> None:
        for entry in entries:
            if not entry.request.dropped:
                entry.request.waiting -= 1
                self.length -= 1
