"""``hgclr data``: import, prepare, check and describe data folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    Data,
    DataOutput,
    Encoding,
    JsonFile,
    Reading,
    Seed,
    SkipBadRows,
    Table,
    TaxonomyFile,
    file,
    folder,
    option,
    reading_options,
    table_options,
)
from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.data.folder import CorpusSummary
    from hgclr.data.table_import import ImportResult

HELP = """Make data folders from tables or published corpora; check and describe them.

Example: **hgclr data import tickets.csv --output my-data**

Next: **hgclr train my-data**
"""
PREPARE_HELP = """Convert a published corpus to a data folder.

hgclr downloads nothing: give the publisher's files. ICD-10-CM needs no files; it is in a Python package.

Example: **hgclr data prepare icd10cm --output data/icd10cm**

Next: **hgclr data check data/icd10cm**
"""
app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)
prepare_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=PREPARE_HELP)
app.add_typer(prepare_app, name="prepare")

Report = Annotated[Path | None, folder("Write report.html here, one page with tables and plots, and stats.json.")]
SHOWN = 10
"""Limit on the listed bad rows and similar labels."""


@app.command("import")
@table_options
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Tables or their URLs: .csv, .tsv, .jsonl (also .gz), .xlsx, .parquet, or a data folder. Files named"
            " train, dev and test become these splits.",
        ),
    ],
    output: DataOutput,
    table: Table,
    taxonomy: Annotated[Path | None, file("The label tree; default: built from the paths.")] = None,
    keep_twins: Annotated[bool, option("Keep labels that differ only in case or spaces.", "--keep-twins")] = False,
    keep_placeholders: Annotated[
        bool, option("Keep texts that say nothing or recur with many labels.", "--keep-placeholders")
    ] = False,
    ids_from: Annotated[
        Path | None,
        option(
            "Keep the ids of this tree, data folder or model; default: those of an earlier import in --output.",
            metavar="PATH",
        ),
    ] = None,
    changes: Annotated[Path | None, file("Map from its labels to the new ones: lines 'old TAB new', or JSON.")] = None,
    dev: Annotated[str | None, option("Share for dev, or a file; default: 0.1.", metavar="SHARE|FILE")] = None,
    test: Annotated[str | None, option("Share for test, or a file; default: 0.1.", metavar="SHARE|FILE")] = None,
    seed: Seed = 0,
    no_stratify: Annotated[bool, option("Draw splits at random: faster with many labels.", "--no-stratify")] = False,
    encoding: Encoding = None,
    skip_bad_rows: Annotated[bool, option("Leave out bad rows, however many.", "--skip-bad-rows")] = False,
    json_file: JsonFile = None,
) -> None:
    """Make a data folder from your tables: CSV with any delimiter, Excel, JSON lines, Parquet.

    hgclr detects the columns and separators that you do not give. Rows with the same text become one document with all
    their labels. Unusable rows are skipped and listed; if they are more than 1 %, hgclr stops unless you give
    --skip-bad-rows. Placeholders such as n/a are left out and listed. Labels that differ only in case or spaces are
    merged. A label keeps its id if you import a changed table into the same folder. Splits are stratified: every label
    has the same share in each split and a document in train. No text is in two splits.

    Example: **hgclr data import tickets.csv --text Message --levels Area,Topic --output my-data**

    Next: **hgclr data check my-data**
    """
    from hgclr.data.table_import import import_tables
    from hgclr.remote import local

    with share_done("rows") as progress:
        result = import_tables(
            [local(file) for file in files],
            output,
            layout=table.layout,
            taxonomy=None if taxonomy is None else local(taxonomy),
            merge=not keep_twins,
            keep_placeholders=keep_placeholders,
            ids_from=None if ids_from is None else local(ids_from),
            changes=None if changes is None else local(changes),
            dev=_share_or_file("--dev", dev),
            test=_share_or_file("--test", test),
            seed=seed,
            stratify=not no_stratify,
            encoding=encoding,
            skip_bad_rows=skip_bad_rows,
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
            raise InputError(
                f"{option} {text!r} is neither a share nor a file", remedy="give for example 0.1"
            ) from None
        return file


def _print_import(console: Console, result: ImportResult) -> None:
    from hgclr.cli.taxonomy import print_changes
    from hgclr.data.folder import CONTRADICTIONS, LEFT_OUT

    say, summary, layout = console.say, result.summary, result.layout
    read = {"text": layout.text, "levels" if layout.levels else "labels": ", ".join(layout.labels), "ids": layout.id}
    read |= {"separator of names": layout.path_separator, "separator of labels": layout.label_separator}
    read["encoding"] = ", ".join(dict.fromkeys(result.encodings.values()))
    read["not read"] = ", ".join(layout.unread)
    say(f"read {result.rows:,} rows; " + ", ".join(f"{name}: {value!r}" for name, value in read.items() if value))
    levels = [len(level) for level in result.taxonomy.levels]
    say(f"labels: {sum(levels):,}; by level: {', '.join(map(str, levels))}")
    if len(levels) == 1 and layout.path_separator is None and not layout.levels:
        say("note: found no separator of names, so the tree has one level; give one with --path-separator", "cyan")
    if result.twins:
        verb = "merged (keep them apart with --keep-twins)" if result.twins_merged else "kept apart"
        say(f"labels that differ only in case or spaces, {verb}: {len(result.twins):,}", "yellow")
    shown = [f"  {twins.summary()}" for twins in result.twins[:SHOWN]]
    more = [f"  and {len(result.twins) - SHOWN:,} more"] if len(result.twins) > SHOWN else []
    for line in (*shown, *more):
        say(line, "yellow")
    if result.changes:
        say("changes from the earlier label tree:", "bold")
        print_changes(console, result.changes)
    placeholders = result.placeholders.total()
    if skipped := summary.left_out.total() - placeholders:
        say(f"rows skipped: {skipped:,}, see {summary.output / LEFT_OUT}", "yellow")
        for line in result.left_out:
            say(f"  {line}", "yellow")
    if placeholders:
        what = f"rows with placeholders for texts, skipped (keep them with --keep-placeholders): {placeholders:,}"
        say(what, "yellow")
        for name, count in result.placeholders.most_common(SHOWN):
            say(f"  {count:,} rows: {name}", "yellow")
        if (rest := len(result.placeholders) - SHOWN) > 0:
            say(f"  and {rest:,} more, see {summary.output / LEFT_OUT}", "yellow")
    if result.merged:
        say(f"rows merged into others with the same text: {result.merged:,}")
    if count := result.contradictions:
        say(f"warning: texts with different labels: {count:,}, see {summary.output / CONTRADICTIONS}", "yellow")
    if count := result.shared_texts:
        say(f"warning: texts in several of the given splits: {count:,}", "yellow")
    total, rows = sum(summary.documents.values()), []
    for name, count in summary.documents.items():
        missing = deviation = "given"
        if name in result.spread:
            missing, deviation = f"{result.spread[name][0]:,}", f"{result.spread[name][1]:.3%}"
        if count:
            rows.append((name, f"{count:,}", f"{count / total:.1%}", missing, deviation))
    caption = "deviation: mean difference between a label's share in the split and in all documents"
    print_table(console, ("split", "documents", "share", "labels without", "deviation"), rows, caption=caption)
    print_written([summary.output], console)
    say(f"next: hgclr data check {summary.output}\n      hgclr train {summary.output}")


@app.command()
@table_options
def add(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Data folder with a train split.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Review files or other tables, or their URLs.")
    ],
    table: Table,
    json_file: JsonFile = None,
) -> None:
    """Add rows of tables to the train split of a data folder, such as the review file that you filled in.

    Tables are those of hgclr data import. Each label must be in the folder's tree: give its **id**, its **name** or its
    **path**, "A > B". In the column **label** of a review file you may also write **1**, **2** or **3** for a suggested
    path; separate several labels by ";". Rows without a label are not added.

    A text that is already in train gets the new labels in place of the old ones. Texts in dev or test are not added;
    these splits do not change. Train must be JSON lines, as **hgclr data import** writes them.

    Example: **hgclr data add my-data review.xlsx**

    Next: **hgclr train my-data --output runs/second**
    """
    from hgclr.data.adding import add_tables
    from hgclr.remote import local

    result = add_tables(source, [local(file) for file in files], layout=table.layout)
    write_result(json_file, result.to_json())
    console = results(json_file)
    console.say(f"read {result.rows:,} rows; without a label, not added: {result.unlabelled:,}")
    if count := len(result.held_out):
        console.say(f"rows whose text is in dev or test, not added: {count:,}", "yellow")
        for place in result.held_out[:SHOWN]:
            console.say(f"  {place}", "yellow")
    if count := result.contradictions:
        console.say(f"warning: texts with different labels in several rows, all added: {count:,}", "yellow")
    counts = f"{result.added:,} added, {result.corrected:,} corrected, {result.unchanged:,} had these labels already"
    console.say(f"documents in train: {counts}")
    if result.added or result.corrected:
        print_written([result.train], console)
        console.say(f"next: hgclr data check {source}\n      hgclr train {source} --output runs/NAME")


@prepare_app.command()
def icd10cm(
    output: DataOutput,
    levels: Annotated[int, option("Number of levels, 1 to 7: chapters, blocks, categories and so on.", min=1)] = 2,
    seed: Seed = 0,
) -> None:
    """ICD-10-CM, the code book of diagnoses: wordings of diagnoses with chapter and block.

    It is in the package simple-icd-10-cm: run pip install -c constraints.txt '.[icd10cm]' in the checkout of hgclr.

    Example: **hgclr data prepare icd10cm --output data/icd10cm**

    Next: **hgclr train data/icd10cm**
    """
    from hgclr.data.icd10cm import build_icd10cm

    prepare("chapters", build_icd10cm, output, levels=levels, seed=seed)


def prepare(unit: str, build: Callable[..., CorpusSummary], *arguments: object, **options: Any) -> Path:
    """Build a corpus with a progress bar, print the numbers of written and skipped documents, and return its folder.

    ``unit`` names the unit of the progress; for megabytes, ``build`` reports bytes.
    """
    from hgclr.data.folder import LEFT_OUT

    with share_done(unit, 10**6 if unit == "megabytes" else 1) as progress:
        summary = build(*arguments, progress=progress, **options)
    counts = ", ".join(f"{split} {count:,}" for split, count in summary.documents.items() if count)
    Console().say(f"wrote {summary.output}: {counts}")
    for reason, count in summary.left_out.most_common():
        line = f"skipped {count:,} document{'s' * (count > 1)}: {reason}; see {summary.output / LEFT_OUT}"
        standard_error().say(line, "yellow")
    return summary.output


@app.command()
@reading_options
def check(
    source: Data,
    reading: Reading,
    output: Report = None,
    json_file: JsonFile = None,
    skip_bad_rows: Annotated[bool, option("Exit with 0 in spite of bad rows.", "--skip-bad-rows")] = False,
    bad_rows: Annotated[Path | None, file("Write all bad rows with their reasons here, as JSON lines.")] = None,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Check every row of a data folder, and report its content and its faults.

    Finds bad rows, repeated texts, contradicting labels, labels without a training document, and unused branches. The
    exit code is 2 if a split is empty or, without --skip-bad-rows, if a row is bad.

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
    console, rows = results(json_file), []
    for name, split in found.splits.items():
        means = f"{split.labels.mean:.2f}", f"{split.words.mean:.1f}"
        counts = f"{split.words.maximum:,}", f"{split.labels_used:,}", f"{split.repeated_texts:,}"
        rows.append((name, f"{split.documents:,}", f"{split.bad_rows:,}", *means, *counts))
    headings = ("split", "documents", "bad", "labels/doc", "words/doc", "longest", "labels", "repeated")
    print_table(console, headings, rows, title=f"{len(found.taxonomy):,} labels, depth {found.taxonomy.depth}")
    for kind, text in findings(found):
        colour = {"warning": "yellow", "note": "cyan"}[kind]
        console.print(Text(f"{kind}: ", colour).append(text, "default"), soft_wrap=True)
    if output is not None:
        print_written(write_report(output, source.resolve().name, found, checked=True)[:1], console)
    if not found.empty_splits and (skip_bad_rows or not found.bad_rows):
        return
    errors = standard_error()
    first = [row for split in found.splits.values() for row in split.first_bad_rows][:SHOWN]
    for row in first:
        errors.say(f"{row.path}:{row.number}: {row.reason}" + (f"; {row.remedy}" if row.remedy else ""))
    if (more := found.bad_rows - len(first)) > 0:
        where = f"all are in {bad_rows}" if bad_rows else "write all to a file with --bad-rows FILE"
        errors.say(f"and {more:,} more; {where}")
    for name in found.empty_splits:
        errors.say(f"{found.splits[name].path}: the split is empty: it has no good row")
    raise typer.Exit(2)


@app.command()
@reading_options
def stats(
    source: Data,
    reading: Reading,
    output: Report = None,
    json_file: JsonFile = None,
    skip_bad_rows: SkipBadRows = False,
    taxonomy: TaxonomyFile = None,
) -> None:
    """Print statistics of a data folder: labels, documents and words, by split and by level.

    **|Y|** is the number of labels, **Avg(|y|)** the mean number of labels of a document, ancestors included. Words are
    separated by white space.

    Example: **hgclr data stats my-data --output my-report**

    Next: **hgclr train my-data**
    """
    from hgclr.data.check import describe
    from hgclr.data.report import fact_rows, level_rows, split_rows, table1, write_report
    from hgclr.presentation import check_report

    if output is not None:
        check_report(output, extra="data")
    data = reading.open(source, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows)
    with counting("rows") as progress:
        found = describe(data, progress=progress)
    write_result(json_file, found.to_json())
    console, name = results(json_file), source.resolve().name
    values, titles = zip(*table1(found), strict=True)
    print_table(console, ("", *titles), [(name, *values)])
    headings, *rows = split_rows(found)
    print_table(console, headings, rows, title="\nSplits: labels that occur, words per text")
    headings, *rows = level_rows(found)
    title = f"\nLevels: largest, median and smallest number of documents of a label in {found.reference}"
    print_table(console, headings, rows, title=title)
    console.print()
    for subject, text in fact_rows(found):
        console.say(f"{subject:<12} {text}")
    if output is not None:
        print_written(write_report(output, name, found, checked=False)[:1], console)
