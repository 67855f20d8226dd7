"""``hgclr taxonomy convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.taxonomy.options import File, Format, Separator

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy

__all__ = ["convert"]


def convert(
    file: File,
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="The file to write; .json for JSON, else the literature's format.")
    ],
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Write the label tree in FILE to OUTPUT in another format.

    JSON keeps ids, names and the order of the labels.
    The literature's tab format keeps ids and structure.

    Example: hgclr taxonomy convert labels.csv labels.json
    """
    from rich.console import Console
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    taxonomy.write(output)
    console = Console()
    console.print(Text(f"{output}: {len(taxonomy):,} labels written"), soft_wrap=True)
    written = Taxonomy.read(output)
    lost = [
        what
        for what, kept in (
            ("the order of the labels", written.ids == taxonomy.ids),
            ("the names", _names_by_id(written) == _names_by_id(taxonomy)),
        )
        if not kept
    ]
    if lost:
        console.print(Text(f"note: this format does not keep {' and '.join(lost)}; .json does"), soft_wrap=True)


def _names_by_id(taxonomy: Taxonomy) -> dict[str, str]:
    return dict(zip(taxonomy.ids, taxonomy.names, strict=True))
