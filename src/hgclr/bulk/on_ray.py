"""Label on a Ray cluster, or with Ray on this machine.

A pipeline of Ray Data: tasks read the files and yield their texts in blocks, tasks label the blocks, and the answers
come back in order. This process reads the files too, joins the answers to the rows and writes the results, so that they
are the same as those of the other engine and no node but this one writes. Every answer carries the place of its text;
an answer that is missing, or there twice, stops the run.

Tasks, not actors, hold the model: Ray keeps the processes that tasks run in, so that a process loads the model once,
and the work of a node that is lost goes to any other. What was sent to an actor waits until that actor is there again,
forever if no node has room for it.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.bulk.engine import Answer, BulkJob, Label, spread
from hgclr.bulk.inputs import Chunk, read_chunks
from hgclr.cluster import NEEDS, connected
from hgclr.errors import HGCLRError
from hgclr.inference.classifier import HierarchicalClassifier

if TYPE_CHECKING:
    import pyarrow

__all__ = ["on_ray"]

BLOCK_BYTES = 2**18
"""Bytes of texts that are labelled by one task: some thousand phrases, or some hundred abstracts."""
READERS = 4
"""Files that are read at a time; reading is so much faster than labelling that this keeps many nodes busy."""
KEPT = "finished files"
FAILED = -1
"""In the place of a row's number: instead of an answer there is what went wrong on a node."""


@contextmanager
def on_ray(job: BulkJob, *, workers: int | None, address: str | None) -> Iterator[Label]:
    """Label with Ray Data.

    Args:
        job: every node must be able to load its model and to read its files.
        workers: how many tasks label at a time; by default as many as the cluster has room for.
        address: of a running cluster; by default Ray is started on this machine, and stopped in the end.
    """
    # Closing the answers, also after an error, ends the pipeline before the connection.
    with connected(address, kept=KEPT), closing(_answers(job, workers)) as answers:
        number = -1

        def label(path: Path) -> Iterator[tuple[Chunk, list[Answer]]]:
            nonlocal number
            number += 1
            for chunk in read_chunks(path, job.text_column):
                yield chunk, spread(chunk, [_expect(answers, number, row, path) for row in chunk.usable_rows])

        yield label
        if (extra := next(answers, None)) is not None:
            raise HGCLRError(f"Ray returned an answer to row {extra[1]} of {job.files[extra[0]]} that nobody waits for")


def _expect(answers: Iterator[tuple[int, int, Answer]], file: int, row: int, path: Path) -> Answer:
    """Return the next answer, which must be that to a certain row."""
    found = next(answers, None)
    if found is None or found[:2] != (file, row):
        what = "no answer" if found is None else f"the answer to row {found[1]} of file {found[0] + 1}"
        raise HGCLRError(
            f"{path}: Ray returned {what} where that to row {row} of file {file + 1} was expected; make sure that all"
            " nodes see the same files and nobody changes them, and start the run again (finished files are kept)"
        )
    return found[2]


def _answers(job: BulkJob, workers: int | None) -> Generator[tuple[int, int, Answer], None, None]:
    """Yield number of the file, number of the row and answer of all texts, in order."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what goes wrong is raised as well
    with warnings.catch_warnings():  # copying counts as setting what is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.target_max_block_size = BLOCK_BYTES
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    items = [{"file": number, "path": str(path)} for number, path in enumerate(job.files)]
    cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    with ray.data.DataContext.current(context):
        texts = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            partial(_read, text_column=job.text_column),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=0,  # must never wait for those who wait for it
            compute=ray.data.TaskPoolStrategy(min(READERS, len(items))),
        )
        labelled = texts.map_batches(
            partial(_label, job=job),
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.TaskPoolStrategy(workers),
            **_resources(job, cluster),
        )
    table: Any
    # Closed at once, also after an error, whose traceback would keep the pipeline alive.
    with closing(iter(labelled.iter_batches(batch_size=None, batch_format="pyarrow"))) as tables:  # type: ignore[type-var]
        for table in tables:
            columns = (table.column(name).to_pylist() for name in ("file", "row", "answer"))
            for file, row, answer in zip(*columns, strict=True):
                if row == FAILED:
                    raise HGCLRError(f"on a node of the cluster: {answer} ({NEEDS}; {KEPT} are kept)")
                yield file, row, json.loads(answer)


def _resources(job: BulkJob, cluster: dict[str, float]) -> dict[str, Any]:
    """Return what a task that labels occupies: a GPU where there are any and the model can use one, else a core."""
    if cluster.get("GPU", 0) >= 1 and not job.onnx:
        return {"num_gpus": 1, "num_cpus": 0, "max_calls": 0}  # Ray would end a process that had a GPU after each call
    return {"num_cpus": 1}


def _read(batch: pyarrow.Table, text_column: str) -> Iterator[pyarrow.Table]:
    """Yield the usable texts of files with their places; runs on any node."""
    for file, path in zip(batch.column("file").to_pylist(), batch.column("path").to_pylist(), strict=True):
        try:
            for chunk in read_chunks(Path(path), text_column):
                yield _table(file, chunk.usable_rows, "text", chunk.usable_texts)
        except HGCLRError as error:
            yield _table(file, [FAILED], "text", [str(error)])


def _label(batch: pyarrow.Table, job: BulkJob) -> Iterator[pyarrow.Table]:
    files, rows, texts = (batch.column(name).to_pylist() for name in ("file", "row", "text"))
    good = [place for place, row in enumerate(rows) if row != FAILED]
    try:
        found = job.answers(_opened(job.model), [texts[place] for place in good]) if good else []
    except HGCLRError as error:
        yield _table(files[0], [FAILED], "answer", [str(error)])
        return
    answers = dict(zip(good, map(json.dumps, found), strict=True))
    for file, places in groupby(range(len(files)), files.__getitem__):
        these = list(places)
        yield _table(file, [rows[p] for p in these], "answer", [answers.get(p, texts[p]) for p in these])


def _table(file: int, rows: list[int], name: str, values: list[str]) -> pyarrow.Table:
    """Return rows of one file with a text each; large ones are for more than two gigabytes of them."""
    import pyarrow

    return pyarrow.table(
        {
            "file": pyarrow.array([file] * len(rows), pyarrow.int64()),
            "row": pyarrow.array(rows, pyarrow.int64()),
            name: pyarrow.array(values, pyarrow.large_string()),
        }
    )


@lru_cache(maxsize=1)
def _opened(model: str) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(model)
