"""``hgclr data``: prepare, split, check and describe data folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli import prepare
from hgclr.cli.options import Folder, JsonFile, Reading, SkipBadRows, TaxonomyFile, reading_options

if TYPE_CHECKING:
    from rich.console import Console

    from hgclr.data.check import CheckReport
    from hgclr.data.split import SplitResult
    from hgclr.data.statistics import Statistics

__all__ = ["app", "check", "split", "stats"]

app = typer.Typer(no_args_is_help=True, help="Prepare, split, check and describe data folders.")
app.add_typer(prepare.app, name="prepare")
BAD_ROWS, LEVELS = 10, 20
"""How many bad rows, and how many levels of the tree, are listed."""


@app.command()
@reading_options
def split(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A file of documents, or a data folder with a train split.")
    ],
    reading: Reading,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Data folder to write; an earlier build is replaced.")],
    dev: Annotated[
        float, typer.Option(min=0, max=1, help="Share for development; 0 for none, or to keep the folder's own.")
    ] = 0.1,
    test: Annotated[
        float, typer.Option(min=0, max=1, help="Share for testing; 0 for none, or to keep the folder's own.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Decides which text goes to which split.")] = 0,
    stratify: Annotated[
        bool,
        typer.Option(
            "--stratify/--no-stratify",
            help="Give every label the same share in each split; slow with thousands of labels. Otherwise at random.",
        ),
    ] = True,
    taxonomy: TaxonomyFile = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and record them.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Split your own documents into train, dev and test.

    Every label gets the same share of each split, the same text is never in two splits, and every label has a document
    in train. Rows keep all their columns; read the new folder with the same column options.
    """
    from hgclr.cli.console import Console, progress_bar
    from hgclr.data.split import split_data

    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
        result = split_data(
            source,
            output,
            dev=dev,
            test=test,
            seed=seed,
            stratify=stratify,
            taxonomy=taxonomy,
            skip_bad_rows=skip_bad_rows,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **asdict(reading),
        )
    _write_json(json_file, result.to_json())
    _print_split(Console(highlight=False), result)
    prepare.show_summary(result.summary)


def _print_split(console: Console, result: SplitResult) -> None:
    documents = result.summary.documents
    rows = [("split", "documents", "share", "labels without", "deviation")]
    for name, count in documents.items():
        if name in result.deviation:
            missing, deviation = f"{result.labels_without[name]:,}", f"{result.deviation[name]:.3%}"
        elif count:
            missing = deviation = "as it was"
        else:
            continue
        rows.append((name, f"{count:,}", f"{count / sum(documents.values()):.1%}", missing, deviation))
    _print_table(console, f"{result.labels:,} labels", rows)
    note = "deviation: between a label's share of the split and its share of all documents, on average"
    console.print(note, style="dim", soft_wrap=True)
    if count := result.shared_texts:
        texts = "text of the split that was kept is" if count == 1 else "texts of the splits that were kept are"
        console.print(f"[yellow]warning:[/] {count:,} {texts} also in the others", soft_wrap=True)


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
    from hgclr.cli.console import Console, progress_bar, standard_error
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
    _print_table(console, f"{len(taxonomy):,} labels, depth {taxonomy.depth}", rows)
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
            help="Count this encoder's tokens as well as words, and tell how many texts are longer than it reads:"
            " a name as for training, or a folder with its tokenizer. Nothing is downloaded.",
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
    skip_bad_rows: SkipBadRows = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Describe a data folder in numbers, first of all as the paper's Table 1 does.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors counted.
    A word is what stands between white space.

    Example: **hgclr data stats my-data --encoder all-MiniLM-L6-v2 --report my-report**
    """
    from hgclr.cli.console import Console, progress_bar
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
    _print_table(console, "", [("", *(name for _, name in columns)), (name, *(value for value, _ in columns))])
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
        _print_table(console, title, rows)
    if len(levels) > LEVELS + 1:
        console.print(f"and {len(levels) - LEVELS - 1:,} more levels: --json FILE writes all of them")
    console.print()
    grid = Table.grid(padding=(0, 2))
    for subject, text in fact_rows(statistics):
        grid.add_row(Text(subject, "dim"), text)
    console.print(grid)


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table whose first row holds the headings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if title:
        console.print(Text(title, "bold"))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    headings, *others = rows
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if number else "left")
    for row in others:
        table.add_row(*map(Text, row))
    console.print(table)


def _write_json(path: Path | None, value: object) -> None:
    from hgclr.files import write_json

    if path is not None:
        write_json(path, value)
