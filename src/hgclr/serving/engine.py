"""The batch engine: one thread tokenises texts, another predicts the texts of all requests in shared batches."""

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
"""Seconds after which a batch counts as hanging."""
WINDOW = 1024
"""A batch is chosen from this many of the oldest texts."""

Reason = Literal["deadline", "client_gone", "shutdown"]
Answer = tuple[Prediction, NDArray[np.float32]] | Problem
"""The prediction for a text with the probability of every label, (K,); or the error."""


@dataclass(eq=False)
class PendingRequest:
    """A request whose texts are queued or being computed.

    Attributes:
        future: the answers in the order of the texts, once all are computed.
        waiting: texts whose computation has not started.
        dropped: whether the answers are no longer needed.
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
        """Store the answer of one text; the last answer completes the future."""
        with self._lock:
            self._answers[place] = answer
            self._missing -= 1
            complete = not self._missing
        if complete and self.future.set_running_or_notify_cancel():
            self.future.set_result([answer for answer in self._answers if answer is not None])


@dataclass(eq=False, slots=True)
class PendingText:
    """The tokens of one text, and its index in its request."""

    request: PendingRequest
    place: int
    tokens: TokenisedText


class Engine:
    """Predict the texts of many requests in batches.

    Attributes:
        queue: the texts that wait.
        warm: set once the model has computed its warm-up batches.
        warm_at: expected end of the warm-up, on the monotonic clock; None until its first batch is measured.
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
        self.warm_at: float | None = None
        self._classifier, self._metrics, self._max_wait = classifier, metrics, max_wait
        self._budget = batch_tokens or classifier.backend.batch_tokens
        self.queue = BatchQueue(max_queue)
        self._begun: float | None = None  # start of the current batch
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="hgclr-tokenise")  # starts no thread yet
        self._thread = threading.Thread(target=self._compute, name="hgclr-compute", daemon=True)
        self.start = self._thread.start

    def stop(self, patience: float = 5.0) -> None:
        """Accept no more texts, and wait up to ``patience`` seconds for those that are being computed."""
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
        """Queue texts; the request's future will hold the answers in order.

        Raises:
            Problem: if the queue has no room for all of them; then none is queued.
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
        except Exception as error:  # every text needs an answer
            self.queue.drop(request)
            self._fail(request, texts, error)
            return
        self._metrics.tokenise.observe(time.perf_counter() - started)
        self.queue.put([PendingText(request, place, tokens) for place, tokens in zip(texts, tokenised, strict=True)])

    def _compute(self) -> None:
        # Warm up with one text and with a full batch of the longest texts: onnxruntime keeps the memory of its largest
        # batch, so it is allocated here rather than under load.
        longest = self._classifier.max_length
        (tokens,) = self._classifier.tokenise(["a long text " * longest])
        started, size = time.monotonic(), max(1, self._budget // longest)
        self._classifier.predict_batch([tokens])
        now = time.monotonic()
        self.warm_at = now + size * (now - started)
        self._classifier.predict_batch([tokens] * size)
        self.warm.set()
        while batch := self.queue.take_batch(self._budget, self._max_wait):
            now = time.monotonic()
            for entry in batch:
                self._metrics.queue.observe(now - entry.request.arrived)
            self._predict(batch)
            self._begun = None

    def _predict(self, batch: list[PendingText]) -> None:
        """Predict texts together; if that fails, one by one, so that one bad text does not fail the others."""
        started, self._begun = time.perf_counter(), time.monotonic()
        tokenised = [entry.tokens for entry in batch]
        try:
            predicted = self._classifier.predict_batch(tokenised, [entry.request.decisions for entry in batch])
        except Exception as error:  # the thread must survive for the next batch
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
        """Answer texts with an error; its message is not logged, because it may quote a text."""
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%d texts could not be labelled: %s\n%s", len(places), type(error).__name__, frames)
        for place in places:
            request.deliver(place, Problem("internal", "the model could not label this text"))


class BatchQueue:
    """The queue of all texts, ``capacity`` at most, from their arrival until their batch starts.

    Attributes:
        length: texts in the queue, tokenised or not.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._closed = False
        self._ready: list[PendingText] = []
        self._changed = threading.Condition()

    def require_room(self, count: int) -> None:
        """Raise a `Problem` if the queue has no room for ``count`` texts."""
        if self._closed or self.length + count > self.capacity:
            raise Problem("overloaded", f"the queue holds {self.length} of {self.capacity} texts", retry_after=1)

    def admit(self, request: PendingRequest, count: int) -> None:
        """Reserve room for all texts of a request, or raise a `Problem`."""
        with self._changed:
            self.require_room(count)
            self.length += count
            request.waiting += count

    def put(self, entries: Sequence[PendingText]) -> None:
        """Add admitted texts after tokenising, unless their request was dropped."""
        with self._changed:
            self._ready.extend(entry for entry in entries if not entry.request.dropped)
            self._changed.notify()

    def drop(self, request: PendingRequest) -> int:
        """Drop the texts of a request that still wait; return their number."""
        with self._changed:
            left, request.waiting, request.dropped = request.waiting, 0, True
            self.length -= left
            self._ready = [entry for entry in self._ready if entry.request is not request]
            self._changed.notify()
        return left

    def take_batch(self, tokens: int, max_wait: float) -> list[PendingText]:
        """Return texts to compute together: the oldest, and others of similar length.

        A batch has at most ``tokens``, padding included, or a single longer text. While the queue cannot fill a batch,
        the oldest text waits up to ``max_wait`` seconds for more. An empty list means that the queue is closed.
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
        """Accept no more texts, and wake the thread that waits for a batch."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _patience(self, tokens: int, max_wait: float) -> float:
        """Return for how many more seconds the oldest text waits for others."""
        if self._closed or sum(len(entry.tokens.ids) for entry in self._ready[:WINDOW]) >= tokens:
            return 0.0
        return self._ready[0].request.arrived + max_wait - time.monotonic()
