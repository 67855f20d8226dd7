"""``hgclr data``: import, split, check and describe data folders; ``hgclr data prepare`` has a file of its own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli import prepare
from hgclr.cli.console import (
    Console,
    counting,
    print_table,
    print_written,
    results,
    share_done,
    standard_error,
    write_result,
)
from hgclr.cli.options import (
    DataOutput,
    Folder,
    JsonFile,
    Reading,
    SkipBadRows,
    TaxonomyFile,
    file,
    folder,
    option,
    reading_options,
)
from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.data.check import CheckReport
    from hgclr.data.split import SplitResult
    from hgclr.data.statistics import Statistics
    from hgclr.data.table_import import ImportResult


HELP = """Make data folders from tables or published corpora; split, check and describe them.

Next: **hgclr train my-data**
"""
app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)
app.add_typer(prepare.app, name="prepare")

Seed = Annotated[int, option("Decides which text goes to which split.", min=0)]
Stratify = Annotated[
    bool,
    option(
        "Give every label the same share of each split (slow with thousands of labels), or draw at random.",
        "--stratify/--no-stratify",
    ),
]
BAD_ROWS, LEVELS, TWINS, CONTRADICTIONS, WIDTH = 10, 20, 10, 3, 60
"""How many bad rows, levels of the tree, near-twins and contradictions are listed, and how much of a text."""


@app.command("import")
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Tables, or their URLs: .csv, .tsv, .jsonl (also .gz), .xlsx or .parquet. Of several, those named"
            " train, dev (validation, valid, val) and test are these splits.",
        ),
    ],
    output: DataOutput,
    text: Annotated[str | None, option("Column with the text.", "--text", "--text-column", metavar="COLUMN")] = None,
    labels: Annotated[
        str | None,
        option(
            "Column with the labels, as paths or as names; or several columns, separated by commas.",
            "--labels",
            "--label-column",
            metavar="COLUMN",
        ),
    ] = None,
    levels: Annotated[
        str | None, option("Columns with the levels of one path, from the top down.", metavar="A,B,C")
    ] = None,
    id_column: Annotated[
        str | None, option("Column with the rows' own ids, which are kept.", "--id", metavar="COLUMN")
    ] = None,
    label_separator: Annotated[str | None, option("What separates several labels in a cell, such as ';'.")] = None,
    path_separator: Annotated[str | None, option("What separates the names of a path, such as '>'.")] = None,
    taxonomy: Annotated[
        Path | None, file("The label tree, if labels are names or ids; otherwise it is drawn from the paths.")
    ] = None,
    merge_twins: Annotated[
        bool, option("Make one label of those that differ only in case or spaces.", "--merge-twins")
    ] = False,
    dev: Annotated[str | None, option("Share for development, or a file; default: 0.1.", metavar="SHARE|FILE")] = None,
    test: Annotated[str | None, option("Share for testing, or a file; default: 0.1.", metavar="SHARE|FILE")] = None,
    seed: Seed = 0,
    stratify: Stratify = True,
    json_file: JsonFile = None,
) -> None:
    """Make a data folder from tables of your own: CSV with any delimiter, Excel, JSON lines, Parquet.

    Columns and separators that you do not name are found, and reported. The label tree is drawn from the paths. Rows
    with the same text become one document with all their labels; rows that cannot be used are left out and listed.
    Train, dev and test are drawn so that every label has the same share of each.

    Example: **hgclr data import tickets.xlsx --output my-data**

    Example: **hgclr data import tickets.csv --text Message --levels Area,Topic --output my-data**

    Next: **hgclr data check my-data**, then **hgclr train my-data**
    """
    from hgclr.data.layout import Layout
    from hgclr.data.table_import import import_tables
    from hgclr.remote import local

    if labels is not None and levels is not None:
        raise InputError("--labels and --levels are both given", remedy="give one of them")
    layout = Layout(
        text=text or "",
        labels=tuple(part.strip() for part in (levels or labels or "").split(",") if part.strip()),
        levels=levels is not None,
        id=id_column,
        label_separator=label_separator or None,
        path_separator=path_separator or None,
    )
    with share_done("rows") as progress:
        result = import_tables(
            [local(file) for file in files],
            output,
            layout=layout,
            taxonomy=None if taxonomy is None else local(taxonomy),
            merge=merge_twins,
            dev=_share_or_file("--dev", dev),
            test=_share_or_file("--test", test),
            seed=seed,
            stratify=stratify,
            progress=progress,
        )
    write_result(json_file, result.to_json())
    _print_import(results(json_file), result)


def _share_or_file(option: str, text: str | None) -> float | Path | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        from hgclr.remote import local

        if not (file := local(text)).is_file():
            raise InputError(f"{option} {text!r} is neither a share such as 0.1 nor a file") from None
        return file


def _print_import(console: Console, result: ImportResult) -> None:
    from hgclr.data.folder_writer import CONTRADICTIONS as CONTRADICTIONS_FILE
    from hgclr.data.folder_writer import LEFT_OUT

    say, summary = console.say, result.split.summary
    levels = [len(level) for level in result.taxonomy.levels]
    say(f"read {result.rows:,} rows: {_columns(result)}")
    if unread := ", ".join(map(repr, result.layout.unread)):
        hint = "" if result.layout.id else " (--id keeps a column as the documents' ids)"
        say(f"not read: {unread}{hint}")
    say(
        f"{sum(levels):,} labels on {len(levels)} level{'s' * (len(levels) > 1)}"
        + (f" ({', '.join(f'{count:,}' for count in levels)})" if len(levels) > 1 else "")
    )
    if len(levels) == 1 and result.layout.path_separator is None and not result.layout.levels:
        say("note: nothing separates names of a path, so there is no tree; --path-separator tells what does", "cyan")
    verb = "merged" if result.twins_merged else "warning: differ only in case or spaces"
    for twins in result.twins[:TWINS]:
        say(f"{verb}: {twins.summary()}", "yellow")
    if len(result.twins) > TWINS:
        say(f"and {len(result.twins) - TWINS:,} more such labels", "yellow")
    if result.twins and not result.twins_merged:
        say("--merge-twins makes one label of each", "yellow")
    if skipped := summary.left_out.total():
        say(f"skipped {skipped:,} row{'s' * (skipped > 1)}, all in {summary.output / LEFT_OUT}:", "yellow")
        for line in result.left_out:
            say(f"  {line}", "yellow")
    if result.merged:
        say(f"merged {result.merged:,} row{'s' * (result.merged > 1)} into others with the same text")
    if count := result.contradictions:
        say(
            f"warning: {count:,} text{'s' * (count > 1)} with different labels in different rows now"
            f" {'have' if count > 1 else 'has'} all of them, see {summary.output / CONTRADICTIONS_FILE}:",
            "yellow",
        )
        for text, rows in result.first_contradictions[:CONTRADICTIONS]:
            said = ", ".join(f"{'; '.join(labels)} ({where})" for where, labels in rows)
            say(f"  {text[:WIDTH]!r}: {said}", "yellow")
    _print_split(console, result.split, "")
    say(f"written: {summary.output}")
    say(f"next: hgclr data check {summary.output}\n      hgclr train {summary.output}")


def _columns(result: ImportResult) -> str:
    layout = result.layout
    parts = [f"text in {layout.text!r}"]
    names = ", ".join(map(repr, layout.labels))
    parts.append(f"levels in {names}" if layout.levels else f"labels in {names}")
    if layout.path_separator is not None and not layout.levels:
        parts.append(f"{layout.path_separator!r} between the names of a path")
    if layout.label_separator is not None:
        parts.append(f"{layout.label_separator!r} between labels")
    if layout.id is not None:
        parts.append(f"ids in {layout.id!r}")
    return ", ".join(parts)


@app.command()
@reading_options
def split(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A file of documents, or a data folder with a train split; or the URL of either."
        ),
    ],
    reading: Reading,
    output: DataOutput,
    dev: Annotated[float, option("Share for development; 0: none, or keep the folder's own.", min=0, max=1)] = 0.1,
    test: Annotated[float, option("Share for testing; 0: none, or keep the folder's own.", min=0, max=1)] = 0.1,
    seed: Seed = 0,
    stratify: Stratify = True,
    taxonomy: TaxonomyFile = None,
    skip_bad_rows: Annotated[
        bool, option("Leave out rows that cannot be used, and record them.", "--skip-bad-rows")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Split your own documents into train, dev and test.

    Every label gets the same share of each split, no text is in two splits, and every label has a document in train.
    Rows keep all their columns, and the new folder remembers how to read them.

    Example: **hgclr data split documents.jsonl --taxonomy labels.tsv --output my-data**

    Next: **hgclr data check my-data**
    """
    from hgclr.data.split import split_data
    from hgclr.remote import local

    with share_done("rows") as progress:
        result = split_data(
            local(source),
            output,
            dev=dev,
            test=test,
            seed=seed,
            stratify=stratify,
            taxonomy=taxonomy,
            skip_bad_rows=skip_bad_rows,
            progress=progress,
            **asdict(reading),
        )
    write_result(json_file, result.to_json())
    console = results(json_file)
    _print_split(console, result, f"{result.labels:,} labels")
    prepare.show_summary(result.summary, console)


def _print_split(console: Console, result: SplitResult, title: str) -> None:
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
    print_table(console, title, rows)
    console.say("deviation: between a label's share of the split and its share of all documents, on average", "dim")
    if count := result.shared_texts:
        texts = "text of the split that was kept is" if count == 1 else "texts of the splits that were kept are"
        console.print(f"[yellow]warning:[/] {count:,} {texts} also in the others", soft_wrap=True)


@app.command()
@reading_options
def check(
    source: Folder,
    reading: Reading,
    output: Annotated[
        Path | None,
        folder(
            "Write report.html here, one page that needs nothing else, with findings, statistics and plots. Beside it:"
            " the plots as PNG, check.json and stats.json."
        ),
    ] = None,
    json_file: JsonFile = None,
    skip_bad_rows: Annotated[bool, option("Do not fail because of bad rows.", "--skip-bad-rows")] = False,
    bad_rows: Annotated[Path | None, file("Write every bad row with its reason to this file, as JSON lines.")] = None,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Read every row of a data folder and report what is in it and what is wrong with it.

    Looks for rows that cannot be used, texts that occur several times within a split, across splits or with different
    labels, labels without a training document, and branches of the tree that no document uses.

    The exit code is 2 if a split is empty or, unless --skip-bad-rows is given, if a row is bad.

    Example: **hgclr data check my-data --output my-report**

    Next: **hgclr train my-data**
    """
    from hgclr.data.check import check as check_folder
    from hgclr.data.report import check_report, write_report

    if output is not None:
        check_report(output)
    data = reading.open(source, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with counting("rows") as progress:
        found = check_folder(data, bad_rows=bad_rows, progress=progress)
    write_result(json_file, found.to_json())
    console = results(json_file)
    _print_check(console, found)
    if output is not None:
        print_written(write_report(output, source.resolve().name, found.statistics, found)[:1], console)
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
        console.say(line)


@app.command()
@reading_options
def stats(
    source: Folder,
    reading: Reading,
    encoder: Annotated[
        str | None,
        option(
            "Also count this encoder's tokens, and texts that are longer than it reads: a name as for training, or"
            " a folder with its tokenizer. Nothing is downloaded.",
            metavar="NAME",
        ),
    ] = None,
    max_length: Annotated[
        int | None, option("With --encoder: also count the texts with more tokens than this.", min=1)
    ] = None,
    output: Annotated[
        Path | None,
        folder(
            "Write report.html here, one page that needs nothing else, with tables and plots. Beside it: the plots as"
            " PNG, and stats.json."
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        folder("Write only the plots here, as PNG: labels per level, label frequency, lengths, labels per document."),
    ] = None,
    json_file: JsonFile = None,
    skip_bad_rows: SkipBadRows = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Describe a data folder in numbers, beginning with the paper's Table 1.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors included. Words are
    separated by white space.

    Example: **hgclr data stats my-data --encoder all-MiniLM-L6-v2 --output my-report**
    """
    from hgclr.data.report import check_report, write_plots, write_report
    from hgclr.data.statistics import describe, statistics_json

    if max_length is not None and encoder is None:
        raise InputError("--max-length counts the tokens of an encoder", remedy="add --encoder NAME")
    for place in (output, plots):
        if place is not None:
            check_report(place)
    data = reading.open(source, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with counting("rows") as progress:
        statistics = describe(data, encoder=encoder, max_length=max_length, progress=progress)
    write_result(json_file, statistics_json(statistics))
    console, name = results(json_file), source.resolve().name
    _print_statistics(console, name, statistics)
    if plots is not None:
        print_written(write_plots(plots, statistics), console)
    if output is not None:
        print_written(write_report(output, name, statistics)[:1], console)


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
