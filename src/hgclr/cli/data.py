"""``hgclr data``: import, prepare, split, check and describe data folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli import own_data, prepare
from hgclr.cli.console import Console, print_table, progress_bar, standard_error
from hgclr.cli.options import Folder, JsonFile, Reading, SkipBadRows, TaxonomyFile, reading_options

if TYPE_CHECKING:
    from hgclr.data.check import CheckReport
    from hgclr.data.statistics import Statistics

__all__ = ["app", "check", "stats"]

app = typer.Typer(no_args_is_help=True, help="Import, prepare, split, check and describe data folders.")
app.add_typer(prepare.app, name="prepare")
BAD_ROWS, LEVELS = 10, 20
"""How many bad rows, and how many levels of the tree, are listed."""
app.command("import")(own_data.import_files)
app.command()(own_data.split)


@app.command()
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
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Do not fail because of bad rows.")] = False,
    bad_rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every bad row with its reason here (JSON lines)."),
    ] = None,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Read every row of a data folder and report what is in it and what is wrong with it.

    Looks for rows that cannot be used, texts that occur several times within a split, across splits or with different
    labels, labels without a training document, and branches of the tree that no document uses.

    Exit code 2 if a split is empty or, unless --skip-bad-rows is given, if a row is bad.

    Example: **hgclr data check my-data --report my-report**
    """
    from hgclr.data.check import check as check_folder

    if report is not None:
        from hgclr.data.report import check_report

        check_report(report)
    data = reading.open(folder, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        found = check_folder(data, bad_rows=bad_rows, progress=lambda rows: bar.advance(task, rows))
    _write_json(json_file, found.to_json())
    console = Console(highlight=False)
    _print_check(console, found)
    if report is not None:
        from hgclr.data.report import write_report

        written = write_report(report, folder.resolve().name, found.statistics, found)
        console.print(f"written: {written[0]}", markup=False, soft_wrap=True)
    if found.empty_splits or (found.bad_rows and not skip_bad_rows):
        _print_failure(standard_error(), found, bad_rows)
        raise typer.Exit(2)


def _print_check(console: Console, report: CheckReport) -> None:
    from rich.text import Text

    from hgclr.data.check import findings

    rows = [("split", "documents", "bad", "labels/doc", "words/doc", "longest", "labels", "repeated")]
    rows += [
        (
            name,
            f"{split.documents:,}",
            f"{split.bad_rows:,}",
            f"{split.labels.mean:.2f}",
            f"{split.words.mean:.1f}",
            f"{split.words.maximum:,}",
            f"{split.labels_used:,}",
            f"{split.repeated_texts:,}",
        )
        for name, split in report.splits.items()
    ]
    taxonomy = report.statistics.taxonomy
    print_table(console, f"{len(taxonomy):,} labels, depth {taxonomy.depth}", rows)
    for found in findings(report):
        colour = {"warning": "yellow", "note": "cyan"}[found.kind]
        console.print(Text(f"{found.kind}: ", colour).append(found.text, "default"), soft_wrap=True)


def _print_failure(console: Console, report: CheckReport, bad_rows: Path | None) -> None:
    """List the first bad rows, and say what can be done."""
    rows = [row for split in report.splits.values() for row in split.first_bad_rows]
    lines = [
        f"{row.path}:{row.number}: {row.reason}" + (f"; {row.remedy}" if row.remedy else "") for row in rows[:BAD_ROWS]
    ]
    if (more := report.bad_rows - len(lines)) > 0:
        where = f"all are in {bad_rows}" if bad_rows else "--bad-rows FILE writes all of them"
        lines.append(f"and {more:,} more; {where}")
    lines += [f"{report.splits[name].path}: empty split: no good row" for name in report.empty_splits]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


@app.command()
@reading_options
def stats(
    folder: Folder,
    reading: Reading,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Count this encoder's tokens as well as words, and report how many texts are longer than it reads:"
            " a name as for training, or a folder with its tokenizer. Nothing is downloaded.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="Also report how many texts have more tokens than this. Needs --encoder."),
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
    skip_bad_rows: SkipBadRows = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Describe a data folder in numbers, beginning with the paper's Table 1.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors counted.
    Words are separated by white space.

    Example: **hgclr data stats my-data --encoder all-MiniLM-L6-v2 --report my-report**
    """
    from hgclr.data.statistics import describe, statistics_json
    from hgclr.errors import InputError

    if max_length is not None and encoder is None:
        raise InputError("--max-length counts the tokens of an encoder", remedy="add --encoder NAME")
    for output in (report, plots):
        if output is not None:
            from hgclr.data.report import check_report

            check_report(output)
    data = reading.open(folder, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        statistics = describe(
            data, encoder=encoder, max_length=max_length, progress=lambda rows: bar.advance(task, rows)
        )
    _write_json(json_file, statistics_json(statistics))
    console = Console(highlight=False)
    name = folder.resolve().name
    _print_statistics(console, name, statistics)
    written: list[Path] = []
    if plots is not None:
        from hgclr.data.report import write_plots

        written += write_plots(plots, statistics)
    if report is not None:
        from hgclr.data.report import write_report

        written += write_report(report, name, statistics)[:1]
    for file in written:
        console.print(f"written: {file}", markup=False, soft_wrap=True)


def _print_statistics(console: Console, name: str, statistics: Statistics) -> None:
    """Print the row of Table 1, then splits, levels and what else there is to say."""
    from rich.table import Table
    from rich.text import Text

    from hgclr.data.report import fact_rows, level_rows, split_rows, table1, token_rows

    columns = table1(statistics)
    print_table(console, "", [("", *(name for _, name in columns)), (name, *(value for value, _ in columns))])
    levels = level_rows(statistics)
    tables = [
        ("Splits: labels are those that occur, words those of a text", split_rows(statistics)),
        (
            f"Levels: largest, median, smallest are the documents of a label in {statistics.reference}",
            levels[: LEVELS + 1],
        ),
    ]
    if statistics.encoder is not None:
        tables.insert(1, (f"Tokens of {statistics.encoder}", token_rows(statistics)))
    for title, rows in tables:
        console.print()
        print_table(console, title, rows)
    if len(levels) > LEVELS + 1:
        console.print(f"and {len(levels) - LEVELS - 1:,} more levels: --json FILE writes all of them")
    console.print()
    grid = Table.grid(padding=(0, 2))
    for subject, text in fact_rows(statistics):
        grid.add_row(Text(subject, "dim"), text)
    console.print(grid)


def _write_json(path: Path | None, value: object) -> None:
    from hgclr.files import write_json

    if path is not None:
        write_json(path, value)
