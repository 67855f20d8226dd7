"""``hgclr data split``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import AddAncestors, JsonFile, LabelColumn, LabelSeparator, PathSeparator, TextColumn

if TYPE_CHECKING:
    from rich.console import Console

    from hgclr.data.split import SplitResult

__all__ = ["split"]


def split(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A file of documents, or a data folder with a train split.")
    ],
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
    taxonomy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The label tree, if it is not beside the documents.")
    ] = None,
    add_ancestors: AddAncestors = False,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "labels",
    label_separator: LabelSeparator = ";",
    path_separator: PathSeparator = " > ",
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and record them.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Split your own documents into train, dev and test.

    Every label gets the same share of each split, the same text is never in two splits, and every label has a document
    in train. Rows keep all their columns; read the new folder with the same column options.
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar
    from hgclr.cli.prepare.showing import show_summary
    from hgclr.data.split import split_data
    from hgclr.files import atomic_file

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
            text_column=text_column,
            label_column=label_column,
            label_separator=label_separator,
            path_separator=path_separator,
            add_ancestors=add_ancestors,
            skip_bad_rows=skip_bad_rows,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if json_file is not None:
        with atomic_file(json_file) as temporary:
            temporary.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    _print_result(result, Console())
    show_summary(result.summary)


def _print_result(result: SplitResult, console: Console) -> None:
    """Print a table of the splits, then what is worth a warning."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    documents = result.summary.documents
    title = f"{result.labels:,} labels"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("split")
    for heading in ("documents", "share", "labels without", "deviation"):
        table.add_column(heading, justify="right")
    for name, count in documents.items():
        if name in result.deviation:
            missing, deviation = f"{result.labels_without[name]:,}", f"{result.deviation[name]:.3%}"
        elif count:
            missing = deviation = "as it was"
        else:
            continue
        table.add_row(name, f"{count:,}", f"{count / sum(documents.values()):.1%}", missing, deviation)
    console.print(table)
    note = "deviation: between a label's share of the split and its share of all documents, on average"
    console.print(note, style="dim", highlight=False, soft_wrap=True)
    if count := result.shared_texts:
        texts = "text of the split that was kept is" if count == 1 else "texts of the splits that were kept are"
        console.print(f"[yellow]warning:[/] {count:,} {texts} also in the others", highlight=False, soft_wrap=True)
