"""The batch engine: one thread tokenises the texts of requests, another predicts those of all requests in batches.

It only queues: everything about a prediction is the classifier's work.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.data.readers import check_text
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier, Prediction
from hgclr.inference.backends import batches_by_length
from hgclr.inference.classifier import TokenisedText
from hgclr.serving.messages import Problem
from hgclr.serving.monitoring import Metrics

logger = logging.getLogger(__name__)
STUCK = 60.0
"""Seconds after which a batch that is still being computed counts as hanging."""
WINDOW = 1024
"""Texts, the oldest, that a batch is chosen from."""

Reason = Literal["deadline", "client_gone", "shutdown"]


Answer = tuple[Prediction, NDArray[np.float32]] | Problem
"""The prediction for a text and the probability of every label, (K,); or why there is none."""


@dataclass(eq=False)
class PendingRequest:
    """What the texts of one request have in common.

    Attributes:
        future: the answers in the order of the texts, once all are there.
        waiting: texts that are not being computed yet.
        dropped: whether nobody wants the answers any more.
    """

    decisions: Decisions
    count: int
    future: Future[list[Answer]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    waiting: int = 0
    dropped: bool = False

    def __post_init__(self) -> None:
        self._answers: list[Answer | None] = [None] * self.count
        self._missing, self._lock = self.count, threading.Lock()

    def deliver(self, place: int, answer: Answer) -> None:
        """Put an answer in its place; with the last, the future has its result."""
        with self._lock:
            self._answers[place] = answer
            self._missing -= 1
            complete = not self._missing
        if complete and self.future.set_running_or_notify_cancel():
            self.future.set_result([answer for answer in self._answers if answer is not None])


@dataclass(eq=False, slots=True)
class PendingText:
    """The tokens of one text, and its place in its request."""

    request: PendingRequest
    place: int
    tokens: TokenisedText


class Engine:
    """Predict the texts of many requests in batches.

    Attributes:
        queue: the texts that wait.
        warm: set once the model has predicted a first batch.
    """

    def __init__(
        self,
        classifier: HierarchicalClassifier,
        metrics: Metrics,
        *,
        max_queue: int,
        batch_tokens: int | None,
        max_wait: float,
    ) -> None:
        self.warm = threading.Event()
        self._classifier, self._metrics, self._max_wait = classifier, metrics, max_wait
        self._budget = batch_tokens or classifier.backend.batch_tokens
        self.queue = BatchQueue(max_queue)
        self._begun: float | None = None  # when the batch that is being computed was begun
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="hgclr-tokenise")  # starts no thread yet
        self._thread = threading.Thread(target=self._compute, name="hgclr-compute", daemon=True)
        self.start = self._thread.start

    def stop(self, patience: float = 5.0) -> None:
        """Take nothing more, and wait at most so many seconds for the texts that are being computed."""
        self.queue.close()
        self._tokeniser.shutdown(wait=False)
        if self._thread.is_alive():
            self._thread.join(patience)

    @property
    def alive(self) -> bool:
        """Whether the thread runs, and no batch hangs."""
        begun = self._begun
        return self._thread.is_alive() and not (begun is not None and time.monotonic() - begun > STUCK)

    def submit(self, texts: Sequence[str], decisions: Decisions) -> PendingRequest:
        """Queue texts; the request's future will have the answers in order.

        Raises:
            Problem: if there is no room for all of them; then nothing has been done for any.
        """
        request = PendingRequest(decisions, len(texts))
        problems: dict[int, Problem] = {}
        for place, text in enumerate(texts):
            try:
                check_text(text)
            except InputError as error:
                problems[place] = Problem("invalid", error.what, field="text")
        self.queue.admit(request, len(texts) - len(problems))
        for place, problem in problems.items():
            request.deliver(place, problem)
        self._tokeniser.submit(
            self._tokenise, request, {place: texts[place] for place in range(len(texts)) if place not in problems}
        )
        return request

    def drop(self, request: PendingRequest, reason: Reason) -> None:
        self._metrics.dropped.labels(reason).inc(self.queue.drop(request))

    def _tokenise(self, request: PendingRequest, texts: Mapping[int, str]) -> None:
        if not texts or request.dropped:
            return
        started = time.perf_counter()
        try:
            tokenised = self._classifier.tokenise(list(texts.values()))
        except Exception as error:  # whatever it is, the texts must have an answer
            self.queue.drop(request)
            self._fail(request, texts, error)
            return
        self._metrics.tokenise.observe(time.perf_counter() - started)
        self.queue.put([PendingText(request, place, tokens) for place, tokens in zip(texts, tokenised, strict=True)])

    def _compute(self) -> None:
        # A full batch of the longest texts among them: onnxruntime keeps the memory of its largest batch, and takes it
        # now rather than later.
        longest = self._classifier.max_length
        (tokens,) = self._classifier.tokenise(["a long text " * longest])
        for size in (1, max(1, self._budget // longest)):
            self._classifier.predict_batch([tokens] * size)
        self.warm.set()
        while batch := self.queue.take_batch(self._budget, self._max_wait):
            now = time.monotonic()
            for entry in batch:
                self._metrics.queue.observe(now - entry.request.arrived)
            self._predict(batch)
            self._begun = None

    def _predict(self, batch: list[PendingText]) -> None:
        """Predict texts together; if that fails, one by one, so that only those fail that must."""
        started, self._begun = time.perf_counter(), time.monotonic()
        tokenised = [entry.tokens for entry in batch]
        try:
            predicted = self._classifier.predict_batch(tokenised, [entry.request.decisions for entry in batch])
        except Exception as error:  # whatever it is, the next batch must not suffer from it
            if len(batch) == 1:
                self._fail(batch[0].request, [batch[0].place], error)
            else:
                for entry in batch:
                    self._predict([entry])
            return
        self._metrics.compute.observe(time.perf_counter() - started)
        self._metrics.batch_texts.observe(len(batch))
        self._metrics.batch_tokens.observe(len(batch) * max(len(tokens.ids) for tokens in tokenised))
        self._metrics.texts.inc(len(batch))
        for entry, prediction, probabilities in zip(batch, *predicted, strict=True):
            entry.request.deliver(entry.place, (prediction, probabilities))

    def _fail(self, request: PendingRequest, places: Collection[int], error: Exception) -> None:
        """Answer with a problem; the error's message is not logged, because it may quote a text."""
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%d texts could not be labelled: %s\n%s", len(places), type(error).__name__, frames)
        for place in places:
            request.deliver(place, Problem("internal", "the model could not label this text"))


class BatchQueue:
    """Hold texts, ``capacity`` at most, from their arrival until they are computed.

    Attributes:
        length: texts admitted and not yet computed, whether they are tokenised or not.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._closed = False
        self._ready: list[PendingText] = []
        self._changed = threading.Condition()

    def require_room(self, count: int) -> None:
        """Raise a `Problem` if there is no room for so many texts."""
        if self._closed or self.length + count > self.capacity:
            raise Problem("overloaded", f"{self.length} of at most {self.capacity} texts wait", retry_after=1)

    def admit(self, request: PendingRequest, count: int) -> None:
        """Keep room for the texts of a request: for all, or for none (`Problem`)."""
        with self._changed:
            self.require_room(count)
            self.length += count
            request.waiting += count

    def put(self, entries: Sequence[PendingText]) -> None:
        """Add admitted texts that are tokenised now, unless they were dropped meanwhile."""
        with self._changed:
            self._ready.extend(entry for entry in entries if not entry.request.dropped)
            self._changed.notify()

    def drop(self, request: PendingRequest) -> int:
        """Drop the texts of a request that still wait, and return how many."""
        with self._changed:
            left, request.waiting, request.dropped = request.waiting, 0, True
            self.length -= left
            self._ready = [entry for entry in self._ready if entry.request is not request]
            self._changed.notify()
        return left

    def take_batch(self, tokens: int, max_wait: float) -> list[PendingText]:
        """Return texts to compute together: the one that waits longest, and others of about its length.

        They have ``tokens`` at most, padding included; a longer text is a batch alone. While they are fewer than a
        batch holds, the first waits up to ``max_wait`` seconds for more. A closed queue ends with an empty list.
        """
        with self._changed:
            while not self._ready or (rest := self._patience(tokens, max_wait)) > 0:
                if self._ready:
                    self._changed.wait(rest)
                elif self._closed and not self.length:
                    return []
                else:
                    self._changed.wait()
            window = self._ready[:WINDOW]
            batches = batches_by_length([len(entry.tokens.ids) for entry in window], tokens)
            chosen = set(next(batch for batch in batches if 0 in batch))
            batch = [window[index] for index in sorted(chosen)]
            self._ready = [entry for index, entry in enumerate(self._ready) if index not in chosen]
            for entry in batch:
                entry.request.waiting -= 1
            self.length -= len(batch)
            return batch

    def close(self) -> None:
        """Take no more texts, and wake the thread that waits for some."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _patience(self, tokens: int, max_wait: float) -> float:
        """Return how many seconds the oldest text still waits for others."""
        if self._closed or sum(len(entry.tokens.ids) for entry in self._ready[:WINDOW]) >= tokens:
            return 0.0
        return self._ready[0].request.arrived + max_wait - time.monotonic()
