"""``hgclr taxonomy convert``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.taxonomy.options import File, Format, Separator

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.descriptions import Described

__all__ = ["convert"]

SHOWN = 10
"""How many rows that name no label are listed."""


def convert(
    file: File,
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT",
            help="The file to write: .json for JSON, .csv for a table, else the literature's format.",
            show_default=False,
        ),
    ],
    descriptions: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE",
            help="A CSV or TSV file that describes labels, given by id, name or path.",
            show_default=False,
        ),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Title or number of the column of labels in that table.",
            show_default="the one that names most labels",
        ),
    ] = None,
    description_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Title or number of the column of descriptions in that table.",
            show_default="'description', or the other one of two",
        ),
    ] = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Write the label tree in FILE to OUTPUT in another format.

    JSON and tables keep ids, names, descriptions and the order of the labels.
    The literature's tab format keeps ids and structure.

    Example: hgclr taxonomy convert labels.csv labels.json

    Example: hgclr taxonomy convert labels.tsv labels.json --descriptions about.tsv
    """
    from rich.console import Console
    from rich.text import Text

    from hgclr.errors import InputError
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.descriptions import join_descriptions

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    console = Console()
    if descriptions is not None:
        described = join_descriptions(
            taxonomy,
            descriptions,
            label_column=label_column,
            description_column=description_column,
            separator=separator,
        )
        taxonomy = described.taxonomy
        for line in _report(described):
            console.print(Text(f"{descriptions}: {line}"), soft_wrap=True)
    elif label_column is not None or description_column is not None:
        raise InputError("a column is named, but no table", remedy="give --descriptions TABLE, too")
    taxonomy.write(output)
    written = Taxonomy.read(output)
    having = sum(map(bool, written.descriptions))
    console.print(
        Text(f"{output}: {len(taxonomy):,} labels written" + (f", {having:,} with a description" if having else "")),
        soft_wrap=True,
    )
    lost = [
        what
        for what, kept in (
            ("the order of the labels", written.ids == taxonomy.ids),
            ("the names", _by_id(written, written.names) == _by_id(taxonomy, taxonomy.names)),
            ("the descriptions", _by_id(written, written.descriptions) == _by_id(taxonomy, taxonomy.descriptions)),
        )
        if not kept
    ]
    if lost:
        listed = " and ".join([", ".join(lost[:-1]), lost[-1]] if lost[:-1] else lost)
        console.print(Text(f"note: this format does not keep {listed}; .json does"), soft_wrap=True)


def _by_id(taxonomy: Taxonomy, texts: Sequence[str]) -> dict[str, str]:
    return dict(zip(taxonomy.ids, texts, strict=True))


def _report(described: Described) -> Iterator[str]:
    """Yield what came of joining a table of descriptions, a line each."""
    yield (
        f"{described.matched:,} of {described.rows:,} rows name a label of the tree,"
        f" {described.labels:,} {'label has' if described.labels == 1 else 'labels have'} a description there"
    )
    for cells, problem in ((described.unknown, "no label"), (described.ambiguous, "several labels")):
        if cells:
            shown = ", ".join(f"{cell!r} (line {line})" for cell, line in cells[:SHOWN])
            more = f" and {len(cells) - SHOWN:,} more" if len(cells) > SHOWN else ""
            yield f"what names {problem} is left out: {shown}{more}"
