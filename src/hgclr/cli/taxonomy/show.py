"""``hgclr taxonomy show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.taxonomy.labels import label_text
from hgclr.cli.taxonomy.options import File, Format, Separator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy

__all__ = ["show"]

ROWS = 200
"""How many labels are drawn unless told how deep to go."""

GUIDES = 16
"""How many branches are drawn before a label; further in, its depth is written instead."""


def show(
    file: File,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Draw this many levels.", show_default="as many as fit")
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="Draw only what is under this label (id, name or path).", show_default=False
        ),
    ] = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Draw the label tree, with the ids beside the names where they differ.

    Of a large tree the upper levels are drawn; '+12' counts what is hidden.

    Example: hgclr taxonomy show labels.tsv --under Physics --depth 2
    """
    from rich.console import Console
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    top = -1 if under is None else taxonomy.resolve(under, separator)
    sizes = _subtree_sizes(taxonomy)
    total = int(sizes[top] - 1)
    shown = _levels_that_fit(taxonomy, top) if depth is None else depth
    console = Console()
    title = Text(file.name, style="bold") if under is None else label_text(taxonomy, top, separator)
    console.print(title, soft_wrap=True)
    drawn = 0
    for row in _rows(taxonomy, top, shown, sizes, separator, ascii_only=console.options.ascii_only):
        if depth is None and drawn == ROWS:
            break
        console.print(row, soft_wrap=True)
        drawn += 1
    if drawn < total:
        console.print(
            Text(
                f"{total - drawn:,} of {total:,} labels are not shown:"
                f" --depth {taxonomy.depth} shows all, --under LABEL one branch",
                style="italic",
            ),
            soft_wrap=True,
        )
    if having := sum(map(bool, taxonomy.descriptions)):
        console.print(
            Text(f"{having:,} of {len(taxonomy):,} labels have a description", style="italic"), soft_wrap=True
        )


def _subtree_sizes(taxonomy: Taxonomy) -> NDArray[np.int64]:
    """Return the size of each label's subtree, itself included; last, at -1, the virtual root's."""
    import numpy as np

    sizes = np.ones(len(taxonomy) + 1, dtype=np.int64)
    for level in reversed(taxonomy.levels):
        np.add.at(sizes, taxonomy.parents[level], sizes[level])
    return sizes


def _levels_that_fit(taxonomy: Taxonomy, top: int) -> int:
    """Return how many levels under ``top`` can be drawn in :data:`ROWS` rows, at least one."""
    level = taxonomy.children(top).tolist()
    rows, levels = len(level), 1
    while level:
        level = [child for node in level for child in taxonomy.children(node).tolist()]
        rows += len(level)
        if rows > ROWS:
            break
        levels += 1
    return levels


def _rows(
    taxonomy: Taxonomy, top: int, levels: int, sizes: NDArray[np.int64], separator: str, *, ascii_only: bool
) -> Iterator[Text]:
    """Yield a row per label under ``top``, depth first; no recursion, a tree may be 1,000 levels deep."""
    from rich.text import Text

    fork, end, line = ("+-- ", "`-- ", "|   ") if ascii_only else ("├── ", "└── ", "│   ")

    def pending(node: int, guides: tuple[str, ...], depth: int) -> list[tuple[int, tuple[str, ...], bool, int]]:
        children = taxonomy.children(node).tolist()
        return [(child, guides, child == children[-1], depth) for child in reversed(children)]

    stack = pending(top, (), 1)
    while stack:
        node, guides, last, depth = stack.pop()
        row = Text(style="default")
        if depth > GUIDES:
            row.append(f"{depth:>4} ", style="dim")
        row.append("".join(guides) + (end if last else fork), style="dim").append_text(
            label_text(taxonomy, node, separator)
        )
        if depth < levels:
            stack += pending(node, (*guides, "    " if last else line)[-GUIDES:], depth + 1)
        elif sizes[node] > 1:
            row.append(f"  +{sizes[node] - 1:,}", style="dim")
        yield row
