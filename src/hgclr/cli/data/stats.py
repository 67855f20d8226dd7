"""``hgclr data stats``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import Folder, JsonFile, Reading, TaxonomyFile, reading_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from hgclr.data.statistics import Statistics

__all__ = ["stats"]

LEVELS = 20
"""How many levels of the tree are listed."""


@reading_options
def stats(
    folder: Folder,
    reading: Reading,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Count this encoder's tokens as well as words, and tell how many texts are longer than it reads:"
            " a name as for training, or a folder with its tokenizer.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="Tell also how many texts have more tokens than this. Needs --encoder."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html with tables and plots, one file that needs nothing else; beside it the plots as"
            " PNG, and stats.json.",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write plots here (PNG): labels per level, label frequency, lengths, labels per document.",
        ),
    ] = None,
    json_file: JsonFile = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Describe a data folder in numbers, first of all as the paper's Table 1 does.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors counted.
    A word is what stands between white space.

    Example: **hgclr data stats my-data --encoder all-MiniLM-L6-v2 --report my-report**
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar
    from hgclr.data.statistics import describe, statistics_json
    from hgclr.errors import InputError
    from hgclr.files import atomic_file

    if max_length is not None and encoder is None:
        raise InputError("--max-length counts the tokens of an encoder", remedy="add --encoder NAME")
    for output in (report, plots):
        if output is not None:
            from hgclr.data.report import check_output

            check_output(output)
    data = reading.open(folder, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        statistics = describe(
            data, encoder=encoder, max_length=max_length, progress=lambda rows: bar.advance(task, rows)
        )
    if json_file is not None:
        with atomic_file(json_file) as temporary:
            temporary.write_text(json.dumps(statistics_json(statistics), indent=2) + "\n", encoding="utf-8")
    console = Console(highlight=False)
    _print(console, folder.resolve().name, statistics)
    written: list[Path] = []
    if plots is not None:
        from hgclr.data.report import write_plots

        written += write_plots(plots, statistics)
    if report is not None:
        from hgclr.data.report import write_report

        written += write_report(report, folder.resolve().name, statistics)[:1]
    for file in written:
        console.print(f"written: {file}", markup=False, soft_wrap=True)


def _print(console: Console, name: str, statistics: Statistics) -> None:
    """Print the Table 1 row, then splits, levels and what else there is to say."""
    from rich.table import Table
    from rich.text import Text

    from hgclr.data.report import fact_rows, level_rows, split_rows, table1, token_rows

    columns = table1(statistics)
    _table(console, "", [("", *(name for _, name in columns)), (name, *(value for value, _ in columns))])
    _table(console, "Splits: labels are those that occur, words those of a text", split_rows(statistics))
    if statistics.encoder is not None:
        _table(console, f"Tokens of {statistics.encoder}", token_rows(statistics))
    levels = level_rows(statistics)
    title = f"Levels: largest, median, smallest are the documents of a label in {statistics.reference}"
    _table(console, title, levels[: LEVELS + 1])
    if len(levels) > LEVELS + 1:
        console.print(f"and {len(levels) - LEVELS - 1:,} more levels: --json FILE writes all of them")
    console.print()
    grid = Table.grid(padding=(0, 2))
    for subject, text in fact_rows(statistics):
        grid.add_row(Text(subject, "dim"), text)
    console.print(grid)


def _table(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table whose first row are the headings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if title:
        console.print()
        console.print(Text(title, "bold"))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    headings, *others = rows
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if number else "left")
    for row in others:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
