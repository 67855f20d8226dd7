"""Engines of bulk prediction on this machine: this process, or one worker process per core."""

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
from pathlib import Path
from typing import Any

from hgclr.bulk.files import Answer, Chunk, read_chunks
from hgclr.errors import HGCLRError, InputError
from hgclr.inference import HierarchicalClassifier

CHUNKS_AHEAD = 2
"""Chunks per worker that are read ahead, so that none waits for work."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Of a worker: one thread, and no progress bars beside ours."""
Work = tuple[Path, Chunk | InputError | None, Callable[[], list[Answer]] | None]
"""A chunk of a file and the function that waits for its answers; or the end of the file, or what is wrong with it."""
Labelled = Iterator[tuple[Chunk, list[Answer]]]
Label = Callable[[Path], Labelled]
"""Yields the rows of a file with their answers, in order. It is called for the files of a job in their order."""


@dataclass(frozen=True)
class BulkJob:
    """Work for an engine; it is sent to workers, which load the model themselves.

    ``model`` is a folder, or the hub name or URL with which nodes of a cluster find it; the text is in the first of the
    ``text_columns`` that a row has; ``changes`` are arguments of ``Decisions.changed``.
    """

    model: str
    files: Sequence[Path] = ()
    text_columns: Sequence[str] = ("text",)
    changes: Mapping[str, Any] = field(default_factory=dict)
    onnx: bool = False

    def answers(self, classifier: HierarchicalClassifier, texts: Sequence[str]) -> list[Answer]:
        decisions = classifier.decisions.changed(**self.changes)
        return [prediction.to_json() for prediction in classifier.stream(texts, decisions)]


@contextmanager
def in_process(job: BulkJob, classifier: HierarchicalClassifier) -> Iterator[Label]:
    """Label in this process, with all the threads that the model's backend takes."""

    def label(path: Path) -> Labelled:
        for chunk in read_chunks(path, job.text_columns):
            yield chunk, chunk.answers(job.answers(classifier, chunk.usable_texts))

    yield label


@contextmanager
def in_processes(job: BulkJob, workers: int) -> Iterator[Label]:
    """Label in worker processes of one thread each, which are faster than one process with as many threads."""
    # Forking a process that has threads, as torch and onnxruntime start them, may leave its child waiting for a lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(job,))

    def submit(texts: list[str]) -> Callable[[], list[Answer]]:
        future: Future[list[Answer]] = pool.submit(_answers, texts)
        return future.result

    try:
        yield read_ahead(job, submit, CHUNKS_AHEAD * workers)
    except BrokenProcessPool as error:
        remedy = f"take fewer than {workers} --workers if memory was short (finished files are kept)"
        raise HGCLRError(f"a worker process was killed; {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def read_ahead(job: BulkJob, submit: Callable[[list[str]], Callable[[], list[Answer]]], ahead: int) -> Label:
    """Return a function that labels files in turn, while the next chunks, also of the next files, are submitted."""

    def read() -> Iterator[Work]:
        for path in job.files:
            try:
                for chunk in read_chunks(path, job.text_columns):
                    yield path, chunk, submit(chunk.usable_texts)
                yield path, None, None
            except InputError as error:  # raised when it is this file's turn
                yield path, error, None

    reading, waiting = read(), deque[Work]()

    def label(path: Path) -> Labelled:
        while True:
            while len(waiting) <= ahead and (more := next(reading, None)) is not None:
                waiting.append(more)
            expected, chunk, answers = waiting.popleft()
            if expected != path:
                raise RuntimeError(f"{expected} comes before {path}")
            if isinstance(chunk, InputError):
                raise chunk
            if chunk is None or answers is None:
                return
            yield chunk, chunk.answers(answers())

    return label


_opened: tuple[BulkJob, HierarchicalClassifier] | None = None
"""In a worker process: its job and its model."""


def _start(job: BulkJob) -> None:
    """Load the model in a worker process."""
    global _opened
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    os.environ |= ENVIRONMENT
    if (parent := multiprocessing.parent_process()) is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=leave, daemon=True).start()  # ends this process also if its parent is killed
    _opened = job, HierarchicalClassifier.load(job.model, device="cpu")


def _answers(texts: list[str]) -> list[Answer]:
    assert _opened is not None
    job, classifier = _opened
    return job.answers(classifier, texts)
