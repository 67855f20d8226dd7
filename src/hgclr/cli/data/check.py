"""``hgclr data check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import AddAncestors, JsonFile, LabelColumn, LabelSeparator, PathSeparator, TextColumn

if TYPE_CHECKING:
    from rich.console import Console

    from hgclr.data.checking import CheckReport

__all__ = ["check"]

SHOWN = 10
"""How many bad rows and unused labels are listed."""


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with train, dev, test and a taxonomy file.")],
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Bad rows are no failure.")] = False,
    bad_rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every bad row with its reason here (JSON lines)."),
    ] = None,
    add_ancestors: AddAncestors = False,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "labels",
    label_separator: LabelSeparator = ";",
    path_separator: PathSeparator = " > ",
    taxonomy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The label tree, if it is not in the folder.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Read every row of a data folder and report what is in it and what is wrong with it.

    Exit code 2 if a split is empty or, unless --skip-bad-rows is given, if a row is bad.
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar, standard_error
    from hgclr.data.checking import check as check_folder
    from hgclr.data.folder import DataFolder
    from hgclr.files import atomic_file

    data = DataFolder(
        folder,
        taxonomy=taxonomy,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        path_separator=path_separator,
        add_ancestors=add_ancestors,
        skip_bad_rows=skip_bad_rows,
    )
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        report = check_folder(data, bad_rows=bad_rows, progress=lambda rows: bar.advance(task, rows))
    if json_file is not None:
        with atomic_file(json_file) as temporary:
            temporary.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    _print_report(report, Console())
    if report.empty_splits or (report.bad_rows and not skip_bad_rows):
        _print_failure(report, standard_error(), bad_rows)
        raise typer.Exit(2)


def _print_report(report: CheckReport, console: Console) -> None:
    """Print a table of the splits, then what is worth a warning."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{report.labels:,} labels, depth {report.depth}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("split")
    for heading in ("documents", "bad", "labels/doc", "words/doc", "longest", "labels", "repeated"):
        table.add_column(heading, justify="right")
    for name, split in report.splits.items():
        table.add_row(
            name,
            f"{split.documents:,}",
            f"{split.bad_rows:,}",
            f"{split.labels_per_document:.2f}",
            f"{split.words_per_text:.1f}",
            f"{split.longest_text:,}",
            f"{split.labels_used:,}",
            f"{split.repeated_texts:,}",
        )
    console.print(table)
    for (first, second), count in report.shared_texts.items():
        texts = "text is" if count == 1 else "texts are"
        _warn(console, f"{count:,} {texts} in both {first} and {second}")
    if count := len(report.unused_labels):
        listed = ", ".join(report.unused_labels[:SHOWN]) + (", …" if count > SHOWN else "")
        _warn(console, f"{count:,} label{'s' * (count > 1)} without a document in train: {listed}")


def _print_failure(report: CheckReport, console: Console, bad_rows: Path | None) -> None:
    """List the first bad rows, and say what can be done."""
    rows = [row for split in report.splits.values() for row in split.first_bad_rows]
    for row in rows[:SHOWN]:
        line = f"{row.path}:{row.number}: {row.reason}" + (f"; {row.remedy}" if row.remedy else "")
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if (more := report.bad_rows - len(rows[:SHOWN])) > 0:
        where = f"; all are in {bad_rows}" if bad_rows else "; --bad-rows FILE writes all of them"
        console.print(f"and {more:,} more{where}", highlight=False, markup=False, soft_wrap=True)
    for name in report.empty_splits:
        path = report.splits[name].path
        console.print(f"{path}: empty split: no good row", highlight=False, markup=False, soft_wrap=True)


def _warn(console: Console, text: str) -> None:
    """Print a warning line."""
    from rich.markup import escape

    console.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)
