"""``hgclr data check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import Folder, JsonFile, Reading, TaxonomyFile, reading_options

if TYPE_CHECKING:
    from rich.console import Console

    from hgclr.data.check import CheckReport

__all__ = ["check"]

SHOWN = 10
"""How many bad rows are listed."""


@reading_options
def check(
    folder: Folder,
    reading: Reading,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html with findings, statistics and plots, one file that needs nothing else; beside it"
            " the plots as PNG, check.json and stats.json.",
        ),
    ] = None,
    json_file: JsonFile = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Bad rows are no failure.")] = False,
    bad_rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every bad row with its reason here (JSON lines)."),
    ] = None,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Read every row of a data folder and report what is in it and what is wrong with it.

    Looks for rows that cannot be used, texts that stand several times, within a split, across splits and with different
    labels, labels without a training document, and branches of the tree that no document uses.

    Exit code 2 if a split is empty or, unless --skip-bad-rows is given, if a row is bad.

    Example: **hgclr data check my-data --report my-report**
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar, standard_error
    from hgclr.data.check import check as check_folder
    from hgclr.files import atomic_file

    if report is not None:
        from hgclr.data.report import check_output

        check_output(report)
    data = reading.open(folder, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        found = check_folder(data, bad_rows=bad_rows, progress=lambda rows: bar.advance(task, rows))
    if json_file is not None:
        with atomic_file(json_file) as temporary:
            temporary.write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
    console = Console()
    _print_report(found, console)
    if report is not None:
        from hgclr.data.report import write_report

        written = write_report(report, folder.resolve().name, found.statistics, found)
        console.print(f"written: {written[0]}", highlight=False, markup=False, soft_wrap=True)
    if found.empty_splits or (found.bad_rows and not skip_bad_rows):
        _print_failure(found, standard_error(), bad_rows)
        raise typer.Exit(2)


def _print_report(report: CheckReport, console: Console) -> None:
    """Print a table of the splits, then what is worth knowing."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from hgclr.data.check import findings

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
    for found in findings(report):
        colour = {"warning": "yellow", "note": "cyan"}[found.kind]
        console.print(f"[{colour}]{found.kind}:[/] {escape(found.text)}", highlight=False, soft_wrap=True)


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
