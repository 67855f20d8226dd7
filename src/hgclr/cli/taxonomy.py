"""``hgclr taxonomy``: check, show, convert and compare label trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from hgclr.cli.console import Console, results, write_result
from hgclr.cli.options import JsonFile, file, option
from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.changes import TreeChanges


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Check, show, convert and compare label trees.

    A label tree is a UTF-8 file in one of these formats, which hgclr recognises by their content:

    - **literature**: lines 'parent TAB child TAB child', the first for 'Root'

    - **table**: CSV or TSV with columns 'child' and 'parent', and perhaps 'name' and 'description'

    - **json**: {"Science": {"Physics": {}, "Biology": {}}}, or nodes in lists

    - **paths**: one 'Science > Physics > Optics' per line
    """,
)
# The library's formats, repeated so that the help page needs no numpy.
FileFormat = Literal["auto", "literature", "table", "json", "paths"]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The file that holds the label tree.")]
Format = Annotated[FileFormat, option("The file's format; auto looks at the content.", "--format")]
Separator = Annotated[str, option("Separator between the names of a path.")]
LEVELS, ROWS, CELLS, CHANGES = 16, 200, 10, 20
"""Most levels that are counted, labels drawn, cells without a label listed, and changes of a kind listed."""
INDENTED = 16
"""Levels by which a label is indented; further in, its depth is written before it."""


@app.command()
def check(file: File, format: Format = "auto", separator: Separator = " > ") -> None:  # noqa: A002
    """Check that FILE is a valid label tree, and summarise it.

    Errors name the line and a remedy (exit code 2): a cycle, two parents, an unknown parent, an empty or a repeated
    label.

    Example: hgclr taxonomy check labels.tsv

    Next: **hgclr taxonomy show labels.tsv** draws it.
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    counts = [f"{len(level):,}" for level in taxonomy.levels]
    more = f" and {len(counts) - LEVELS:,} more levels" if len(counts) > LEVELS else ""
    repeated = [(name, count) for name, count in Counter(taxonomy.names).most_common() if count > 1]
    names = "none"
    if repeated:
        labels, (name, count) = sum(count for _, count in repeated), repeated[0]
        names = f"{len(repeated):,} on {labels:,} labels, such as {name!r} on {count:,}"
    described = sum(map(bool, taxonomy.descriptions))
    ((widest, children),) = Counter(taxonomy.parents.tolist()).most_common(1)
    place = "the virtual root" if widest < 0 else repr(taxonomy.ids[widest])
    facts = {
        "labels": f"{len(taxonomy):,}",
        "depth": f"{taxonomy.depth:,}",
        "per level": " · ".join(counts[:LEVELS]) + more,
        "leaves": f"{len(taxonomy.leaves):,}",
        "repeated names": names,
        "descriptions": f"{described:,} of {len(taxonomy):,} labels" if described else "none",
        "widest node": f"{place} with {children:,} {'child' if children == 1 else 'children'}",
    }
    console = Console()
    console.say(f"{file}: a valid label tree", "bold")
    for subject, finding in facts.items():
        console.print(Text(f"  {subject:<16}", style="dim").append(finding, style="default"), soft_wrap=True)


@app.command()
def show(
    file: File,
    depth: Annotated[int | None, option("Draw this many levels.", min=1, show_default="as many as fit")] = None,
    under: Annotated[
        str | None, option("Draw only what is under this label (id, name or path).", metavar="LABEL")
    ] = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Draw the label tree, with ids beside names where they differ.

    Of a large tree, only the upper levels are drawn; '+12' counts the labels hidden below one.

    Example: hgclr taxonomy show labels.tsv --under Physics --depth 2
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    branch, top_depth, console = taxonomy.walk.tolist(), 0, Console()
    if under is None:
        console.say(file.name, "bold")
    else:
        top = taxonomy.resolve(under, separator)
        top_depth, place = int(taxonomy.depths[top]), branch.index(top)
        branch = branch[place + 1 : place + int(taxonomy.branch_sizes[top])]
        console.print(_label(taxonomy, top, separator), soft_wrap=True)
    levels = depth or _levels_that_fit(taxonomy, branch, top_depth)
    drawn = 0
    for label in branch:
        level = int(taxonomy.depths[label]) - top_depth
        if level > levels or (depth is None and drawn == ROWS):
            continue
        row = Text("  " * min(level, INDENTED) + (f"{level} " if level > INDENTED else ""), style="default")
        row.append_text(_label(taxonomy, label, separator))
        if level == levels and (hidden := int(taxonomy.branch_sizes[label]) - 1):
            row.append(f"  +{hidden:,}", style="dim")
        console.print(row, soft_wrap=True)
        drawn += 1
    if drawn < len(branch):
        remedy = f"--depth {taxonomy.depth} shows all, --under LABEL one branch"
        console.say(f"{len(branch) - drawn:,} of {len(branch):,} labels are not shown: {remedy}", "italic")
    if described := sum(map(bool, taxonomy.descriptions)):
        console.say(f"{described:,} of {len(taxonomy):,} labels have a description", "italic")


def _levels_that_fit(taxonomy: Taxonomy, branch: Sequence[int], top_depth: int) -> int:
    """Return how many levels of a branch can be drawn in :data:`ROWS` rows, at least one."""
    counts = Counter(int(taxonomy.depths[label]) - top_depth for label in branch)
    rows = 0
    for level in range(1, len(counts) + 1):
        rows += counts[level]
        if rows > ROWS:
            return max(level - 1, 1)
    return len(counts)


@app.command()
def convert(
    file: File,
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT", help="The file to write: .json for JSON, .csv for a table, else the literature's format."
        ),
    ],
    descriptions: Annotated[
        Path | None,
        option("A CSV or TSV file that describes labels, given by id, name or path.", metavar="TABLE"),
    ] = None,
    label_column: Annotated[
        str | None,
        option("Title of the column of labels in that table; default: the one that names most.", metavar="COLUMN"),
    ] = None,
    description_column: Annotated[
        str | None,
        option(
            "Title of the column of descriptions; default: 'description', or the other one of two.", metavar="COLUMN"
        ),
    ] = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Write the label tree in FILE to OUTPUT in another format.

    JSON and tables keep ids, names, descriptions and the order of the labels; the literature's tab format keeps only
    ids and structure.

    Example: hgclr taxonomy convert labels.csv labels.json

    Example: hgclr taxonomy convert labels.tsv labels.json --descriptions about.tsv
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy, console = Taxonomy.read(file, format=format, separator=separator), Console()
    if descriptions is not None:
        columns = {"label_column": label_column, "description_column": description_column}
        taxonomy, table = taxonomy.with_descriptions(descriptions, **columns, separator=separator)
        console.say(
            f"{descriptions}: {table.matched:,} of {table.rows:,} rows name a label, {len(table.texts):,} described"
        )
        for cells, problem in ((table.unknown, "no label"), (table.ambiguous, "several labels")):
            if cells:
                shown = ", ".join(f"{cell!r} (line {line})" for cell, line in cells[:CELLS])
                more = f" and {len(cells) - CELLS:,} more" if len(cells) > CELLS else ""
                console.say(f"{descriptions}: left out, because they name {problem}: {shown}{more}")
    elif label_column is not None or description_column is not None:
        raise InputError("a column is given, but no table", remedy="give --descriptions TABLE, too")
    taxonomy.write(output)
    described = sum(map(bool, taxonomy.descriptions))
    console.say(f"{output}: {len(taxonomy):,} labels written, {described:,} with a description")
    if output.suffix.lower() not in (".json", ".csv"):
        console.say("note: this format keeps ids and structure only; .json keeps names, descriptions and the order")


TREE = "file, data folder, or folder of a model."


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help=f"The label tree as it was: {TREE}")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help=f"The label tree as it is: {TREE}")],
    changes: Annotated[
        Path | None,
        file(
            "Which labels became which, where ids and paths do not show it: lines 'old TAB new' below that header, or"
            " JSON. Several old labels with one new label were merged, one old label with several new ones was split."
        ),
    ] = None,
    json_file: JsonFile = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """List the labels that were added, removed, renamed, moved, merged or split between two trees.

    A label is the same if its id is the same, or else its path of names. Everything else is in --changes.

    Example: hgclr taxonomy diff runs/first/model labels.tsv

    Next: **hgclr train --from** takes a model that was trained on OLD over to NEW, with the same file of changes.
    """
    from hgclr.taxonomy.changes import compare, read_changes

    before, after = _open(old, format, separator), _open(new, format, separator)
    found = compare(before, after, None if changes is None else read_changes(changes, before, after))
    write_result(json_file, found.to_json())
    console = results(json_file)
    console.say(f"{old} ({len(before):,} labels) → {new} ({len(after):,})", "bold")
    kept = [pair.old for pair in found.kept]  # in the order of the new tree
    console.say(f"kept      {len(kept):,}{'' if kept == sorted(kept) else ', in another order'}", "dim")
    for kind, colour, count, rows in _changes(found, separator):
        if rows:
            console.say(f"{kind:<9} {count:,}", f"bold {colour}")
        for row in rows[:CHANGES]:
            console.print(Text("  ", style=colour).append_text(row), soft_wrap=True)
        if len(rows) > CHANGES:
            console.say(f"  and {len(rows) - CHANGES:,} more", "italic")
    if found and json_file is None:
        console.say("--json FILE writes every label", "italic")


def _open(path: Path, file_format: FileFormat, separator: str) -> Taxonomy:
    """Read the label tree of a file, a model or a data folder."""
    from hgclr.data.folder import DataFolder
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.tree import read_model_tree

    if path.name == "config.json" or (path / "config.json").is_file():
        return read_model_tree(path.parent if path.name == "config.json" else path)
    if path.is_dir():
        return DataFolder(path, path_separator=separator).taxonomy
    return Taxonomy.read(path, format=file_format, separator=separator)


def _changes(changes: TreeChanges, separator: str) -> Iterator[tuple[str, str, int, list[Text]]]:
    """Yield each kind of change, its colour, how many labels it has, and a row for each branch or label."""
    from hgclr.taxonomy.changes import branches

    old, new = changes.old, changes.new

    def paths(tree: Taxonomy, labels: Sequence[int]) -> Text:
        return Text(" + ").join(_label(tree, label, separator, whole_path=True) for label in labels)

    def arrow(before: Sequence[int], after: Sequence[int], below: int = 0) -> Text:
        return paths(old, before).append(" → ", style="dim").append_text(paths(new, after)).append_text(_below(below))

    for kind, colour, tree, labels in (
        ("added", "green", new, changes.added),
        ("removed", "red", old, changes.removed),
    ):
        rows = [paths(tree, [head]).append_text(_below(below)) for head, below in branches(tree, labels)]
        yield kind, colour, len(labels), rows
    renamed = [arrow([pair.old], [pair.new], below) for pair, below in changes.renamed_heads]
    yield "renamed", "yellow", len(changes.renamed), renamed
    yield "moved", "blue", len(changes.moved), [arrow([pair.old], [pair.new]) for pair in changes.moved]
    yield "merged", "magenta", len(changes.merged), [arrow(labels, [one]) for labels, one in changes.merged]
    yield "split", "magenta", len(changes.split), [arrow([one], labels) for one, labels in changes.split]


def _below(count: int) -> Text:
    """Return a note on the labels of a branch below its top."""
    return Text(f" (+{count:,} below)" if count else "", style="dim")


def _label(taxonomy: Taxonomy, index: int, separator: str, *, whole_path: bool = False) -> Text:
    """Return a label's name or path of names, and its id where that differs from both, on one line."""
    name, path, identifier = taxonomy.names[index], taxonomy.path_name(index, separator), taxonomy.ids[index]
    text = Text(" ".join((path if whole_path else name).split("\n")))
    if identifier not in (name, path):
        text.append(f"  {' '.join(identifier.split(chr(10)))}", style="cyan")
    return text
