"""``hgclr predict``: label texts."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer

from hgclr.cli.options import Decode, Model, Paths, Sure, TextColumn, Threshold

__all__ = ["predict"]


def predict(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Texts to label: .jsonl, .csv, .tsv (also .gz) or .parquet with a text column,"
            " any other name: one text a line. '-' or nothing: lines from standard input.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JSON lines here instead of to standard output.")
    ] = None,
    text_column: TextColumn = "text",
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    sure: Sure = None,
    show: Annotated[
        Literal["auto", "tree", "json"],
        typer.Option(help="How to show results; auto: a tree in a terminal, else JSON."),
    ] = "auto",
) -> None:
    """Label texts: JSON lines in a pipe or file, a tree with probabilities in a terminal.

    Every output row is the input row with a field **predictions**: a list of {id, path, probability}, parents first.
    With --sure, labels that were left out for doubt are in a field **doubtful** where there are any.
    Input is streamed: memory stays flat however long it is.

    Example: **cat phrases.txt | hgclr predict runs/first/model --decode closure > labelled.jsonl**
    """
    from rich.console import Console

    from hgclr.errors import InputError

    if texts and source is not None:
        raise InputError("texts are given both as arguments and by --input", remedy="give one of them")
    from hgclr.cli.console import progress_bar
    from hgclr.cli.opening import open_classifier
    from hgclr.cli.rendering import prediction_tree
    from hgclr.files import atomic_file

    as_tree = show == "tree" or (show == "auto" and output is None and sys.stdout.isatty())
    rows = ({"text": text} for text in texts) if texts else _rows(source, text_column)
    column = "text" if texts else text_column
    classifier = open_classifier(model)
    waiting: deque[dict[str, Any]] = deque()  # rows that were read and not yet labelled: one window at most

    def read() -> Iterator[str]:
        for row in rows:
            waiting.append(row)
            yield row[column]

    with ExitStack() as stack:
        stream: IO[str] = sys.stdout
        if output is not None:
            path = stack.enter_context(atomic_file(output))
            stream = stack.enter_context(path.open("w", encoding="utf-8"))
        bar = stack.enter_context(progress_bar())
        bar.disable = bar.disable or as_tree or (output is None and sys.stdout.isatty())
        task = bar.add_task("texts", total=None)
        console = Console()
        for prediction in classifier.stream(read(), threshold=threshold, decode=decode, paths=paths, sure=sure):
            row = waiting.popleft()
            if as_tree:
                console.print(prediction_tree(row[column], prediction))
            else:
                labelled = {**row, **prediction.to_json()}
                stream.write(json.dumps(labelled, ensure_ascii=False, default=str) + "\n")
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
        yield from _lines(sys.stdin.buffer, Path("standard input"))
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
                yield from _lines(file, source)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=source) from error


def _lines(stream: IO[bytes], path: Path) -> Iterator[dict[str, Any]]:
    from hgclr.errors import InputError

    for number, line in enumerate(stream, 1):
        try:
            yield {"text": line.decode().rstrip("\r\n")}
        except UnicodeDecodeError as error:
            raise InputError("not UTF-8", path=path, line=number, remedy="save the file as UTF-8") from error
