"""``hgclr taxonomy``: check, show and convert a label tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hgclr.taxonomy import Taxonomy

__all__ = ["app"]

# The library's formats, repeated so that the help page needs no numpy.
FileFormat = Literal["auto", "literature", "table", "json", "paths"]

ROWS = 200
"""How many labels ``show`` draws unless told how deep to go."""

GUIDES = 16
"""How many branches are drawn before a label; further in, its depth is written instead."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Check, show and convert label trees.

    A label tree is a UTF-8 file in one of these formats, told apart by their content:

    - [bold]literature[/bold]: lines 'parent TAB child TAB child', first that of 'Root'

    - [bold]table[/bold]: CSV or TSV with columns 'child' and 'parent', perhaps 'name'

    - [bold]json[/bold]: {"Science": {"Physics": {}, "Biology": {}}}, or nodes in lists

    - [bold]paths[/bold]: one 'Science > Physics > Optics' per line
    """,
)

File = Annotated[Path, typer.Argument(help="The file that holds the label tree.", show_default=False)]
Format = Annotated[FileFormat, typer.Option("--format", help="The file's format; auto looks at the content.")]
Separator = Annotated[str, typer.Option(help="What stands between the names of a path.")]


@app.command()
def check(file: File, format: Format = "auto", separator: Separator = " > ") -> None:  # noqa: A002
    """Say whether FILE is a valid label tree, and what is in it.

    What makes no tree is refused with its line and a remedy (exit code 2):
    a cycle, two parents, an unknown parent, an empty or a repeated label.

    Example: hgclr taxonomy check labels.tsv
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    console = Console()
    console.print(Text(f"{file}: a valid label tree", style="bold"), soft_wrap=True)
    for subject, finding in _summary(taxonomy):
        console.print(Text(f"  {subject:<16}", style="dim").append(finding, style="default"), soft_wrap=True)


@app.command()
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
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    top = -1 if under is None else taxonomy.resolve(under, separator)
    sizes = _subtree_sizes(taxonomy)
    total = int(sizes[top] - 1)
    shown = _levels_that_fit(taxonomy, top) if depth is None else depth
    console = Console()
    title = Text(file.name, style="bold") if under is None else _label(taxonomy, top, separator)
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


@app.command()
def convert(
    file: File,
    output: Annotated[Path, typer.Argument(help="The file to write; .json for JSON, else the literature's format.")],
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Write the label tree in FILE to OUTPUT in another format.

    JSON keeps ids, names and the order of the labels.
    The literature's tab format keeps ids and structure.

    Example: hgclr taxonomy convert labels.csv labels.json
    """
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


def _summary(taxonomy: Taxonomy) -> Iterator[tuple[str, str]]:
    """Yield what is worth knowing about a tree."""
    yield "labels", f"{len(taxonomy):,}"
    yield "depth", f"{taxonomy.depth:,}"
    counts = [f"{len(level):,}" for level in taxonomy.levels]
    more = f" and {len(counts) - GUIDES:,} more levels" if len(counts) > GUIDES else ""
    yield "per level", " · ".join(counts[:GUIDES]) + more
    yield "leaves", f"{len(taxonomy.leaves):,}"
    repeated = [(name, count) for name, count in Counter(taxonomy.names).most_common() if count > 1]
    if repeated:
        labels = sum(count for _, count in repeated)
        (name, count), *_ = repeated
        yield "repeated names", f"{len(repeated):,} on {labels:,} labels, such as {name!r} on {count:,}"
    else:
        yield "repeated names", "none"
    ((widest, count),) = Counter(taxonomy.parents.tolist()).most_common(1)
    place = "the virtual root" if widest < 0 else repr(taxonomy.ids[widest])
    yield "widest node", f"{place} with {count:,} {'child' if count == 1 else 'children'}"


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
            _label(taxonomy, node, separator)
        )
        if depth < levels:
            stack += pending(node, (*guides, "    " if last else line)[-GUIDES:], depth + 1)
        elif sizes[node] > 1:
            row.append(f"  +{sizes[node] - 1:,}", style="dim")
        yield row


def _label(taxonomy: Taxonomy, index: int, separator: str) -> Text:
    """Return a label's name, and its id where that says more than the name and the place in the tree."""
    name, identifier = taxonomy.names[index], taxonomy.ids[index]
    text = Text(_printable(name))
    if identifier not in (name, taxonomy.path_name(index, separator)):
        text.append(f"  {_printable(identifier)}", style="cyan")
    return text


def _printable(text: str) -> str:
    """Return text without line ends and without the control characters that would steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
