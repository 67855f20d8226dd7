"""``hgclr taxonomy diff``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import JsonFile
from hgclr.cli.taxonomy.labels import path_text, printable
from hgclr.cli.taxonomy.options import FileFormat, Format, Separator

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.changes import TreeChanges
    from hgclr.taxonomy.suggestions import Suggestions

__all__ = ["diff"]

ROWS = 50
"""How many labels of a kind are listed."""

TREE = "file, data folder, or folder of a model."


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help=f"The label tree as it was: {TREE}", show_default=False)],
    new: Annotated[Path, typer.Argument(metavar="NEW", help=f"The label tree as it is: {TREE}", show_default=False)],
    changes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What became of labels, where ids do not show it: lines 'old TAB new' below that header, or JSON."
            " Several old with one new were merged, one old with several new was split.",
        ),
    ] = None,
    suggestions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what perhaps belongs together here, to correct and give as --changes."
        ),
    ] = None,
    json_file: JsonFile = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Say which labels were added, removed, renamed, moved, merged and split between two trees.

    A label is the same if its id is, or else its path of names. What two trees cannot show is
    listed as 'perhaps' and counts only if --changes says so. A model that was trained on OLD
    goes over to NEW with 'hgclr train --from', which takes the same file of changes.

    Example: hgclr taxonomy diff runs/first/model labels.tsv
    """
    import json

    from rich.console import Console

    from hgclr.files import atomic_file
    from hgclr.taxonomy.changes import compare, read_changes, write_changes
    from hgclr.taxonomy.suggestions import suggest

    before, after = _open(old, format, separator), _open(new, format, separator)
    found = compare(before, after, None if changes is None else read_changes(changes, before, after))
    perhaps = suggest(found)
    if json_file is not None:
        with atomic_file(json_file) as temporary:
            tree = found.to_json() | {"perhaps": perhaps.to_json(found)}
            temporary.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if suggestions is not None and perhaps:
        write_changes(suggestions, perhaps.mapping(found))
    console = Console(highlight=False)
    console.print(
        f"{old} ({len(before):,} labels) → {new} ({len(after):,})", style="bold", markup=False, soft_wrap=True
    )
    _print_changes(console, found, separator)
    _print_suggestions(console, found, perhaps, separator, suggestions)


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


def _print_changes(console: Console, changes: TreeChanges, separator: str) -> None:
    """Print every kind of change with its labels."""
    kept = [pair.old for pair in changes.kept]  # in the order of the new tree
    order = "" if kept == sorted(kept) else ", in another order"
    console.print(f"kept      {len(changes.kept):,}{order}", style="dim")
    for kind, colour, rows in _kinds(changes, separator):
        _print_rows(console, f"{kind:<9} {len(rows):,}", colour, rows)


def _kinds(changes: TreeChanges, separator: str) -> Iterator[tuple[str, str, list[Text]]]:
    """Yield each kind of change that there is, its colour, and a row for each label."""
    old, new = changes.old, changes.new
    before, after = partial(_paths, old, separator), partial(_paths, new, separator)

    def place(tree: Taxonomy, label: int) -> str:
        parent = int(tree.parents[label])
        return "the top" if parent < 0 else repr(printable(tree.names[parent]))

    kinds = (
        ("added", "green", [after([label]) for label in changes.added]),
        ("removed", "red", [before([label]) for label in changes.removed]),
        ("renamed", "yellow", [_arrow(before([pair.old]), after([pair.new])) for pair in changes.renamed]),
        (
            "moved",
            "blue",
            [
                after([pair.new]).append(f"  from {place(old, pair.old)} to {place(new, pair.new)}", style="dim")
                for pair in changes.moved
            ],
        ),
        ("merged", "magenta", [_arrow(before(labels), after([label])) for labels, label in changes.merged]),
        ("split", "magenta", [_arrow(before([label]), after(labels)) for label, labels in changes.split]),
    )
    for kind, colour, rows in kinds:
        if rows:
            yield kind, colour, rows


def _print_suggestions(
    console: Console, changes: TreeChanges, perhaps: Suggestions, separator: str, written: Path | None
) -> None:
    """Print what perhaps belongs together, and what to do about it."""
    if not perhaps:
        if written is not None:
            console.print(f"nothing to suggest: {written} is not written", style="italic", markup=False, soft_wrap=True)
        return
    from rich.text import Text

    pairs = [
        *(("renamed", [pair.old], [pair.new]) for pair in perhaps.renamed),
        *(("merged", labels, [label]) for labels, label in perhaps.merged),
        *(("split", [label], labels) for label, labels in perhaps.split),
    ]
    rows = [
        Text(f"{kind}: ", style="dim").append_text(
            _arrow(_paths(changes.old, separator, before), _paths(changes.new, separator, after))
        )
        for kind, before, after in pairs
    ]
    _print_rows(console, f"perhaps   {len(rows):,}", "cyan", rows)
    where = "--suggestions FILE writes these down" if written is None else f"{written} has these"
    console.print(f"{where}: keep what is so and give it as --changes", style="italic", markup=False, soft_wrap=True)


def _print_rows(console: Console, title: str, colour: str, rows: Sequence[Text]) -> None:
    from rich.text import Text

    console.print(title, style=f"bold {colour}", markup=False)
    for row in rows[:ROWS]:
        console.print(Text("  ", style=colour).append_text(row), soft_wrap=True)
    if len(rows) > ROWS:
        console.print(f"  and {len(rows) - ROWS:,} more: --json FILE writes all", style="italic", markup=False)


def _paths(tree: Taxonomy, separator: str, labels: Sequence[int]) -> Text:
    from rich.text import Text

    return Text(" + ").join(path_text(tree, label, separator) for label in labels)


def _arrow(before: Text, after: Text) -> Text:
    return before.append(" → ", style="dim").append_text(after)
