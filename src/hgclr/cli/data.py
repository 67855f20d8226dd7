"""``hgclr data``: import, check and describe data folders; ``hgclr data prepare`` is in another file."""

from __future__ import annotations

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
    from hgclr.data.check import Statistics
    from hgclr.data.table_import import ImportResult


HELP = """Make data folders from tables or published corpora; check and describe them.

Next: **hgclr train my-data**
"""
app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)
app.add_typer(prepare.app, name="prepare")

Report = Annotated[
    Path | None,
    folder("Write report.html here, one page with tables and plots. Beside it: the plots, and stats.json."),
]
BAD_ROWS, LEVELS, TWINS = 10, 20, 10
"""Most bad rows, levels of the tree and near-twins that are listed."""


@app.command("import")
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Tables, or their URLs: .csv, .tsv, .jsonl (also .gz), .xlsx or .parquet; or a data folder. Of several"
            " files, those named train, dev (validation, valid, val) and test are these splits.",
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
    id_column: Annotated[str | None, option("Column with ids of the rows to keep.", "--id", metavar="COLUMN")] = None,
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
    seed: Annotated[int, option("Decides which text goes to which split.", min=0)] = 0,
    stratify: Annotated[
        bool,
        option(
            "Give every label the same share of each split (slow with thousands of labels), or draw at random.",
            "--stratify/--no-stratify",
        ),
    ] = True,
    json_file: JsonFile = None,
) -> None:
    """Make a data folder from your tables: CSV with any delimiter, Excel, JSON lines, Parquet.

    hgclr finds the columns and separators that you do not name, and reports them. It draws the label tree from the
    paths. Rows with the same text become one document with all their labels; rows that cannot be used are left out and
    listed. Train, dev and test are drawn so that every label has the same share of each, no text is in two of them, and
    every label has a document in train.

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
    from hgclr.data.folder_writer import CONTRADICTIONS, LEFT_OUT

    say, summary, layout = console.say, result.summary, result.layout
    names = ", ".join(map(repr, layout.labels))
    columns = [f"text in {layout.text!r}", f"levels in {names}" if layout.levels else f"labels in {names}"]
    if layout.path_separator is not None and not layout.levels:
        columns.append(f"{layout.path_separator!r} between the names of a path")
    if layout.label_separator is not None:
        columns.append(f"{layout.label_separator!r} between labels")
    if layout.id is not None:
        columns.append(f"ids in {layout.id!r}")
    say(f"read {result.rows:,} rows: {', '.join(columns)}")
    if layout.unread:
        say(f"not read: {', '.join(map(repr, layout.unread))}")
    levels = [len(level) for level in result.taxonomy.levels]
    say(f"{sum(levels):,} labels on {len(levels)} level{'s' * (len(levels) > 1)} ({', '.join(map(str, levels))})")
    if len(levels) == 1 and layout.path_separator is None and not layout.levels:
        say("note: no separator of names was found, so there is no tree; --path-separator gives one", "cyan")
    verb = "merged" if result.twins_merged else "warning: differ only in case or spaces (--merge-twins merges them)"
    for twins in result.twins[:TWINS]:
        say(f"{verb}: {twins.summary()}", "yellow")
    if len(result.twins) > TWINS:
        say(f"and {len(result.twins) - TWINS:,} more such labels", "yellow")
    if skipped := summary.left_out.total():
        say(f"skipped {skipped:,} row{'s' * (skipped > 1)}, all in {summary.output / LEFT_OUT}:", "yellow")
        for line in result.left_out:
            say(f"  {line}", "yellow")
    if result.merged:
        say(f"merged {result.merged:,} row{'s' * (result.merged > 1)} into others with the same text")
    if count := result.contradictions:
        what = f"{count:,} text{'s' * (count > 1)} with different labels in different rows"
        say(f"warning: {what}: a document has all of them, see {summary.output / CONTRADICTIONS}", "yellow")
    documents = summary.documents
    rows = [("split", "documents", "share", "labels without", "deviation")]
    for name, count in documents.items():
        missing = deviation = "as it was"
        if name in result.spread:
            missing, deviation = f"{result.spread[name][0]:,}", f"{result.spread[name][1]:.3%}"
        if count:
            rows.append((name, f"{count:,}", f"{count / sum(documents.values()):.1%}", missing, deviation))
    print_table(console, "", rows)
    say("deviation: between a label's share of the split and its share of all documents, on average", "dim")
    if count := result.shared_texts:
        texts = "text of a given split is" if count == 1 else "texts of given splits are"
        say(f"warning: {count:,} {texts} also in the others", "yellow")
    say(f"written: {summary.output}")
    say(f"next: hgclr data check {summary.output}\n      hgclr train {summary.output}")


@app.command()
@reading_options
def check(
    source: Folder,
    reading: Reading,
    output: Report = None,
    json_file: JsonFile = None,
    skip_bad_rows: Annotated[bool, option("Do not fail because of bad rows.", "--skip-bad-rows")] = False,
    bad_rows: Annotated[Path | None, file("Write every bad row with its reason to this file, as JSON lines.")] = None,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Read every row of a data folder and report what is in it and what is wrong with it.

    Finds rows that cannot be used, texts that occur several times within a split, across splits or with different
    labels, labels without a training document, and branches of the tree that no document uses.

    The exit code is 2 if a split is empty or, unless --skip-bad-rows is given, if a row is bad.

    Example: **hgclr data check my-data --output my-report**

    Next: **hgclr train my-data**
    """
    from rich.text import Text

    from hgclr.data.check import check as check_folder
    from hgclr.data.check import findings
    from hgclr.data.report import write_report
    from hgclr.presentation import check_report

    if output is not None:
        check_report(output, extra="data")
    data = reading.open(source, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with counting("rows") as progress:
        found = check_folder(data, bad_rows=bad_rows, progress=progress)
    write_result(json_file, found.to_json())
    console = results(json_file)
    rows = [("split", "documents", "bad", "labels/doc", "words/doc", "longest", "labels", "repeated")]
    for name, split in found.splits.items():
        means = f"{split.labels.mean:.2f}", f"{split.words.mean:.1f}"
        counts = f"{split.words.maximum:,}", f"{split.labels_used:,}", f"{split.repeated_texts:,}"
        rows.append((name, f"{split.documents:,}", f"{split.bad_rows:,}", *means, *counts))
    print_table(console, f"{len(found.taxonomy):,} labels, depth {found.taxonomy.depth}", rows)
    for kind, text in findings(found):
        colour = {"warning": "yellow", "note": "cyan"}[kind]
        console.print(Text(f"{kind}: ", colour).append(text, "default"), soft_wrap=True)
    if output is not None:
        print_written(write_report(output, source.resolve().name, found, checked=True)[:1], console)
    if found.empty_splits or (found.bad_rows and not skip_bad_rows):
        _print_failure(standard_error(), found, bad_rows)
        raise typer.Exit(2)


def _print_failure(console: Console, found: Statistics, bad_rows: Path | None) -> None:
    """List the first bad rows and the empty splits."""
    rows = [row for split in found.splits.values() for row in split.first_bad_rows][:BAD_ROWS]
    for row in rows:
        console.say(f"{row.path}:{row.number}: {row.reason}" + (f"; {row.remedy}" if row.remedy else ""))
    if (more := found.bad_rows - len(rows)) > 0:
        where = f"all are in {bad_rows}" if bad_rows else "--bad-rows FILE writes all of them"
        console.say(f"and {more:,} more; {where}")
    for name in found.empty_splits:
        console.say(f"{found.splits[name].path}: empty split: no good row")


@app.command()
@reading_options
def stats(
    source: Folder,
    reading: Reading,
    output: Report = None,
    json_file: JsonFile = None,
    skip_bad_rows: SkipBadRows = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Describe a data folder in numbers, beginning with the paper's Table 1.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors included. Words are
    separated by white space.

    Example: **hgclr data stats my-data --output my-report**
    """
    from rich.table import Table
    from rich.text import Text

    from hgclr.data.check import describe
    from hgclr.data.report import fact_rows, level_rows, split_rows, table1, write_report
    from hgclr.presentation import check_report

    if output is not None:
        check_report(output, extra="data")
    data = reading.open(source, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with counting("rows") as progress:
        found = describe(data, progress=progress)
    write_result(json_file, found.to_json())
    console, name, columns, levels = results(json_file), source.resolve().name, table1(found), level_rows(found)
    print_table(console, "", [("", *(title for _, title in columns)), (name, *(value for value, _ in columns))])
    console.print()
    print_table(console, "Splits: labels are those that occur, words those of a text", split_rows(found))
    console.print()
    title = f"Levels: largest, median, smallest are the documents of a label in {found.reference}"
    print_table(console, title, levels[: LEVELS + 1])
    if len(levels) > LEVELS + 1:
        console.say(f"and {len(levels) - LEVELS - 1:,} more levels: --json FILE writes all of them")
    console.print()
    grid = Table.grid(padding=(0, 2))
    for subject, text in fact_rows(found):
        grid.add_row(Text(subject, "dim"), text)
    console.print(grid)
    if output is not None:
        print_written(write_report(output, name, found, checked=False)[:1], console)
