"""What computes: one thread that tokenises, one that takes batches from all requests together and labels them."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.data.rows import is_blank
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier, Prediction
from hgclr.inference.backends import pad
from hgclr.inference.classifier import BLANK, PredictionMaker, check_text
from hgclr.serving.batch_queue import BatchQueue, PendingRequest, PendingText
from hgclr.serving.metrics import Metrics
from hgclr.serving.settings import Settings

__all__ = ["Answer", "Engine", "Failure", "Reason", "fault_of"]

logger = logging.getLogger(__name__)

TOKENISED_TOGETHER = 256
"""Texts that are tokenised together."""
STUCK = 60.0
"""Seconds after which a batch that is still being computed is taken for one that never ends."""
PACE_DECAY = 0.9
"""How much of the pace until now stays in its running mean after a batch."""

Reason = Literal["deadline", "client_gone", "shutdown"]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """The labels of a text, whether it is longer than the model reads, and all probabilities, (K,), if wanted."""

    prediction: Prediction
    truncated: bool
    probabilities: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a text has no labels: through its own fault (``invalid``) or through ours (``internal``)."""

    kind: Literal["invalid", "internal"]
    message: str


Answer = LabelledText | Failure


def fault_of(text: str) -> str | None:
    """Return what a tokenizer cannot take in a text, None if it can take it."""
    try:
        check_text(text)
    except InputError as error:
        return error.what
    return f"the text has a NUL at character {text.index(chr(0)) + 1}" if "\0" in text else None


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
        self._make = PredictionMaker(classifier.taxonomy)
        self._queue: BatchQueue[Answer] = BatchQueue(settings.max_queue)
        self._pace = 0.0  # seconds that a text takes, averaged
        self._begun: float | None = None  # when what is being computed was begun
        self._threads = [
            threading.Thread(target=work, name=f"hgclr-{work.__name__.strip('_')}", daemon=True)
            for work in (self._tokenise, self._compute)
        ]

    def start(self) -> None:
        """Begin to warm up, then to work."""
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
        """How many texts wait."""
        return self._queue.length

    @property
    def full(self) -> bool:
        """Whether there is no room for a single text."""
        return self._queue.length >= self._queue.capacity

    @property
    def wait(self) -> float:
        """In how many seconds, about, the texts that wait now are done."""
        return self._pace * self._queue.length

    def submit(
        self, texts: Sequence[str], decisions: Decisions, *, probabilities: bool = False
    ) -> PendingRequest[Answer]:
        """Let texts wait for their turn; the answers come in the request's future, in order.

        Raises:
            QueueFullError: if there is no room for all of them; nothing has been done for any then.
        """
        request: PendingRequest[Answer] = PendingRequest(decisions, len(texts), probabilities)
        known = {place: answer for place, text in enumerate(texts) if (answer := self._at_once(text, probabilities))}
        self._queue.put(request, [(place, text) for place, text in enumerate(texts) if place not in known])
        for place, answer in known.items():
            request.deliver(place, answer)
        return request

    def _at_once(self, text: str, probabilities: bool) -> Answer | None:
        """Return the answer to a text that the model need not see."""
        if (fault := fault_of(text)) is not None:
            return Failure("invalid", fault)
        if not is_blank(text):
            return None
        labels = len(self._classifier.taxonomy)
        return LabelledText(BLANK, False, np.zeros(labels, dtype=np.float32) if probabilities else None)

    def drop(self, request: PendingRequest[Answer], reason: Reason) -> None:
        """Do nothing more for a request."""
        self._metrics.dropped.labels(reason).inc(self._queue.drop(request))

    def _tokenise(self) -> None:
        while entries := self._queue.take_untokenised(TOKENISED_TOGETHER):
            started = time.perf_counter()
            try:
                encodings = self._classifier.encode([entry.text for entry in entries])
            except Exception as error:  # whatever it is, the next texts must not suffer from it
                self._queue.remove(entries)
                self._fail(entries, error)
                continue
            for entry, encoding in zip(entries, encodings, strict=True):
                entry.ids = encoding.ids
                entry.truncated = len(entry.ids) >= self.max_length and bool(encoding.overflowing)
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

    def _label(self, batch: list[PendingText[Answer]]) -> None:
        """Label texts together; if that fails, one by one, so that only those fail that must."""
        started, self._begun = time.perf_counter(), time.monotonic()
        try:
            ids, mask = pad([entry.ids for entry in batch], self._classifier.pad_token)
            answers = self._decide(batch, self._probabilities(ids, mask))
        except Exception as error:  # whatever it is, the next batch must not suffer from it
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                for entry in batch:
                    self._label([entry])
            return
        self._metrics.compute.observe(time.perf_counter() - started)
        self._metrics.batch_texts.observe(len(batch))
        self._metrics.batch_tokens.observe(ids.size)
        self._metrics.texts.inc(len(batch))
        for entry, answer in zip(batch, answers, strict=True):
            entry.request.deliver(entry.place, answer)

    def _probabilities(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        logits = self._classifier.backend.logits(ids, mask)
        if np.isnan(logits).any():
            raise FloatingPointError("the model's logits are not numbers")
        return self._classifier.decisions.probabilities(logits)

    def _decide(self, batch: Sequence[PendingText[Answer]], probabilities: NDArray[np.float32]) -> list[Answer]:
        """Return the answers to a batch; requests may want to decide differently."""
        alike: dict[int, list[int]] = {}
        for row, entry in enumerate(batch):
            alike.setdefault(id(entry.request.decisions), []).append(row)
        answers: dict[int, Answer] = {}
        for rows in alike.values():
            decided = batch[rows[0]].request.decisions.decide(probabilities[rows])
            for number, row in enumerate(rows):
                entry, seen = batch[row], decided.probabilities[number]
                prediction = self._make(seen, decided.predicted[number], decided.abstained[number])
                answers[row] = LabelledText(prediction, entry.truncated, seen if entry.request.probabilities else None)
        return [answers[row] for row in range(len(batch))]

    def _fail(self, entries: Sequence[PendingText[Answer]], error: Exception) -> None:
        """Answer with a failure; the error's own message is not logged, for it may quote a text."""
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%d texts could not be labelled: %s\n%s", len(entries), type(error).__name__, frames)
        for entry in entries:
            entry.request.deliver(entry.place, Failure("internal", "the model could not label this text"))
