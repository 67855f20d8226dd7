"""What an engine of bulk prediction is, and the one of this machine: this process, or one process for each core."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hgclr.bulk.inputs import Chunk, read_chunks
from hgclr.errors import HGCLRError, InputError
from hgclr.hardware import chosen_threads, usable_cores
from hgclr.inference import HierarchicalClassifier, Prediction
from hgclr.remote import facts

__all__ = ["BYTES_PER_WORKER", "Answer", "BulkJob", "Label", "choose_workers", "in_process", "in_processes", "spread"]

Answer = dict[str, Any]
"""The labels of a text, as :meth:`hgclr.inference.Prediction.to_json` has them."""
NO_ANSWER: Answer = Prediction(()).to_json()
Label = Callable[[Path], Iterator[tuple[Chunk, list[Answer]]]]
"""What an engine is to the rest: it yields the rows of a file with their answers, all of them, in order. It must be
called with the files of the job, in their order, each once and to its end."""
CHUNKS_AHEAD = 2
"""Chunks for each process that are read before their turn, so that none waits for work."""
BYTES_PER_WORKER = 2**18
"""Bytes of input that one more process is worth: some seconds of work, which is what its start takes with torch."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Of a process that labels: one thread, and no bars beside ours."""


@dataclass(frozen=True)
class BulkJob:
    """What an engine is started with. It is sent to other processes and nodes, which load the model themselves.

    ``model`` is its folder, or the hub name under which nodes without that folder find it; ``changes`` are arguments of
    :meth:`hgclr.decisions.settings.Decisions.changed`; ``onnx`` tells whether the model runs on onnxruntime.
    """

    model: str
    files: Sequence[Path] = ()
    text_column: str = "text"
    changes: Mapping[str, Any] = field(default_factory=dict)
    onnx: bool = False

    def answers(self, classifier: HierarchicalClassifier, texts: Sequence[str]) -> list[Answer]:
        decisions = classifier.decisions.changed(**self.changes)
        return [prediction.to_json() for prediction in classifier.stream(texts, decisions)]


def spread(chunk: Chunk, answers: Sequence[Answer]) -> list[Answer]:
    """Return an answer for every row of a chunk, from those to its usable texts."""
    given = iter(answers)
    return [NO_ANSWER if text is None else next(given) for text in chunk.texts]


def choose_workers(classifier: HierarchicalClassifier, files: Sequence[Path], wanted: int | None) -> int:
    """Return how many processes to label with.

    Several that compute with one thread are faster than one that shares out each batch among its threads: nobody waits
    for the slowest, and what Python does between the batches is done by all. On an accelerator one is enough.
    """
    if wanted is not None:
        return wanted
    device = getattr(classifier.backend, "device", None)
    if device is not None and device.type != "cpu":
        return 1
    return min(chosen_threads() or usable_cores(), 1 + sum(facts(path)[0] for path in files) // BYTES_PER_WORKER)


@contextmanager
def in_process(job: BulkJob, classifier: HierarchicalClassifier) -> Iterator[Label]:
    """Label in this process, with all the threads that the model's backend takes."""

    def label(path: Path) -> Iterator[tuple[Chunk, list[Answer]]]:
        for chunk in read_chunks(path, job.text_column):
            yield chunk, spread(chunk, job.answers(classifier, chunk.usable_texts))

    yield label


@dataclass(frozen=True)
class _Work:
    """A chunk that a process works on; without one, the end of a file or what was wrong with it."""

    path: Path
    chunk: Chunk | None = None
    answers: Future[list[Answer]] | None = None
    problem: InputError | None = None


@contextmanager
def in_processes(job: BulkJob, workers: int) -> Iterator[Label]:
    """Label in processes of one thread each, to which this one deals out the rows."""
    # Forking a process that has threads, as torch and onnxruntime make them, may leave its child waiting for a lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(job,))

    def read() -> Iterator[_Work]:
        for path in job.files:
            try:
                for chunk in read_chunks(path, job.text_column):
                    yield _Work(path, chunk, pool.submit(_answers, chunk.usable_texts))
                yield _Work(path)
            except InputError as error:  # to be raised when it is this file's turn
                yield _Work(path, problem=error)

    reading, waiting = read(), deque[_Work]()

    def label(path: Path) -> Iterator[tuple[Chunk, list[Answer]]]:
        while True:
            while len(waiting) <= CHUNKS_AHEAD * workers and (more := next(reading, None)) is not None:
                waiting.append(more)
            work = waiting.popleft()
            if work.path != path:
                raise RuntimeError(f"{work.path} comes before {path}")
            if work.problem is not None:
                raise work.problem
            if work.chunk is None or work.answers is None:
                return
            yield work.chunk, spread(work.chunk, work.answers.result())

    try:
        yield label
    except BrokenProcessPool as error:
        raise HGCLRError(
            f"a process that labels was killed, perhaps for want of memory; take fewer than {workers} --workers"
            " (finished files are kept)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_opened: tuple[BulkJob, HierarchicalClassifier] | None = None
"""In a process of the pool: what it labels with."""


def _start(job: BulkJob) -> None:
    """Load the model in a new process."""
    global _opened
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who deals out the rows stops the others
    os.environ |= ENVIRONMENT
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    _opened = job, HierarchicalClassifier.load(job.model, device="cpu")


def _leave_with(parent: BaseProcess) -> None:
    """End this process when the one that started it is gone, also when that was killed."""
    parent.join()
    os._exit(1)


def _answers(texts: list[str]) -> list[Answer]:
    if _opened is None:
        raise RuntimeError("the process has no model")
    job, classifier = _opened
    return job.answers(classifier, texts)
