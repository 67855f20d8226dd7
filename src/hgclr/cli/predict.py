"""``hgclr predict``: label texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import tee
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.options import AbstainBelow, Decode, Model, Paths, Raw, Rule, TextColumn, Threshold

if TYPE_CHECKING:
    from hgclr.bulk import BulkResult, Progress

__all__ = ["is_bulk", "predict"]

BULK = "Bulk prediction: many files into a folder"


def predict(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.")] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Texts to label: .jsonl, .csv, .tsv (also .gz) or .parquet with a text column,"
            " any other name: one text a line. '-' or nothing: lines from standard input."
            " In bulk: files (repeat the option), folders, or a pattern in quotes: 'part-*.parquet'.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Write JSON lines here instead of to standard output. In bulk: the folder of results.",
        ),
    ] = None,
    text_column: TextColumn = "text",
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    abstain_below: AbstainBelow = None,
    show: Annotated[
        Literal["auto", "tree", "json"],
        typer.Option(help="How to show results; auto: a tree in a terminal, else JSON."),
    ] = "auto",
    engine: Annotated[
        Literal["local", "ray"] | None,
        typer.Option(
            help="Bulk: local uses all cores of this machine; ray runs on Ray Data, here or on a cluster.",
            rich_help_panel=BULK,
        ),
    ] = None,
    file_format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        typer.Option("--format", help="Format of the results; default: that of their input.", rich_help_panel=BULK),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many processes label, each with the model in memory; default: one for each core or GPU.",
            rich_help_panel=BULK,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A running Ray cluster, such as auto or 10.0.0.1:6379, whose nodes see the same files;"
            " default: Ray is started on this machine.",
            rich_help_panel=BULK,
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Do not stop at rows without a usable text: they get no labels, and the reason in a column 'error'.",
            rich_help_panel=BULK,
        ),
    ] = False,
    raw: Raw = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Label everything anew; without it a run goes on where an earlier one was stopped.",
            rich_help_panel=BULK,
        ),
    ] = False,
) -> None:
    """Label texts: JSON lines in a pipe or file, a tree with probabilities in a terminal, files in bulk.

    Every output row is the input row with a field **predictions**: a list of {id, path, probability}, parents first.
    With --abstain-below, labels that are not probable enough are in a field **abstained** where there are any.
    Input is streamed: memory stays flat however long it is.

    In bulk (several inputs, or a folder as --output) each file becomes a file of the same name in that folder, and all
    its columns stay. A run that was stopped goes on where it was when you start it again.

    Example: **cat phrases.txt | hgclr predict runs/first/model --decode closure > labelled.jsonl**

    Example: **hgclr predict runs/first/model --input 'part-*.parquet' --output labelled/**
    """
    from hgclr.errors import InputError

    if texts and sources:
        raise InputError(
            "texts are given both as arguments and by --input",
            remedy="give one of them; a pattern of several files must be in quotes: --input 'part-*.parquet'",
        )
    for_bulk: dict[str, Any] = {
        "engine": engine,
        "file_format": file_format,
        "workers": workers,
        "ray_address": ray_address,
        "skip_bad_rows": skip_bad_rows,
        "raw": raw,
        "overwrite": overwrite,
    }
    deciding: dict[str, Any] = {
        "decode": decode,
        "threshold": threshold,
        "paths": paths,
        "abstain_below": abstain_below,
    }
    if is_bulk(sources or [], output, engine, file_format):
        if show == "tree":
            raise InputError("bulk prediction shows no trees", remedy="leave out --show tree")
        for_bulk["engine"] = engine or "local"
        _predict_in_bulk(model, sources or [], output, text_column=text_column, **deciding, **for_bulk)
        return
    if unused := next((name for name, value in for_bulk.items() if value), None):
        option = "--format" if unused == "file_format" else f"--{unused.replace('_', '-')}"
        raise InputError(
            f"{option} is for bulk prediction only", remedy="give files as --input and a folder as --output"
        )
    source = Path(sources[0]) if sources else None
    column = "text" if texts else text_column
    rows = ({column: text} for text in texts) if texts else _rows(source, column)
    as_tree = show == "tree" or (show == "auto" and output is None and sys.stdout.isatty())
    _predict_rows(model, rows, column, output, as_tree=as_tree, **deciding)


def _predict_rows(
    model: str,
    rows: Iterator[dict[str, Any]],
    column: str,
    output: str | None,
    *,
    as_tree: bool,
    decode: Rule | None,
    **changes: Any,
) -> None:
    from hgclr.cli.console import Console, open_classifier, progress_bar
    from hgclr.cli.tables import prediction_tree
    from hgclr.files import atomic_file

    classifier = open_classifier(model)
    decisions = classifier.decisions.changed(rule=decode, **changes)
    labelled, read = tee(rows)  # of which one window at most is kept
    with ExitStack() as stack:
        stream: IO[str] = sys.stdout
        if output is not None:
            path = stack.enter_context(atomic_file(output))
            stream = stack.enter_context(path.open("w", encoding="utf-8"))
        bar = stack.enter_context(progress_bar())
        bar.disable = bar.disable or as_tree or (output is None and sys.stdout.isatty())
        task = bar.add_task("texts", total=None)
        console = Console()
        predictions = classifier.stream((row[column] for row in read), decisions)
        for prediction, row in zip(predictions, labelled, strict=True):
            if as_tree:
                console.print(prediction_tree(row[column], prediction))
            else:
                line = json.dumps({**row, **prediction.to_json()}, ensure_ascii=False, default=str)
                stream.write(line + "\n")
            bar.advance(task)


def _rows(source: Path | None, text_column: str) -> Iterator[dict[str, Any]]:
    """Yield the rows to label; a row that cannot be read stops everything, with its place."""
    from hgclr.data.readers import SUFFIXES, read_rows
    from hgclr.data.rows import BadRow
    from hgclr.errors import InputError
    from hgclr.inference.classifier import check_text

    if source is None or str(source) == "-":
        if sys.stdin.isatty():
            sys.stderr.write("one text a line; end with Ctrl-D\n")
        yield from _lines(sys.stdin.buffer, Path("standard input"), text_column)
    elif source.name.lower().endswith(SUFFIXES):
        for row in read_rows(source, (text_column,)):
            if isinstance(row, BadRow):
                raise InputError(row.reason, path=row.path, line=row.number, remedy=row.remedy)
            try:
                check_text(row.values[text_column])
            except InputError as error:
                raise InputError(f"column {text_column!r}: {error.what}", path=source, line=row.number) from None
            yield dict(row.values)
    else:
        try:
            with source.open("rb") as file:
                yield from _lines(file, source, text_column)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=source) from error


def _lines(stream: IO[bytes], path: Path, text_column: str) -> Iterator[dict[str, Any]]:
    from hgclr.errors import InputError

    for number, line in enumerate(stream, 1):
        try:
            yield {text_column: line.decode().rstrip("\r\n")}
        except UnicodeDecodeError as error:
            raise InputError("not UTF-8", path=path, line=number, remedy="save the file as UTF-8") from error


def is_bulk(sources: Sequence[str], output: str | None, engine: str | None, file_format: str | None) -> bool:
    """Tell whether many files are meant, or at least a folder of results."""
    from hgclr.bulk.inputs import is_pattern

    if not sources or list(sources) == ["-"]:
        return False
    if len(sources) > 1 or engine is not None or file_format is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or Path(output).is_dir())
    return into_folder or Path(sources[0]).is_dir() or is_pattern(sources[0])


def _predict_in_bulk(model: str, sources: Sequence[str], output: str | None, **options: Any) -> None:
    """Label files into a folder, with a bar on standard error."""
    from hgclr.bulk import predict_files
    from hgclr.cli.console import find_folder, progress_bar, standard_error
    from hgclr.errors import InputError

    if output is None:
        raise InputError("the results of bulk prediction go to a folder", remedy="name one with --output")
    if "-" in sources:
        raise InputError("standard input is no file", remedy="give files, folders or patterns as --input")
    if options["ray_address"] is not None and options["engine"] != "ray":
        raise InputError("--ray-address is for the engine ray", remedy="add --engine ray")
    folder = find_folder(model)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(progress: Progress) -> None:
            place = f"{progress.file.name} ({progress.number} of {progress.files})"
            bar.update(task, completed=progress.rows, total=max(progress.rows, progress.expected), description=place)

        # The nodes of a cluster need not have the folder: they look the name up themselves.
        place = folder if options["engine"] == "local" else model
        result = predict_files(place, sources, output, progress=show, **options)
    standard_error().print(_summary(result, output), soft_wrap=True, markup=False)


def _summary(result: BulkResult, output: str) -> str:
    parts = [f"{result.rows:,} row{'s' * (result.rows != 1)} of {_files(len(result.written))} labelled into {output}"]
    if result.kept:
        parts.append(f"{_files(len(result.kept))} had been finished before")
    if result.bad_rows:
        parts.append(f"{result.bad_rows:,} without a usable text, see the column 'error'")
    return "; ".join(parts)


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
