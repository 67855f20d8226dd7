"""Label many files: leave out the finished ones, label the others on all cores, write one result per file."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from hgclr.bulk.engines import BulkJob, Label, Labelled, in_process, in_processes
from hgclr.bulk.files import SEPARATOR, Columns, Format, format_of, open_writer, pair_with_targets
from hgclr.decisions.decoding import Rule
from hgclr.errors import InputError
from hgclr.files import locked
from hgclr.hardware import chosen_threads, usable_cores
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.loading import find_model, is_onnx, trained_text_column
from hgclr.model_files import fingerprint
from hgclr.remote import kind_of, lock_file, new_file, open_file, version_of
from hgclr.taxonomy import Taxonomy
from hgclr.urls import as_written, url_of

RECORD, LOCK = ".hgclr-bulk.json", ".hgclr-bulk.lock"
"""In the folder of results: which files are finished, and a lock that is held while a run writes."""
AGAIN = "give another folder as --output, or label everything again with --overwrite"
BYTES_PER_WORKER = 2**18
"""Bytes of input that justify one more worker: some seconds of work, which is what its start takes with torch."""


@dataclass(frozen=True)
class Progress:
    """Rows labelled so far in this run, the rows expected by the sizes of finished files, and the current file."""

    rows: int
    expected: int | None
    file: Path
    number: int
    files: int


@dataclass(frozen=True)
class BulkResult:
    """The results (paths, or URLs as texts) that a run wrote, those of an earlier run that it kept, and counts.

    ``bad_rows`` have no usable text, ``blank_rows`` an empty or blank one; both have no labels.
    """

    written: list[Path | str]
    kept: list[Path | str]
    rows: int = 0
    bad_rows: int = 0
    blank_rows: int = 0


def predict_files(
    model: str | Path,
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    text_column: str | None = None,
    file_format: Literal["jsonl", "csv", "parquet"] | None = None,
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
    """Label files: each becomes a file of the same name in a folder, with its rows, its columns and the predictions.

    A result appears whole or not at all. A stopped run continues when it is started again: finished files are kept
    unless their input has changed. Workers import the program that calls this, so keep the call behind
    ``if __name__ == "__main__":``.

    Args:
        model: folder, URL or hub name.
        inputs: files, folders and patterns, also as URLs, see :func:`hgclr.bulk.files.find_inputs`.
        output: the folder of results, or its URL.
        text_column: by default ``text``, or the text column that the model was trained on.
        file_format: of the results; by default each has that of its input.
        engine: ``local``, or ``ray``, whose nodes must be able to load the model.
        workers: by default one per core, or GPU, of the machine or the cluster.
        ray_address: of a running cluster; by default Ray is started on this machine.
        threshold, rule, paths, abstain_below: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
        leaf_paths: tables get a column ``paths``, the names down to the deepest labels of each text.
        skip_bad_rows: rows without a usable text get an error instead of labels; by default the first one stops.
        raw: keep cells of tables that a spreadsheet would run as formulas; by default they become texts.
        overwrite: label everything again, and replace the results of an earlier run.
        progress: called after each chunk.
    """
    folder = Path(output)
    pairs = pair_with_targets(inputs, folder, file_format)
    found = find_model(model).absolute()
    classifier = HierarchicalClassifier.load(found, device="cpu" if engine == "ray" else None)
    changes: dict[str, Any] = {"rule": rule, "threshold": threshold, "paths": paths, "abstain_below": abstain_below}
    decisions = classifier.decisions.changed(**changes)
    for _, target in pairs:
        refuse_separators(classifier.taxonomy, format_of(target), target, leaf_paths=leaf_paths)
    text_columns = text_columns_of(found, text_column)
    added = Columns(leaf_paths, bool(decisions.abstain_below), skip_bad_rows, raw)
    settings = {
        "model": fingerprint(found),
        "way to decide (--rule, --threshold, --paths, --abstain-below)": decisions.to_json() | {"provenance": {}},
        "--text-column": text_columns,
        "choice of --leaf-paths, --skip-bad-rows or --raw": [leaf_paths, skip_bad_rows, raw],
    }
    with locked(lock_file(folder, LOCK), "labelling", remedy="wait until it is done, or give another --output"):
        record = RunRecord(folder, settings, overwrite=overwrite)
        left = [(source, target) for source, target in pairs if not record.is_finished(source, target)]
        kept = [_shown(target) for _, target in pairs if target not in {target for _, target in left}]
        if not left:
            return BulkResult([], kept)
        # Nodes of a cluster need not have the copy of the hub or the store in the same place.
        place = str(found) if engine == "local" or Path(model).is_dir() else str(model)
        job = BulkJob(place, [source for source, _ in left], text_columns, changes, is_onnx(found))
        sizes = [version_of(source)[0] for source in job.files]
        rows = bad = blank = 0
        with _engine(engine, job, classifier, workers, ray_address) as label:
            for number, (source, target) in enumerate(left):
                before = identity(source)
                expected = rows * sum(sizes) // sum(sizes[:number]) if rows else None
                record.begin(target)
                labelled = _checked(label(source), source, before)
                for chunk, answers in write_file(labelled, target, format_of(target), added):
                    rows += len(chunk.numbers)
                    bad += len(chunk.numbers) - len(chunk.usable_texts)
                    blank += sum("note" in answer for answer in answers)
                    if progress is not None:
                        progress(Progress(rows, expected, source, number + 1, len(left)))
                record.finish(target, before)
        return BulkResult([_shown(target) for _, target in left], kept, rows, bad, blank)


def _checked(labelled: Labelled, source: Path, before: Mapping[str, Any]) -> Labelled:
    """Yield the labelled rows of a file, and refuse them if the file has changed meanwhile."""
    yield from labelled
    if identity(source) != before:
        raise InputError("changed while it was being labelled", path=source, remedy="start the run again")


def _shown(target: Path) -> Path | str:
    return target if url_of(target) is None else as_written(target)


def text_columns_of(model: Path, chosen: str | None) -> list[str]:
    """Return the columns in which texts are looked for: the chosen one, or ``text`` and the one of the training."""
    trained = trained_text_column(model)
    return [chosen] if chosen is not None else list(dict.fromkeys(["text", trained or "text"]))


def refuse_separators(taxonomy: Taxonomy, kind: Format, target: Path | None, *, leaf_paths: bool) -> None:
    """Refuse to write labels into a cell of a table if they contain the separator."""
    written = chain(taxonomy.ids, taxonomy.names if leaf_paths else ()) if kind in ("csv", "tsv") else ()
    if (unclear := next((label for label in written if SEPARATOR in label), None)) is not None:
        raise InputError(
            f"the label {unclear!r} contains {SEPARATOR!r}, which separates labels in a table",
            path=target,
            remedy="write the results with --format jsonl or --format parquet",
        )


def write_file(labelled: Labelled, target: Path | None, kind: Format, added: Columns) -> Labelled:
    """Write rows with their answers, and yield them; without a column for errors, a bad row stops."""
    first = next(labelled, None)
    try:
        with open_writer(target, kind, None if first is None else first[0], added) as write:
            for chunk, answers in labelled if first is None else chain([first], labelled):
                if (bad := next(filter(None, chunk.problems), None)) is not None and not added.error:
                    raise bad.error()
                write(chunk, answers)
                yield chunk, answers
    except InputError as error:
        place = error.path or (None if first is None else first[0].path)
        raise InputError(error.what, path=place, line=error.line, remedy=error.remedy) from None
    except BrokenPipeError:  # the reader of standard output wants no more
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from None


def _engine(
    engine: str, job: BulkJob, classifier: HierarchicalClassifier, workers: int | None, ray_address: str | None
) -> AbstractContextManager[Label]:
    if engine == "ray":
        from hgclr.bulk.on_ray import on_ray

        return on_ray(job, workers=workers, address=ray_address)
    device = getattr(classifier.backend, "device", None)
    if workers is None and device is not None and device.type != "cpu":
        workers = 1  # an accelerator is shared badly
    if workers is None:
        size = sum(version_of(path)[0] for path in job.files)
        workers = min(chosen_threads() or usable_cores(), 1 + size // BYTES_PER_WORKER)
    return in_processes(job, workers) if workers > 1 else in_process(job, classifier)


class RunRecord:
    """The finished files of a folder of results.

    ``settings`` are all choices that the results depend on, as plain values under names that a message can use;
    ``overwrite`` forgets an earlier run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = folder / RECORD
        self._overwrite = overwrite
        self._content: dict[str, Any] = {"settings": json.loads(json.dumps(settings)), "begun": None, "finished": {}}
        if kind_of(self.path) is None or overwrite:
            self._write()
            return
        try:
            with open_file(self.path) as file:
                earlier = json.loads(file.read().decode())
            other = [name for name in settings if earlier["settings"].get(name) != self._content["settings"][name]]
            self._content |= {"begun": earlier["begun"], "finished": dict(earlier["finished"])}
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path, remedy=AGAIN) from None
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise InputError("the record of the run is broken", path=self.path, remedy=AGAIN) from None
        if other:
            what = f"the results in this folder were made with another {' and another '.join(other)}"
            raise InputError(what, path=folder, remedy=AGAIN)

    def is_finished(self, source: Path, target: Path) -> bool:
        """Tell whether a result exists and its input has not changed since; refuse files of others in its place."""
        if kind_of(target) is None:
            return False
        noted = self._content["finished"].get(target.name)
        if noted is None and target.name != self._content["begun"] and not self._overwrite:
            raise InputError("exists already, and is no result of this run", path=target, remedy=AGAIN)
        return noted is not None and noted == identity(source)

    def begin(self, target: Path) -> None:
        """Note that a result will be written, and delete what a killed attempt has left."""
        if url_of(target) is None:
            for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
        self._content["finished"].pop(target.name, None)
        self._content["begun"] = target.name
        self._write()

    def finish(self, target: Path, identity: Mapping[str, Any]) -> None:
        """Note that a result is in place, with the identity of its input before it was read."""
        self._content["finished"][target.name] = identity
        self._write()

    def _write(self) -> None:
        try:
            with new_file(self.path) as path:
                path.write_text(json.dumps(self._content), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self.path) from None


def identity(source: Path) -> dict[str, Any]:
    """Return values that change whenever a file does: its name, size, and time of change or version in a store."""
    size, changed = version_of(source)
    return {"name": source.name, "size": size, "changed": changed}
