"""``hgclr taxonomy``: check, show, convert and compare label trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from hgclr.cli.console import Console, results, write_result
from hgclr.cli.options import JsonFile, file, option
from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.changes import Suggestions, TreeChanges
    from hgclr.taxonomy.descriptions import Described


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Check, show, convert and compare label trees.

    A label tree is a UTF-8 file in one of these formats, which are told apart by their content:

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
"""How many levels are counted, labels drawn, and how many cells that name no label and changes of a kind listed."""
GUIDES = 16
"""How many branches are drawn before a label; further in, its depth is written instead."""


@app.command()
def check(file: File, format: Format = "auto", separator: Separator = " > ") -> None:  # noqa: A002
    """Check that FILE is a valid label tree, and summarise it.

    What keeps it from being a tree is reported with its line and a remedy (exit code 2): a cycle, two parents, an
    unknown parent, an empty or a repeated label.

    Example: hgclr taxonomy check labels.tsv

    Next: **hgclr taxonomy show labels.tsv** draws it.
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    console = Console()
    console.print(Text(f"{file}: a valid label tree", style="bold"), soft_wrap=True)
    for subject, finding in _summary(taxonomy):
        console.print(Text(f"  {subject:<16}", style="dim").append(finding, style="default"), soft_wrap=True)


def _summary(taxonomy: Taxonomy) -> Iterator[tuple[str, str]]:
    yield "labels", f"{len(taxonomy):,}"
    yield "depth", f"{taxonomy.depth:,}"
    counts = [f"{len(level):,}" for level in taxonomy.levels]
    more = f" and {len(counts) - LEVELS:,} more levels" if len(counts) > LEVELS else ""
    yield "per level", " · ".join(counts[:LEVELS]) + more
    yield "leaves", f"{len(taxonomy.leaves):,}"
    repeated = [(name, count) for name, count in Counter(taxonomy.names).most_common() if count > 1]
    if repeated:
        labels = sum(count for _, count in repeated)
        (name, count), *_ = repeated
        yield "repeated names", f"{len(repeated):,} on {labels:,} labels, such as {name!r} on {count:,}"
    else:
        yield "repeated names", "none"
    having = sum(map(bool, taxonomy.descriptions))
    yield "descriptions", f"{having:,} of {len(taxonomy):,} labels" if having else "none"
    ((widest, count),) = Counter(taxonomy.parents.tolist()).most_common(1)
    place = "the virtual root" if widest < 0 else repr(taxonomy.ids[widest])
    yield "widest node", f"{place} with {count:,} {'child' if count == 1 else 'children'}"


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
    top = -1 if under is None else taxonomy.resolve(under, separator)
    total = len(taxonomy) if under is None else int(taxonomy.branch_sizes[top]) - 1
    shown = _levels_that_fit(taxonomy, top) if depth is None else depth
    console = Console()
    console.print(Text(file.name, "bold") if under is None else _label(taxonomy, top, separator), soft_wrap=True)
    drawn = 0
    for row in _rows(taxonomy, top, shown, separator, ascii_only=console.options.ascii_only):
        if depth is None and drawn == ROWS:
            break
        console.print(row, soft_wrap=True)
        drawn += 1
    notes = []
    if drawn < total:
        remedy = f"--depth {taxonomy.depth} shows all, --under LABEL one branch"
        notes.append(f"{total - drawn:,} of {total:,} labels are not shown: {remedy}")
    if having := sum(map(bool, taxonomy.descriptions)):
        notes.append(f"{having:,} of {len(taxonomy):,} labels have a description")
    for note in notes:
        console.print(Text(note, "italic"), soft_wrap=True)


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


def _rows(taxonomy: Taxonomy, top: int, levels: int, separator: str, *, ascii_only: bool) -> Iterator[Text]:
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
        row.append("".join(guides) + (end if last else fork), style="dim")
        row.append_text(_label(taxonomy, node, separator))
        if depth < levels:
            stack += pending(node, (*guides, "    " if last else line)[-GUIDES:], depth + 1)
        elif hidden := int(taxonomy.branch_sizes[node]) - 1:
            row.append(f"  +{hidden:,}", style="dim")
        yield row


def _column(text: str, default: str) -> Any:
    return option(text, metavar="COLUMN", show_default=default)


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
        _column("Title or number of the column of labels in that table.", "the one that names most labels"),
    ] = None,
    description_column: Annotated[
        str | None,
        _column("Title or number of the column of descriptions in that table.", "'description', or the other of two"),
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
    from hgclr.taxonomy.descriptions import join_descriptions

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    lines: list[str] = []
    if descriptions is not None:
        columns = {"label_column": label_column, "description_column": description_column}
        described = join_descriptions(taxonomy, descriptions, **columns, separator=separator)
        taxonomy = described.taxonomy
        lines += [f"{descriptions}: {line}" for line in _joined(described)]
    elif label_column is not None or description_column is not None:
        raise InputError("a column is named, but no table", remedy="give --descriptions TABLE, too")
    taxonomy.write(output)
    written = Taxonomy.read(output)
    having = sum(map(bool, written.descriptions))
    lines.append(f"{output}: {len(taxonomy):,} labels written" + (f", {having:,} with a description" if having else ""))
    if lost := _lost(taxonomy, written):
        listed = " and ".join(filter(None, (", ".join(lost[:-1]), lost[-1])))
        lines.append(f"note: this format does not keep {listed}; .json does")
    for line in lines:
        Console().say(line)


def _joined(described: Described) -> Iterator[str]:
    """Yield what came of joining a table of descriptions, a line each."""
    yield (
        f"{described.matched:,} of {described.rows:,} rows name a label of the tree,"
        f" {described.labels:,} {'label has' if described.labels == 1 else 'labels have'} a description there"
    )
    for cells, problem in ((described.unknown, "no label"), (described.ambiguous, "several labels")):
        if cells:
            shown = ", ".join(f"{cell!r} (line {line})" for cell, line in cells[:CELLS])
            more = f" and {len(cells) - CELLS:,} more" if len(cells) > CELLS else ""
            yield f"what names {problem} is left out: {shown}{more}"


def _lost(taxonomy: Taxonomy, written: Taxonomy) -> list[str]:
    texts = dict(zip(written.ids, zip(written.names, written.descriptions, strict=True), strict=True))
    names, descriptions = zip(*(texts[identifier] for identifier in taxonomy.ids), strict=True)
    kept = {
        "the order of the labels": taxonomy.ids == written.ids,
        "the names": taxonomy.names == names,
        "the descriptions": taxonomy.descriptions == descriptions,
    }
    return [what for what, same in kept.items() if not same]


TREE = "file, data folder, or folder of a model."


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help=f"The label tree as it was: {TREE}")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help=f"The label tree as it is: {TREE}")],
    changes: Annotated[
        Path | None,
        file(
            "What became of labels, where ids do not show it: lines 'old TAB new' below that header, or JSON. Several"
            " old labels with one new label were merged, one old label with several new ones was split."
        ),
    ] = None,
    suggestions: Annotated[
        Path | None, file("Write what perhaps belongs together to this file, to correct and give as --changes.")
    ] = None,
    json_file: JsonFile = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """List the labels that were added, removed, renamed, moved, merged or split between two trees.

    A label is the same if its id is the same, or else its path of names. What two trees cannot show is listed as
    'perhaps' and counts only if --changes says so.

    Example: hgclr taxonomy diff runs/first/model labels.tsv

    Next: **hgclr train --from** takes a model that was trained on OLD over to NEW, with the same file of changes.
    """
    from hgclr.taxonomy.changes import compare, read_changes, suggest, write_changes

    before, after = _open(old, format, separator), _open(new, format, separator)
    found = compare(before, after, None if changes is None else read_changes(changes, before, after))
    perhaps = suggest(found)
    write_result(json_file, found.to_json() | {"perhaps": perhaps.to_json(found)})
    if suggestions is not None and perhaps:
        write_changes(suggestions, perhaps.mapping(found))
    console = results(json_file)
    console.say(f"{old} ({len(before):,} labels) → {new} ({len(after):,})", "bold")
    kept = [pair.old for pair in found.kept]  # in the order of the new tree
    console.say(f"kept      {len(kept):,}{'' if kept == sorted(kept) else ', in another order'}", "dim")
    listed = [*_changes(found, separator, console.width - 2)]
    if perhaps:
        rows = _perhaps(found, perhaps, separator)
        listed.append(("perhaps", "cyan", len(rows), rows))
    for kind, colour, count, rows in listed:
        _print_changes(console, kind, colour, count, rows)
    if found and json_file is None:
        console.say("--json FILE writes every label", "italic")
    if perhaps:
        where = "--suggestions FILE writes these down" if suggestions is None else f"{suggestions} has these"
        console.say(f"{where}: keep what is true and give it as --changes", "italic")
    elif suggestions is not None:
        console.say(f"nothing to suggest: {suggestions} is not written", "italic")


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


def _changes(changes: TreeChanges, separator: str, width: int) -> list[tuple[str, str, int, list[Text]]]:
    """Return each kind of change, its colour, how many labels it has, and rows that say which."""
    from hgclr.taxonomy.changes import branches

    def place(tree: Taxonomy, label: int) -> str:
        parent = int(tree.parents[label])
        return "the top" if parent < 0 else repr(_printable(tree.names[parent]))

    def families(tree: Taxonomy, labels: Sequence[int]) -> list[Text]:
        by_parent: dict[int, list[tuple[int, int]]] = {}
        for head, below in branches(tree, labels):
            by_parent.setdefault(int(tree.parents[head]), []).append((head, below))
        return [_family(tree, parent, heads, separator, width) for parent, heads in by_parent.items()]

    old, new = changes.old, changes.new
    moves = [
        _paths(new, [pair.new], separator).append(f"  from {place(old, pair.old)} to {place(new, pair.new)}", "dim")
        for pair in changes.moved
    ]
    renamed = [
        _arrow(changes, [pair.old], [pair.new], separator).append_text(_below(below))
        for pair, below in changes.renamed_heads
    ]
    merged = [_arrow(changes, labels, [one], separator) for labels, one in changes.merged]
    split = [_arrow(changes, [one], labels, separator) for one, labels in changes.split]
    return [
        ("added", "green", len(changes.added), families(new, changes.added)),
        ("removed", "red", len(changes.removed), families(old, changes.removed)),
        ("renamed", "yellow", len(changes.renamed), renamed),
        ("moved", "blue", len(changes.moved), moves),
        ("merged", "magenta", len(merged), merged),
        ("split", "magenta", len(split), split),
    ]


def _family(tree: Taxonomy, parent: int, heads: Sequence[tuple[int, int]], separator: str, width: int) -> Text:
    """Return the one label of a family that changed, or on one line as many of them as there is room for."""
    if len(heads) == 1:
        ((label, below),) = heads
        return _paths(tree, [label], separator).append_text(_below(below))
    row = Text("the top" if parent < 0 else _printable(tree.path_name(parent, separator)), style="dim").append(": ")
    for number, (label, below) in enumerate(heads):
        left = len(heads) - number
        more = f" and {left:,} more"
        name = Text(", " if number else "", style="default").append(_printable(tree.names[label]), style="default")
        name.append_text(_below(below))
        if number and row.cell_len + name.cell_len + (len(more) if left > 1 else 0) > width:
            return row.append(more, style="italic")
        row.append_text(name)
    return row


def _below(count: int) -> Text:
    """Return a note on labels below another that go with it."""
    return Text(f" (+{count:,} below)" if count else "", style="dim")


def _perhaps(changes: TreeChanges, perhaps: Suggestions, separator: str) -> list[Text]:
    pairs = [
        *(
            ("renamed", [one], [other], below)
            for (one, other), below in zip(perhaps.renamed, perhaps.below, strict=True)
        ),
        *(("merged", labels, [one], 0) for labels, one in perhaps.merged),
        *(("split", [one], labels, 0) for one, labels in perhaps.split),
    ]
    return [
        Text(f"{kind}: ", style="dim").append_text(_arrow(changes, before, after, separator)).append_text(_below(below))
        for kind, before, after, below in pairs
    ]


def _print_changes(console: Console, kind: str, colour: str, count: int, rows: Sequence[Text]) -> None:
    if rows:
        console.say(f"{kind:<9} {count:,}", f"bold {colour}")
    for row in rows[:CHANGES]:
        console.print(Text("  ", style=colour).append_text(row), soft_wrap=True)
    if len(rows) > CHANGES:
        console.say(f"  and {len(rows) - CHANGES:,} more", "italic")


def _arrow(changes: TreeChanges, before: Sequence[int], after: Sequence[int], separator: str) -> Text:
    """Return what labels became; of one that stays where it is, the path is not said twice."""
    old, new = changes.old, changes.new
    became = _paths(new, after, separator)
    if len(before) == len(after) == 1:
        above = [tree.path_names(label)[:-1] for tree, label in ((old, before[0]), (new, after[0]))]
        if above[0] == above[1]:
            became = _label(new, after[0], separator)
    return _paths(old, before, separator).append(" → ", style="dim").append_text(became)


def _paths(tree: Taxonomy, labels: Sequence[int], separator: str) -> Text:
    return Text(" + ").join(_label(tree, label, separator, whole_path=True) for label in labels)


def _label(taxonomy: Taxonomy, index: int, separator: str, *, whole_path: bool = False) -> Text:
    """Return a label's name or path of names, and its id where that says more than these."""
    name, path, identifier = taxonomy.names[index], taxonomy.path_name(index, separator), taxonomy.ids[index]
    text = Text(_printable(path if whole_path else name))
    if identifier not in (name, path):
        text.append(f"  {_printable(identifier)}", style="cyan")
    return text


def _printable(text: str) -> str:
    """Return text without line ends and without the control characters that would steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
