"""``hgclr data import`` and ``split``: make a data folder of documents of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.console import Console, print_table, progress_bar
from hgclr.cli.options import JsonFile, Reading, TaxonomyFile, reading_options
from hgclr.cli.prepare import Output, show_summary
from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.data.split import SplitResult
    from hgclr.data.table_import import ImportResult

__all__ = ["import_files", "split"]

Seed = Annotated[int, typer.Option(min=0, help="Decides which text goes to which split.")]
Stratify = Annotated[
    bool,
    typer.Option(
        "--stratify/--no-stratify",
        help="Give every label the same share in each split; slow with thousands of labels. Otherwise at random.",
    ),
]
TWINS, CONTRADICTIONS, WIDTH = 10, 3, 60
"""How many near-twins and contradictions are listed, and how much of a text."""


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Tables, or their URLs: .csv, .tsv, .jsonl (also .gz), .xlsx or .parquet. If several are given, those"
            " called train, dev (validation, valid, val) and test are these splits.",
        ),
    ],
    output: Output,
    text: Annotated[
        str | None, typer.Option("--text", "--text-column", metavar="COLUMN", help="Column with the text.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--label-column",
            metavar="COLUMN",
            help="Column with the labels, as paths or as names; several with commas between them.",
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Columns with the levels of one path, from the top down."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column with the rows' own ids, which are kept.")
    ] = None,
    label_separator: Annotated[str | None, typer.Option(help="Between several labels of a cell, such as ';'.")] = None,
    path_separator: Annotated[str | None, typer.Option(help="Between the names of a path, such as '>'.")] = None,
    taxonomy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The label tree, if labels are names or ids; else it is drawn from paths."),
    ] = None,
    merge_twins: Annotated[
        bool, typer.Option("--merge-twins", help="Make one label of those that differ only in case or spaces.")
    ] = False,
    dev: Annotated[
        str | None, typer.Option(metavar="SHARE|FILE", help="Share for development, 0.1 by default, or a file.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="SHARE|FILE", help="Share for testing, 0.1 by default, or a file.")
    ] = None,
    seed: Seed = 0,
    stratify: Stratify = True,
    json_file: JsonFile = None,
) -> None:
    """Make a data folder of your own tables: CSV with any delimiter, Excel, JSON lines, Parquet.

    Columns and separators are found, and named, unless they are given. The label tree is drawn from the paths. Rows
    with the same text become one document with all their labels; rows that cannot be used are left out and listed.
    Train, dev and test are drawn so that every label has the same share in each.

    Example: **hgclr data import tickets.xlsx --output my-data**

    Example: **hgclr data import tickets.csv --text Message --levels Area,Topic --output my-data**
    """
    from hgclr.data.layout import Layout
    from hgclr.data.table_import import import_tables
    from hgclr.files import write_json
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
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)
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
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if json_file is not None:
        write_json(json_file, result.to_json())
    _print_import(Console(highlight=False), result)


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

    def say(line: str, style: str | None = None) -> None:
        console.print(line, style=style, markup=False, soft_wrap=True)

    summary, levels = result.split.summary, [len(level) for level in result.taxonomy.levels]
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
    """Say which columns and separators were taken."""
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


@reading_options
def split(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A file of documents, or a data folder with a train split; or the URL of either."
        ),
    ],
    reading: Reading,
    output: Output,
    dev: Annotated[
        float, typer.Option(min=0, max=1, help="Share for development; 0 for none, or to keep the folder's own.")
    ] = 0.1,
    test: Annotated[
        float, typer.Option(min=0, max=1, help="Share for testing; 0 for none, or to keep the folder's own.")
    ] = 0.1,
    seed: Seed = 0,
    stratify: Stratify = True,
    taxonomy: TaxonomyFile = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and record them.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Split your own documents into train, dev and test.

    Every label gets the same share of each split, the same text is never in two splits, and every label has a document
    in train. Rows keep all their columns; the new folder remembers how it is read.
    """
    from hgclr.data.split import split_data
    from hgclr.files import write_json
    from hgclr.remote import local

    source = local(source)
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
    if json_file is not None:
        write_json(json_file, result.to_json())
    _print_split(Console(highlight=False), result, f"{result.labels:,} labels")
    show_summary(result.summary)


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
    note = "deviation: between a label's share of the split and its share of all documents, on average"
    console.print(note, style="dim", soft_wrap=True)
    if count := result.shared_texts:
        texts = "text of the split that was kept is" if count == 1 else "texts of the splits that were kept are"
        console.print(f"[yellow]warning:[/] {count:,} {texts} also in the others", soft_wrap=True)
