"""Label many files: find them, leave out what is finished, and write the results one file at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hgclr.bulk.chunks import FileFormat, Label, Labelling, format_of
from hgclr.bulk.inputs import find_inputs, pair_with_targets, stop_at, survey
from hgclr.bulk.local import choose_workers, in_process, in_processes
from hgclr.bulk.outputs import SEPARATOR, Added, open_writer
from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import FILE as DECISIONS
from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.inference.loading import find_model
from hgclr.inference.manifest import FILE as MANIFEST
from hgclr.inference.manifest import READ

__all__ = ["FILE", "BulkResult", "Progress", "RunRecord", "predict_files"]

FILE = ".hgclr-bulk.jsonl"
ANEW = "give another folder as --output, or label everything anew with --overwrite"


class RunRecord:
    """Know which files need not be labelled again.

    Args:
        folder: the folder of results.
        settings: all that decides what the results are, in plain Python types, under names that a message can use.
        overwrite: forget an earlier run.

    Raises:
        InputError: if an earlier run had other settings, or its record cannot be read.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = folder / FILE
        self._overwrite = overwrite
        self._begun: set[str] = set()
        self._done: dict[str, dict[str, Any]] = {}
        if self.path.is_file() and not overwrite:
            self._read(json.loads(json.dumps(settings)))
        else:
            with _writing(self.path), atomic_file(self.path) as path:
                path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")

    def finished(self, source: Path, target: Path) -> dict[str, Any] | None:
        """Return what was noted when a result was finished; None if it is not, or its input has changed since.

        Raises:
            InputError: if there is a file in its place that is no result of this run.
        """
        noted = self._done.get(target.name)
        if not target.exists():
            return None
        if noted is None and target.name not in self._begun and not self._overwrite:
            raise InputError("is there already, and no result of this run", path=target, remedy=ANEW)
        return noted if noted is not None and noted["input"] == identity(source) else None

    def begin(self, target: Path) -> None:
        """Note that a result is about to be written, and clear away what an attempt that was killed has left."""
        for leftover in target.parent.glob(f".{_literal(target.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
        self._done.pop(target.name, None)
        self._append({"begun": target.name})

    def finish(self, target: Path, identity: Mapping[str, Any], rows: int, bad_rows: int) -> None:
        """Note that a result is in place.

        Args:
            target: the result.
            identity: of its input, before it was read.
            rows: how many there are.
            bad_rows: how many of them have no labels because they could not be labelled.
        """
        self._append({"finished": target.name, "input": identity, "rows": rows, "bad_rows": bad_rows})

    def _append(self, line: Mapping[str, Any]) -> None:
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, settings: Mapping[str, Any]) -> None:
        try:
            content = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path, remedy=ANEW) from None
        whole, _, torn = content.rpartition("\n")  # the machine may have stopped in the middle of a line
        lines = whole.split("\n")
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line), first=number == 1, settings=settings)
            except (ValueError, KeyError, TypeError):
                raise InputError("the record of the run is broken", path=self.path, line=number, remedy=ANEW) from None
        if torn:
            with atomic_file(self.path) as path:
                path.write_text(whole + "\n", encoding="utf-8")

    def _take(self, line: dict[str, Any], *, first: bool, settings: Mapping[str, Any]) -> None:
        if first:
            earlier = line["settings"]
            if other := [name for name in settings if earlier[name] != settings[name]]:
                raise InputError(
                    f"the results in this folder were made with another {' and another '.join(other)}",
                    path=self.path.parent,
                    remedy=ANEW,
                )
        elif "begun" in line:
            self._begun.add(line["begun"])
            self._done.pop(line["begun"], None)
        else:
            self._done[line["finished"]] = {name: line[name] for name in ("input", "rows", "bad_rows")}


def identity(source: Path) -> dict[str, Any]:
    """Return what tells whether a file is still the same: its name, size and time of change."""
    try:
        status = source.stat()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=source) from None
    return {"name": source.name, "size": status.st_size, "changed": status.st_mtime_ns}


def _literal(name: str) -> str:
    """Return a pattern that stands for just this name."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of everything in a model's folder that its probabilities are computed from.

    How it decides is not among that: the decisions that are really taken are compared by themselves.
    """
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix.lower() in READ and path.name not in (DECISIONS, MANIFEST):
            with path.open("rb") as file:
                whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


logger = logging.getLogger(__name__)
Engine = Literal["local", "ray"]


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
        written: the results that it wrote.
        kept: those that an earlier run had finished.
        rows: in what it wrote.
        bad_rows: how many of them have no labels because they could not be labelled.
    """

    written: list[Path]
    kept: list[Path]
    rows: int
    bad_rows: int


def predict_files(
    model: str | Path,
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    text_column: str = "text",
    file_format: FileFormat | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    threshold: float | None = None,
    decode: Rule | None = None,
    paths: int | None = None,
    abstain_below: float | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> BulkResult:
    """Label files: each becomes a file of the same name in a folder, with the same rows and columns and the labels.

    A result is there whole or not at all. A run that was stopped goes on where it was when it is started again: what is
    finished is left alone, unless its input has changed. The rows are streamed, so that memory does not grow with them.

    Where more than one process labels, each imports the program that called this: keep the call behind
    ``if __name__ == "__main__":``.

    Args:
        model: folder or hub name.
        inputs: files, folders and patterns, see :func:`hgclr.bulk.inputs.find_inputs`.
        output: the folder of results.
        text_column: the column with the text.
        file_format: of the results; by default each has that of its input.
        engine: ``local``, or ``ray`` for Ray Data, whose nodes must see the same files.
        workers: how many processes label; by default one for each core, or GPU, of the machine or the cluster.
        ray_address: of a running cluster; by default Ray is started on this machine.
        threshold, decode, paths, abstain_below: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
        skip_bad_rows: rows without a usable text get no labels, and the reason in a column ``error``; by default the
            first one stops the run.
        overwrite: label everything anew, in the place of whatever an earlier run has left.
        progress: called whenever some more rows are labelled.

    Raises:
        InputError: if a file is missing, broken or has a bad row; if input and results would mix; if the folder has
            results of another model or of other settings.
        MissingExtraError: if what a format or the engine needs is not installed.
    """
    folder = Path(output)
    pairs = pair_with_targets(inputs, find_inputs(inputs), folder, file_format)
    place = Path(model).absolute() if Path(model).is_dir() else model
    labelling = Labelling(str(place), threshold, decode, paths, abstain_below)
    classifier = labelling.open("cpu" if engine == "ray" else None)
    decisions = labelling.decisions(classifier)
    _refuse_separators(classifier, [target for _, target in pairs])
    decided = {name: value for name, value in decisions.to_json().items() if name != "found"}
    settings = {
        "model": fingerprint(find_model(model)),
        "way to decide (--decode, --threshold, --paths, --abstain-below)": decided,
        "--text-column": text_column,
        "choice of --skip-bad-rows": skip_bad_rows,
    }
    record = RunRecord(folder, settings, overwrite=overwrite)
    kept, left = [], []
    for source, target in pairs:
        if record.finished(source, target) is None:
            left.append((source, target))
        else:
            kept.append(target)
    if kept:
        logger.info("%d of %d files are finished already", len(kept), len(pairs))
    if not left:
        return BulkResult([], kept, 0, 0)
    run = _Run(record, Added(bool(decisions.abstain_below), skip_bad_rows), text_column, left, progress)
    sources = [source for source, _ in left]
    with _engine(engine, classifier, labelling, sources, text_column, workers, ray_address) as label:
        for number, (source, target) in enumerate(left, 1):
            run.file(number, source, target, label)
    return BulkResult([target for _, target in left], kept, run.rows, run.bad_rows)


@contextmanager
def _engine(
    name: Engine,
    classifier: HierarchicalClassifier,
    labelling: Labelling,
    files: Sequence[Path],
    text_column: str,
    workers: int | None,
    ray_address: str | None,
) -> Iterator[Label]:
    if name == "ray":
        from hgclr.bulk.on_ray import on_ray

        with on_ray(labelling, files, text_column, workers=workers, address=ray_address) as label:
            yield label
    elif (count := choose_workers(classifier, files, workers)) > 1:
        with in_processes(labelling, files, text_column, count) as label:
            yield label
    else:
        with in_process(classifier, labelling, text_column) as label:
            yield label


def _refuse_separators(classifier: HierarchicalClassifier, targets: Sequence[Path]) -> None:
    """Refuse to write labels into a table that could not be told apart there."""
    unclear = next((label for label in classifier.taxonomy.ids if SEPARATOR in label), None)
    table = next((target for target in targets if format_of(target).name in ("csv", "tsv")), None)
    if unclear is not None and table is not None:
        raise InputError(
            f"the label {unclear!r} has the {SEPARATOR!r} in it that stands between labels in a table",
            path=table,
            remedy="write the results with --format jsonl or --format parquet",
        )


class _Run:
    """The files of one run, one after the other."""

    def __init__(
        self,
        record: RunRecord,
        added: Added,
        text_column: str,
        pairs: Sequence[tuple[Path, Path]],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._record, self._added, self._text_column, self._progress = record, added, text_column, progress
        self._sizes = [source.stat().st_size for source, _ in pairs]
        self._known = 0  # rows in the files begun so far
        self.rows = self.bad_rows = 0

    def file(self, number: int, source: Path, target: Path, label: Label) -> None:
        """Label one file."""
        before = identity(source)
        with _places_named(source, target):
            facts = survey(
                source,
                self._text_column,
                strict=not self._added.error,
                types=format_of(target).name == "parquet",
            )
            self._known += facts.rows
            self._record.begin(target)
            rows = bad = 0
            with open_writer(target, facts, self._added) as writer:
                for chunk, answers in label(source):
                    problems = [problem for problem in chunk.problems if problem is not None]
                    if problems and not self._added.error:
                        raise stop_at(problems[0])
                    writer.write(chunk, answers)
                    rows, bad = rows + len(chunk.numbers), bad + len(problems)
                    self._tell(number, source, self.rows + rows)
                if rows != facts.rows or identity(source) != before:
                    raise InputError("changed while it was being labelled", path=source, remedy="start the run again")
            self._record.finish(target, before, rows, bad)
        self.rows, self.bad_rows = self.rows + rows, self.bad_rows + bad

    def _tell(self, number: int, source: Path, rows: int) -> None:
        """Report progress; files not yet read are taken to have as many rows for their size as those that are."""
        if self._progress is not None:
            ahead = sum(self._sizes[number:]) / max(sum(self._sizes[:number]), 1)
            expected = self._known + round(self._known * ahead)
            self._progress(Progress(rows, expected, source, number, len(self._sizes)))


@contextmanager
def _places_named(source: Path, target: Path) -> Iterator[None]:
    """Give errors the name of the file they are about."""
    try:
        yield
    except InputError as error:
        if error.path is not None:
            raise
        raise InputError(error.what, path=source, remedy=error.remedy) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from None
