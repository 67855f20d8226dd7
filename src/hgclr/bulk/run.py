"""Label many files: find them, leave out what is finished, and write the results one file at a time.

What is finished stands in the record of the run, ``.hgclr-bulk.jsonl`` in the folder of results."""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from hgclr.bulk.engine import BulkJob, Label, choose_workers, in_process, in_processes
from hgclr.bulk.inputs import FileFormat, find_inputs, format_of, pair_with_targets, read_chunks, stop_at, survey
from hgclr.bulk.outputs import SEPARATOR, TABLES, AddedColumns, open_writer
from hgclr.decisions.decoding import Rule
from hgclr.errors import InputError
from hgclr.files import locked
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.inference.loading import find_model, is_onnx
from hgclr.model_files import fingerprint
from hgclr.remote import exists, facts, is_file, lock_file, new_file, open_file
from hgclr.taxonomy import Taxonomy
from hgclr.urls import as_written, url_of

__all__ = ["FILE", "BulkResult", "Progress", "RunRecord", "places_named", "predict_files", "refuse_separators"]

logger = logging.getLogger(__name__)
FILE = ".hgclr-bulk.jsonl"
LOCK = ".hgclr-bulk.lock"
"""Held while a run writes: a second one would take its unfinished files for leftovers."""
ANEW = "give another folder as --output, or label everything anew with --overwrite"


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Args:
        rows: labelled so far, in this run.
        expected: rows in all, as far as can be told from the sizes of files not yet read.
        file: the file that is being labelled.
        number: its number, from 1.
        files: how many there are to label.
    """

    rows: int
    expected: int
    file: Path
    number: int
    files: int


@dataclass(frozen=True)
class BulkResult:
    """What a run did.

    Args:
        written: the results that it wrote: paths, or URLs as texts.
        kept: those that an earlier run had finished.
        rows: in what it wrote.
        bad_rows: how many of them have no labels because they could not be labelled.
        blank_rows: how many of them have no labels because their text is empty or blank.
    """

    written: list[Path | str]
    kept: list[Path | str]
    rows: int
    bad_rows: int
    blank_rows: int = 0


def predict_files(
    model: str | Path,
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    text_column: str = "text",
    file_format: FileFormat | None = None,
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
    progress: Callable[[Progress], None] | None = None,
) -> BulkResult:
    """Label files: each becomes a file of the same name in a folder, with the same rows and columns and the labels.

    A result is there whole or not at all. A run that was stopped goes on where it was when it is started again: what is
    finished is left alone, unless its input has changed. The rows are streamed, so that memory does not grow with them.

    Where more than one process labels, each imports the program that called this: keep the call behind
    ``if __name__ == "__main__":``.

    Args:
        model: folder, URL of one in an object store, or hub name.
        inputs: files, folders and patterns, also as URLs, see :func:`hgclr.bulk.inputs.find_inputs`.
        output: the folder of results, or its URL.
        text_column: the column with the text.
        file_format: of the results; by default each has that of its input.
        engine: ``local``, or ``ray`` for Ray Data, whose nodes must see the same files, or reach the store.
        workers: how many processes label; by default one for each core, or GPU, of the machine or the cluster.
        ray_address: of a running cluster; by default Ray is started on this machine.
        threshold, rule, paths, abstain_below: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
        leaf_paths: tables get a column ``paths``, the names down to the deepest labels of each text.
        skip_bad_rows: rows without a usable text get no labels, and the reason in a column ``error``; by default the
            first one stops the run.
        raw: leave cells of tables as they are that a spreadsheet would run as formulas; by default they become texts.
        overwrite: label everything anew, in the place of whatever an earlier run has left.
        progress: called whenever some more rows are labelled.

    Raises:
        InputError: if a file is missing, broken or has a bad row, or all are empty; if input and results would mix; if
            the folder has results of another model or of other settings.
        MissingExtraError: if what a format or the engine needs is not installed.
    """
    folder = Path(output)
    pairs = pair_with_targets(inputs, find_inputs(inputs), folder, file_format)
    found = find_model(model).absolute()
    classifier = HierarchicalClassifier.load(found, device="cpu" if engine == "ray" else None)
    changes = {"rule": rule, "threshold": threshold, "paths": paths, "abstain_below": abstain_below}
    decisions = classifier.decisions.changed(**changes)  # type: ignore[arg-type]
    for _, target in pairs:
        refuse_separators(classifier.taxonomy, format_of(target).name, target, leaf_paths=leaf_paths)
    settings = {
        "model": fingerprint(found),
        "way to decide (--rule, --threshold, --paths, --abstain-below)": decisions.to_json() | {"provenance": {}},
        "--text-column": text_column,
        "choice of --skip-bad-rows": skip_bad_rows,
        "choice of --leaf-paths": leaf_paths,
        "choice of --raw": raw,
    }
    if not any(next(read_chunks(source, text_column), None) for source, _ in pairs):
        raise InputError("no rows to label", path=pairs[0][0] if len(pairs) == 1 else None)
    with locked(lock_file(folder, LOCK), "labelling", remedy="wait until it is done, or give another --output"):
        record = RunRecord(folder, settings, overwrite=overwrite)
        left = [(source, target) for source, target in pairs if not record.is_finished(source, target)]
        sources, targets = [source for source, _ in left], {target for _, target in left}
        kept = [target for _, target in pairs if target not in targets]
        if kept:
            logger.info("%d of %d files are finished already", len(kept), len(pairs))
        if not left:
            return BulkResult([], _named(kept), 0, 0)
        # Nodes of a cluster need not have the hub's copy in the same place: they look the name up themselves.
        place = str(found) if engine == "local" or Path(model).is_dir() else str(model)
        job = BulkJob(place, sources, text_column, changes, is_onnx(found))
        added = AddedColumns(bool(decisions.abstain_below), skip_bad_rows, raw=raw, leaf_paths=leaf_paths)
        run = _Run(record, added, text_column, sources, progress)
        labelling: AbstractContextManager[Label]
        if engine == "ray":
            from hgclr.bulk.on_ray import on_ray

            labelling = on_ray(job, workers=workers, address=ray_address)
        elif (count := choose_workers(classifier, sources, workers)) > 1:
            labelling = in_processes(job, count)
        else:
            labelling = in_process(job, classifier)
        with labelling as label:
            for number, (source, target) in enumerate(left, 1):
                run.file(number, source, target, label)
        written = _named([target for _, target in left])
        return BulkResult(written, _named(kept), run.rows, run.bad_rows, run.blank_rows)


def _named(targets: Sequence[Path]) -> list[Path | str]:
    return [target if url_of(target) is None else as_written(target) for target in targets]


def refuse_separators(taxonomy: Taxonomy, kind: str, target: Path | None, *, leaf_paths: bool) -> None:
    """Refuse to write labels into a table that could not be told apart there."""
    if kind not in TABLES:
        return
    written = chain(taxonomy.ids, taxonomy.names if leaf_paths else ())
    if (unclear := next((label for label in written if SEPARATOR in label), None)) is not None:
        raise InputError(
            f"the label {unclear!r} has the {SEPARATOR!r} in it that stands between labels in a table",
            path=target,
            remedy="write the results with --format jsonl or --format parquet",
        )


class _Run:
    """The files of one run, one after the other."""

    def __init__(
        self,
        record: RunRecord,
        added: AddedColumns,
        text_column: str,
        sources: Sequence[Path],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._record, self._added, self._text_column, self._progress = record, added, text_column, progress
        self._sizes = [facts(source)[0] for source in sources]
        self._known = 0  # rows in the files begun so far
        self.rows = self.bad_rows = self.blank_rows = 0

    def file(self, number: int, source: Path, target: Path, label: Label) -> None:
        before = identity(source, fresh=True)
        strict, types = not self._added.error, format_of(target).name == "parquet"
        with places_named(source, target):
            found = survey(source, self._text_column, strict=strict, types=types)
            self._known += found.rows
            self._record.begin(target)
            rows = bad = blank = 0
            with open_writer(target, found, self._added) as write:
                for chunk, answers in label(source):
                    problems = [problem for problem in chunk.problems if problem is not None]
                    if problems and strict:
                        raise stop_at(problems[0])
                    write(chunk, answers)
                    rows, bad = rows + len(chunk.numbers), bad + len(problems)
                    blank += sum("note" in answer for answer in answers)
                    self._tell(number, source, self.rows + rows)
                if rows != found.rows or identity(source, fresh=True) != before:
                    raise InputError("changed while it was being labelled", path=source, remedy="start the run again")
            self._record.finish(target, before, rows, bad)
        self.rows, self.bad_rows, self.blank_rows = self.rows + rows, self.bad_rows + bad, self.blank_rows + blank

    def _tell(self, number: int, source: Path, rows: int) -> None:
        """Report progress; files not yet read are taken to have as many rows for their size as those that are."""
        if self._progress is not None:
            ahead = sum(self._sizes[number:]) / max(sum(self._sizes[:number]), 1)
            expected = self._known + round(self._known * ahead)
            self._progress(Progress(rows, expected, source, number, len(self._sizes)))


@contextmanager
def places_named(source: Path, target: Path | None) -> Iterator[None]:
    """Give errors the name of the file they are about."""
    try:
        yield
    except InputError as error:
        if error.path is not None:
            raise
        raise InputError(error.what, path=source, remedy=error.remedy) from None
    except BrokenPipeError:  # the reader of standard output wants no more
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from None


class RunRecord:
    """Know which files need not be labelled again.

    ``settings`` are all that decides what the results are, in plain Python types, under names that a message can use;
    ``overwrite`` forgets an earlier run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = folder / FILE
        self._overwrite = overwrite
        self._begun: set[str] = set()
        self._done: dict[str, dict[str, Any]] = {}
        self._written = json.dumps({"settings": settings}) + "\n"
        if is_file(self.path) and not overwrite:
            self._read(json.loads(json.dumps(settings)))
        else:
            self._write()

    def is_finished(self, source: Path, target: Path) -> bool:
        """Tell whether a result is there, and its input has not changed since; refuse files of others in its place."""
        if not exists(target):
            return False
        noted = self._done.get(target.name)
        if noted is None and target.name not in self._begun and not self._overwrite:
            raise InputError("is there already, and no result of this run", path=target, remedy=ANEW)
        return noted is not None and noted == identity(source)

    def begin(self, target: Path) -> None:
        """Note that a result is about to be written, and clear away what an attempt that was killed has left."""
        if url_of(target) is None:
            for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
        self._done.pop(target.name, None)
        self._append({"begun": target.name})

    def finish(self, target: Path, identity: Mapping[str, Any], rows: int, bad_rows: int) -> None:
        """Note that a result is in place, with the identity of its input before it was read."""
        self._append({"finished": target.name, "input": identity, "rows": rows, "bad_rows": bad_rows})

    def _append(self, line: Mapping[str, Any]) -> None:
        self._written += json.dumps(line) + "\n"
        if url_of(self.path) is not None:  # nothing can be added to an object
            self._write()
            return
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _write(self) -> None:
        with _writing(self.path), new_file(self.path) as path:
            path.write_text(self._written, encoding="utf-8")

    def _read(self, settings: Mapping[str, Any]) -> None:
        try:
            with open_file(self.path) as file:
                content = file.read().decode()
        except UnicodeDecodeError:
            raise InputError("the record of the run is broken", path=self.path, remedy=ANEW) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path, remedy=ANEW) from None
        whole, _, torn = content.rpartition("\n")  # the machine may have stopped in the middle of a line
        for number, line in enumerate(whole.split("\n"), 1):
            try:
                event = json.loads(line)
                if number == 1:
                    self._compare(event["settings"], settings)
                elif "begun" in event:
                    self._begun.add(event["begun"])
                    self._done.pop(event["begun"], None)
                else:
                    self._done[event["finished"]] = event["input"]
            except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
                raise InputError("the record of the run is broken", path=self.path, line=number, remedy=ANEW) from None
        self._written = whole + "\n"
        if torn:
            self._write()

    def _compare(self, earlier: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        if other := [name for name in settings if earlier.get(name, False) != settings[name]]:
            raise InputError(
                f"the results in this folder were made with another {' and another '.join(other)}",
                path=self.path.parent,
                remedy=ANEW,
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def identity(source: Path, *, fresh: bool = False) -> dict[str, Any]:
    """Return what tells whether a file is still the same: its name, size and time of change, or what a store says."""
    size, changed = facts(source, fresh=fresh)
    return {"name": source.name, "size": size, "changed": changed}
