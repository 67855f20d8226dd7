"""``hgclr predict``: label texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.options import AbstainBelow, Decode, Model, Paths, Raw, Rule, Threshold

if TYPE_CHECKING:
    from hgclr.bulk import BulkResult, Progress
    from hgclr.bulk.inputs import Chunk, FileFormat, Survey

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
            " any other name: one text per line. '-' or nothing: lines from standard input."
            " In bulk: files (repeat the option), folders, or a pattern in quotes: 'part-*.parquet'."
            " All of these also as URLs, such as s3://bucket/texts/.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Write to this file instead of to standard output, in the format of its ending: .jsonl, .csv, .tsv"
            " (also .gz) or .parquet; without an ending JSON lines. In bulk: the folder of results. A URL for either.",
        ),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(help="Column with the text; default: text, or the one of the table that training data came from."),
    ] = None,
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    abstain_below: AbstainBelow = None,
    file_format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        typer.Option("--format", help="Format of the results; default: by --output, in bulk that of their input."),
    ] = None,
    leaf_paths: Annotated[
        bool,
        typer.Option(
            "--leaf-paths",
            help="In CSV and TSV: a column 'paths' with the names down to the deepest labels, 'Science > Physics'.",
        ),
    ] = False,
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Do not stop at rows without a usable text: they get no labels, and the reason in a column 'error'.",
        ),
    ] = False,
    raw: Raw = False,
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
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes, each with the model in memory; default: one per core or GPU.",
            rich_help_panel=BULK,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A running Ray cluster, such as auto or 10.0.0.1:6379, whose nodes see the same files or URLs;"
            " default: Ray is started on this machine.",
            rich_help_panel=BULK,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Label everything again; otherwise a run continues where an earlier one stopped.",
            rich_help_panel=BULK,
        ),
    ] = False,
) -> None:
    """Label texts: JSON lines in a pipe or file, a tree with probabilities in a terminal, files in bulk.

    Every output row is the input row, with all its columns, and a field **predictions**: a list of {id, path,
    probability}, parents first; in CSV columns **labels** and **probabilities**. With --abstain-below, labels that are
    not probable enough are in a field **abstained** where there are any. An empty or blank text gets no label and a
    **note**. Input is streamed: memory stays flat however long it is.

    In bulk (several inputs, or a folder as --output) each file becomes a file of the same name in that folder, and all
    its columns stay. A run that was stopped goes on where it was when you start it again.

    Example: **cat phrases.txt | hgclr predict runs/first/model --decode closure > labelled.jsonl**

    Example: **hgclr predict runs/first/model --input 'part-*.parquet' --output labelled/**

    Example: **hgclr predict s3://bucket/model --input 's3://bucket/texts/*.jsonl' --output s3://bucket/labelled/**
    """
    from hgclr.errors import InputError

    if texts and sources:
        raise InputError(
            "texts are given both as arguments and by --input",
            remedy="give one of them; a pattern of several files must be in quotes: --input 'part-*.parquet'",
        )
    _check_sources(sources or [])
    text_column = text_column or _text_column(model, sources or [])
    for_bulk: dict[str, Any] = {
        "engine": engine,
        "workers": workers,
        "ray_address": ray_address,
        "overwrite": overwrite,
    }
    how: dict[str, Any] = {
        "file_format": file_format,
        "leaf_paths": leaf_paths,
        "skip_bad_rows": skip_bad_rows,
        "raw": raw,
        "decode": decode,
        "threshold": threshold,
        "paths": paths,
        "abstain_below": abstain_below,
    }
    if is_bulk(sources or [], output, engine):
        if show == "tree":
            raise InputError("bulk prediction shows no trees", remedy="leave out --show tree")
        for_bulk["engine"] = engine or "local"
        _predict_in_bulk(model, sources or [], output, text_column=text_column, **how, **for_bulk)
        return
    if unused := next((name for name, value in for_bulk.items() if value), None):
        option = f"--{unused.replace('_', '-')}"
        raise InputError(
            f"{option} is for bulk prediction only", remedy="give files as --input and a folder as --output"
        )
    show_tree = show == "tree" or (show == "auto" and output is None and file_format is None and sys.stdout.isatty())
    _predict_one(
        model,
        texts or [],
        Path(sources[0]) if sources and sources != ["-"] else None,
        "text" if texts else text_column,
        None if output is None else Path(output),
        show_tree=show_tree,
        **how,
    )


def _predict_one(
    model: str,
    texts: Sequence[str],
    source: Path | None,
    text_column: str,
    output: Path | None,
    *,
    file_format: FileFormat | None,
    leaf_paths: bool,
    skip_bad_rows: bool,
    raw: bool,
    show_tree: bool,
    decode: Rule | None,
    **changes: Any,
) -> None:
    """Label texts, a file or standard input, into one file, to standard output or on the terminal."""
    from hgclr.bulk.engine import spread
    from hgclr.bulk.inputs import output_format, stop_at
    from hgclr.bulk.outputs import AddedColumns, open_writer
    from hgclr.bulk.run import places_named, refuse_separators
    from hgclr.cli.console import Console, open_classifier, progress_bar, standard_error
    from hgclr.cli.tables import prediction_tree
    from hgclr.errors import InputError

    kind = output_format(output, file_format)
    place = source or Path("standard input")
    facts, chunks = _read(texts, source, text_column, strict=not skip_bad_rows, types=kind.name == "parquet")
    if (first := next(chunks, None)) is None:
        raise InputError("no text to label: the input is empty", path=place)
    classifier = open_classifier(model)
    decisions = classifier.decisions.changed(rule=decode, **changes)
    console, blank, bad = Console(), 0, 0
    with ExitStack() as stack:
        stack.enter_context(places_named(place, output))
        write = None
        if not show_tree:
            refuse_separators(classifier.taxonomy, kind.name, output, leaf_paths=leaf_paths)
            added = AddedColumns(bool(decisions.abstain_below), skip_bad_rows, raw=raw, leaf_paths=leaf_paths)
            write = stack.enter_context(open_writer(output, facts, added, kind))
        bar = stack.enter_context(progress_bar())
        bar.disable = bar.disable or show_tree or (output is None and sys.stdout.isatty())
        task = bar.add_task("texts", total=facts.rows or None)
        for chunk in chain([first], chunks):
            problems = [problem for problem in chunk.problems if problem is not None]
            if problems and not skip_bad_rows:
                raise stop_at(problems[0])
            predictions = list(classifier.stream(chunk.usable_texts, decisions))
            if write is not None:
                write(chunk, spread(chunk, [prediction.to_json() for prediction in predictions]))
            else:
                for text, prediction in zip(chunk.usable_texts, predictions, strict=True):
                    console.print(prediction_tree(text, prediction))
            blank += sum(prediction.note is not None for prediction in predictions)
            bad += len(problems)
            bar.advance(task, len(chunk.numbers))
    if (notes := _unlabelled(bad, blank)) and not show_tree:
        standard_error().print("; ".join(notes), soft_wrap=True, markup=False)


def _check_sources(sources: Sequence[str]) -> None:
    """Refuse files that are not there, before the seconds that loading a model takes."""
    from hgclr.bulk.inputs import is_pattern
    from hgclr.errors import InputError
    from hgclr.remote import exists

    for name in sources:
        if name != "-" and not is_pattern(name) and not exists(name):
            raise InputError("no such file or folder", path=name)


def _text_column(model: str, sources: Sequence[str]) -> str:
    """Return the text column of the first table: text, or, with a word, the one that the model's documents had."""
    from hgclr.bulk.inputs import find_inputs
    from hgclr.cli.console import standard_error
    from hgclr.data.readers import SUFFIXES, read_rows
    from hgclr.data.rows import BadRow
    from hgclr.inference.loading import find_model, trained_text_column

    for path in find_inputs([name for name in sources if name != "-"])[:1]:
        if path.name.lower().endswith(SUFFIXES) and (known := trained_text_column(find_model(model))):
            row = next(iter(read_rows(path, (), all_columns=True)), None)
            if row is not None and not isinstance(row, BadRow) and "text" not in row.values and known in row.values:
                standard_error().print(f"text column: {known!r}, as in training", markup=False, soft_wrap=True)
                return known
    return "text"


def _read(
    texts: Sequence[str], source: Path | None, text_column: str, *, strict: bool, types: bool
) -> tuple[Survey, Iterator[Chunk]]:
    """Return what is known of the texts to label, and the texts."""
    from hgclr.bulk.inputs import Survey, line_chunks, read_chunks, survey
    from hgclr.data.readers import SUFFIXES, limited_lines
    from hgclr.errors import InputError, require_extra
    from hgclr.remote import open_file

    if source is not None and source.name.lower().endswith(SUFFIXES):
        return survey(source, text_column, strict=strict, types=types), read_chunks(source, text_column)
    schema = None
    if types:
        require_extra("pyarrow", extra="parquet", capability="Parquet")
        import pyarrow

        schema = pyarrow.schema([(text_column, pyarrow.string())])
    lines: Iterable[str] | Iterable[bytes] = texts
    if source is not None:
        try:
            lines = limited_lines(open_file(source), source)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=source) from None
    elif not texts:
        lines = limited_lines(sys.stdin.buffer, Path("standard input"))
        if sys.stdin.isatty():
            sys.stderr.write("one text a line; end with Ctrl-D\n")
    return Survey([text_column], 0, schema), line_chunks(lines, source or Path("standard input"), text_column)


def is_bulk(sources: Sequence[str], output: str | None, engine: str | None) -> bool:
    """Tell whether many files are meant, or at least a folder of results."""
    from hgclr.bulk.inputs import is_pattern
    from hgclr.remote import is_dir

    if not sources or list(sources) == ["-"]:
        return False
    if len(sources) > 1 or engine is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or is_dir(output))
    return into_folder or is_dir(sources[0]) or is_pattern(sources[0])


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
    return "; ".join(parts + _unlabelled(result.bad_rows, result.blank_rows))


def _unlabelled(bad: int, blank: int) -> list[str]:
    """Return what is to be said of rows that got no labels."""
    said = []
    if bad:
        said.append(f"{bad:,} row{'s' * (bad != 1)} without a usable text, see the column 'error'")
    if blank:
        said.append(f"{blank:,} empty or blank text{'s' * (blank != 1)} without a label")
    return said


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
