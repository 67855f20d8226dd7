"""Runs of bulk prediction: skip finished files, label the others on all cores, write one result per file."""

from __future__ import annotations

import glob
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from hgclr.bulk.files import (
    Answer,
    Chunk,
    Columns,
    Labelled,
    format_of,
    pair_with_targets,
    read_chunks,
    write_file,
)
from hgclr.cluster import tasks
from hgclr.data.readers import TextForm
from hgclr.decisions.decoding import Rule
from hgclr.errors import HGCLRError, InputError, as_written, url_of
from hgclr.files import locked
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.loading import find_model, is_onnx, trained_text_column
from hgclr.model_files import fingerprint
from hgclr.provenance import chosen_threads, usable_cores
from hgclr.remote import delete_file, kind_of, lock_file, new_file, open_file, version_of

RECORD, LOCK = ".hgclr-bulk.json", ".hgclr-bulk.lock"
"""Files in the folder of results: the record of finished inputs, and the lock of a running process."""
AGAIN = "choose another --output, or label everything again with --overwrite"
BYTES_PER_WORKER = 2**18
"""Bytes of input per worker: some seconds of work, about as long as a worker with torch takes to start."""
CHUNKS_AHEAD = 3
"""Chunks read ahead per worker, so that none waits for work."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Environment of a worker: one thread, and no other progress bars."""
Work = Callable[[list[str]], list[Answer]]
Engine = tuple[Callable[[list[str]], Future[list[Answer]]], int]
"""A function that submits texts, and the number of chunks to read ahead."""


@dataclass(frozen=True)
class BulkResult:
    """The results (paths or URLs) that a run wrote, those that it kept from an earlier run, and counts of rows.

    ``bad_rows`` have no usable text, and get no labels; ``notes`` counts the others with each note.
    """

    written: list[str]
    kept: list[str]
    rows: int = 0
    bad_rows: int = 0
    notes: Counter[str] = field(default_factory=Counter)


def predict_files(
    model: str | Path,
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    text_column: str | None = None,
    file_format: Literal["jsonl", "csv", "parquet", "xlsx"] | None = None,
    encoding: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    threshold: float | None = None,
    rule: Rule | None = None,
    paths: int | None = None,
    abstain_below: float | None = None,
    leaf_paths: bool = False,
    skip_bad_rows: bool = False,
    raw: bool = False,
    overwrite: bool = False,
    progress: Callable[[Path, int], None] | None = None,
) -> BulkResult:
    """Label files: write each to a file of the same name in a folder, with its rows, its columns and the predictions.

    Results are written atomically. A stopped run continues when it is started again: finished files are kept unless
    their input has changed. Workers import the calling program, so put the call behind
    ``if __name__ == "__main__":``.

    Args:
        model: folder, URL or hub name.
        inputs: files, folders and patterns, also as URLs, see :func:`hgclr.data.texts.find_inputs`.
        output: the folder of results, or its URL.
        text_column: by default ``text``, or the text column that the model was trained on.
        file_format: format of the results; by default that of each input.
        encoding: encoding of text files; by default UTF-8 or, for tables that are not, detected.
        engine: ``local``, or ``ray``, whose nodes must be able to load the model.
        ray_address: address of a running cluster; by default Ray is started on this machine.
        workers: by default one per core, or GPU, of the machine or the cluster.
        threshold, rule, paths, abstain_below: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
        leaf_paths, skip_bad_rows, raw, overwrite: as the options of ``hgclr predict``.
        progress: called after each chunk with its file and the rows labelled so far.
    """
    folder, encoding = Path(output), TextForm(encoding).encoding
    pairs = pair_with_targets(inputs, folder, file_format)
    found = find_model(model).absolute()
    classifier = HierarchicalClassifier.load(found, device="cpu" if engine == "ray" else None)
    changes: dict[str, Any] = {"rule": rule, "threshold": threshold, "paths": paths, "abstain_below": abstain_below}
    decisions = classifier.decisions.changed(**changes)
    text_columns = text_columns_of(found, text_column)
    several = not decisions.taxonomy.is_tree
    added = Columns(leaf_paths, bool(decisions.abstain_below), skip_bad_rows, raw, several)
    chosen = [text_columns, leaf_paths, skip_bad_rows, raw, encoding]
    settings = {"model": fingerprint(found), "decisions": decisions.to_json() | {"provenance": {}}, "options": chosen}
    with locked(lock_file(folder, LOCK), "labelling", remedy="wait until it is done, or give another --output"):
        record = RunRecord(folder, settings, overwrite=overwrite)
        versions = {source: version_of(source) for source, _ in pairs}
        left = [(source, target) for source, target in pairs if not record.is_finished(target, versions[source])]
        kept = [as_written(pair[1]) for pair in pairs if pair not in left]
        if not left:
            return BulkResult([], kept)
        sources = [source for source, _ in left]
        if engine == "ray":
            # Other nodes may not have the cached copy of a hub or store at the same path.
            place = str(found) if Path(model).is_dir() else str(model)
            work = partial(answer_in_worker, place, None, changes)
            on_gpu = not is_onnx(found)
            started = tasks(work, on_gpu=on_gpu, workers=workers, address=ray_address, kept="finished files")
        else:
            count = workers or default_workers(classifier, sum(versions[source][0] for source in sources))
            work = partial(answer_in_worker, str(found), "cpu", changes)
            started = in_processes(work, count) if count > 1 else in_process(partial(answer, classifier, changes))
        rows = bad = 0
        notes: Counter[str] = Counter()
        with started as (submit, ahead):
            labelled_files = label_files(sources, text_columns, submit, ahead, encoding)
            by_file = groupby(labelled_files, lambda item: item[0].path)
            for (source, target), (_, labelled) in zip(left, by_file, strict=True):
                record.begin(target, versions[source])
                checked = _unchanged(labelled, source, versions[source])
                for chunk, answers in write_file(checked, target, format_of(target), added):
                    rows += len(chunk.texts)
                    bad += len(chunk.problems)
                    notes.update(answer["note"] for answer in answers if "note" in answer)
                    if progress is not None:
                        progress(source, rows)
        return BulkResult([as_written(target) for _, target in left], kept, rows, bad, notes)


def _unchanged(labelled: Labelled, source: Path, version: tuple[int, str | None]) -> Labelled:
    """Yield the labelled rows of a file, and raise at the end if the file has changed meanwhile."""
    yield from labelled
    if version_of(source) != version:
        raise InputError("changed while it was being labelled", path=source, remedy="start the run again")


def text_columns_of(model: Path, chosen: str | None) -> list[str]:
    """Return the columns to search for texts: the chosen one, or ``text`` and the model's text column in training."""
    trained = trained_text_column(model)
    return [chosen] if chosen is not None else list(dict.fromkeys(["text", trained or "text"]))


def label_files(
    files: Sequence[Path],
    text_columns: Sequence[str],
    submit: Callable[[list[str]], Future[list[Answer]]],
    ahead: int,
    encoding: str | None = None,
) -> Labelled:
    """Yield the chunks of all files in order with their answers, while the next ``ahead`` chunks are submitted."""

    def submitted() -> Iterator[tuple[Chunk, Future[list[Answer]]]]:
        for path in files:
            try:
                for chunk in read_chunks(path, text_columns, TextForm(encoding)):
                    yield chunk, submit(chunk.usable_texts)
            except InputError as error:  # raised when this file is written
                failed: Future[list[Answer]] = Future()
                failed.set_exception(error)
                yield Chunk(path), failed

    waiting: deque[tuple[Chunk, Future[list[Answer]]]] = deque()
    for item in submitted():
        waiting.append(item)
        if len(waiting) > ahead:
            chunk, answers = waiting.popleft()
            yield chunk, chunk.answers(answers.result())
    for chunk, answers in waiting:
        yield chunk, chunk.answers(answers.result())


def default_workers(classifier: HierarchicalClassifier, size: int) -> int:
    """Return the number of processes for ``size`` bytes of input; one if the model is on an accelerator."""
    device = getattr(classifier.backend, "device", None)
    if device is not None and device.type != "cpu":
        return 1
    return min(chosen_threads() or usable_cores(), 1 + size // BYTES_PER_WORKER)


@contextmanager
def in_process(work: Work) -> Iterator[Engine]:
    """Label in this process, with all threads of the model's backend."""

    def submit(texts: list[str]) -> Future[list[Answer]]:
        future: Future[list[Answer]] = Future()
        future.set_result(work(texts))
        return future

    yield submit, 0


@contextmanager
def in_processes(work: Work, workers: int) -> Iterator[Engine]:
    """Label in worker processes of one thread each, which is faster than one process with as many threads."""
    # A fork of a process with threads, such as those of torch and onnxruntime, may deadlock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield lambda texts: pool.submit(work, texts), CHUNKS_AHEAD * workers
    except BrokenProcessPool as error:
        remedy = f"use fewer than {workers} --workers if memory was short (finished files are kept)"
        raise HGCLRError(f"a worker process was killed; {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    os.environ |= ENVIRONMENT
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()  # end this process if its parent is killed


def answer(classifier: HierarchicalClassifier, changes: Mapping[str, Any], texts: Sequence[str]) -> list[Answer]:
    """Return the answers for texts; ``changes`` are arguments of ``Decisions.changed``."""
    decisions = classifier.decisions.changed(**changes)
    return [prediction.to_json() for prediction in classifier.stream(texts, decisions)]


def answer_in_worker(model: str, device: str | None, changes: Mapping[str, Any], texts: list[str]) -> list[Answer]:
    """Return the answers for texts in a worker process or on a node of a cluster, which loads the model once."""
    return answer(_loaded(model, device), changes, texts)


@lru_cache(maxsize=1)
def _loaded(model: str, device: str | None) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(model, device=device)


class RunRecord:
    """The record of results in a folder, each with the version of its input, recorded before the result is written.

    ``settings`` are all values that affect the results; ``overwrite`` discards the record of an earlier run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path, self._overwrite = folder / RECORD, overwrite
        self._settings = json.loads(json.dumps(settings))
        self._results: dict[str, Any] = {}
        if kind_of(self.path) is None or overwrite:
            self._write()
            return
        try:
            with open_file(self.path) as file:
                earlier = json.loads(file.read().decode())
            other = [name for name, value in self._settings.items() if earlier["settings"].get(name) != value]
            self._results = dict(earlier["results"])
        except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
            raise InputError(f"the record of the run cannot be read: {error}", path=self.path, remedy=AGAIN) from None
        if other:
            what = f"the results in this folder were made with a different value of {' and '.join(other)}"
            raise InputError(what, path=folder, remedy=AGAIN)

    def is_finished(self, target: Path, version: tuple[int, str | None]) -> bool:
        """Return whether a result exists and its input has not changed; raise if the file is from elsewhere."""
        if kind_of(target) is None:
            return False
        if target.name not in self._results and not self._overwrite:
            raise InputError("the file exists and is not a result of this run", path=target, remedy=AGAIN)
        return self._results.get(target.name) == list(version)

    def begin(self, target: Path, version: tuple[int, str | None]) -> None:
        """Delete an old result and leftovers of a killed attempt, then record that the result will be written."""
        delete_file(target)
        if url_of(target) is None:
            for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
        self._results[target.name] = list(version)
        self._write()

    def _write(self) -> None:
        try:
            with new_file(self.path) as path:
                path.write_text(json.dumps({"settings": self._settings, "results": self._results}), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self.path) from None
