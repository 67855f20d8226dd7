"""``hgclr taxonomy``: check, show, convert and compare label trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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
    from hgclr.taxonomy.concepts import ImportSummary


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Import, check, show, convert and compare label trees.

    A label tree is a UTF-8 file in one of these formats, perhaps gzipped; hgclr detects the format. **literature**:
    lines 'parent TAB child TAB child', the first for 'Root'. **table**: CSV or TSV with columns 'child' and 'parent',
    and optionally 'name' and 'description'. **json**: {"Science": {"Physics": {}}}, or nodes in lists. **paths**: one
    'Science > Physics > Optics' per line. **outline**: one label per line, indented below its parent by tabs or spaces.
    **ids**: lines 'id : Science > Physics'. **skos**: Turtle, N-Triples, RDF/XML or JSON-LD. **esco**: tables of ESCO.
    In json, skos and esco a label may have several parents; the first is its main parent.

    Example: **hgclr taxonomy check labels.tsv**
    """,
)
# The library's formats, repeated here because the help page must not import numpy.
FileFormat = Literal["auto", "literature", "table", "json", "paths", "outline", "ids", "skos", "esco"]
File = Annotated[Path, typer.Argument(metavar="FILE", help="File with the label tree.")]
Format = Annotated[FileFormat, option("auto, or a format of hgclr taxonomy --help.", "--format", metavar="FORMAT")]
Separator = Annotated[str, option("Separator between the names of a path.")]
LEVELS, ROWS, CELLS, CHANGES = 16, 200, 10, 20
"""Limits on the levels counted and indented, labels drawn, cells without a label listed, changes of a kind listed."""


@app.command("import")
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="A vocabulary; for ESCO its tables or their folder; or their URLs."),
    ],
    output: Annotated[Path, file("Label tree to write: .json, or .ttl for SKOS.")],
    language: Annotated[
        str | None, option("Languages: the first for names, the others for alternative names.", metavar="en,de")
    ] = None,
    below: Annotated[
        str | None, option("Take only what is below this concept: id, code or name.", metavar="CONCEPT")
    ] = None,
    depth: Annotated[int | None, option("Take this many levels.", min=1)] = None,
    scheme: Annotated[str | None, option("Take only the concepts of this scheme.", metavar="URI")] = None,
    keep_deprecated: Annotated[bool, option("Keep deprecated concepts.", "--keep-deprecated")] = False,
    keep_groups: Annotated[
        bool, option("Keep collections and thesaurus arrays, with their members below them.", "--keep-groups")
    ] = False,
    cut_cycles: Annotated[bool, option("Cut cycles; default: they are an error.", "--cut-cycles")] = False,
    json_file: JsonFile = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Read a published vocabulary, repair it, and write a label tree.

    Reads SKOS (Turtle, N-Triples, RDF/XML, JSON-LD), the tables of ESCO, lines 'id : A > B', IPTC's JSON, and all other
    formats of label trees. Without --language, names are English if half of the concepts have English names, else in
    the most frequent language. A concept without such a name is named in the next language given, then by a name
    without language, in English, in any language, or by the end of its id.

    Example: **hgclr taxonomy import thesaurus.ttl --language en,de --output tree.json**

    Next: **hgclr data import tickets.csv --taxonomy tree.json --output my-data**
    """
    from time import perf_counter

    from hgclr.remote import local
    from hgclr.taxonomy import Taxonomy
    from hgclr.taxonomy.concepts import Choices

    started = perf_counter()
    if output.suffix.lower() not in (".json", ".ttl"):
        remedy = "name it .json or .ttl; hgclr taxonomy convert writes the others"
        raise InputError("other formats lose alternative names", path=output, remedy=remedy)
    languages = tuple(part.strip() for part in (language or "").split(",") if part.strip())
    choices = Choices(languages, below, depth, scheme, keep_deprecated, keep_groups, cut_cycles)
    taxonomy, found = Taxonomy.import_from([local(file) for file in files], choices, format=format, separator=separator)
    taxonomy.write(output)
    counts = {
        "labels": len(taxonomy),
        "depth": taxonomy.depth,
        "several parents": sum(map(bool, taxonomy.more_parents)),
        "alternative names": sum(map(len, taxonomy.alternatives)),
        "descriptions": sum(map(bool, taxonomy.descriptions)),
    }
    seconds = round(perf_counter() - started, 1)
    written = {key.replace(" ", "_"): count for key, count in counts.items()} | {"seconds": seconds}
    write_result(json_file, (found.to_json() if found else {}) | written)
    console = results(json_file)
    console.say(f"{output}: {len(taxonomy):,} labels written in {seconds} s", "bold")
    if found is not None:
        _print_import(console, found)
    for subject, count in list(counts.items())[1:]:
        console.say(f"  {subject:<18}{count:,}")


def _print_import(console: Console, found: ImportSummary) -> None:
    """Print what was read, left out and repaired."""

    def listed(counts: dict[str, int]) -> str:
        more = f" and {len(counts) - CELLS:,} more" if len(counts) > CELLS else ""
        return ", ".join(f"{name or 'none'} {count:,}" for name, count in list(counts.items())[:CELLS]) + more

    facts = {
        "read": f"{found.concepts:,} concepts, {found.format}",
        "language": ", ".join(tag or "none" for tag in found.languages) + f"; names: {listed(found.available)}",
        "schemes": listed(found.schemes),
        "left out": ", ".join(f"{count:,} {reason}" for reason, count in found.left_out.items() if count),
    }
    for subject, finding in facts.items():
        if finding:
            console.say(f"  {subject:<18}{finding}")
    for number, line in enumerate(found.repair_lines()):
        console.say(f"  {'' if number else 'repairs':<18}{line}", "yellow")


@app.command()
def check(file: File, format: Format = "auto", separator: Separator = " > ") -> None:  # noqa: A002
    """Check that FILE is a valid label tree, and summarise it.

    Faults are a cycle, an unknown parent, an empty or a repeated label: the error names the line and the remedy, and
    the exit code is 2.

    Example: **hgclr taxonomy check labels.tsv**

    Next: **hgclr taxonomy show labels.tsv**
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    counts = [f"{len(level):,}" for level in taxonomy.levels]
    repeated = [name for name, count in Counter(taxonomy.names).most_common() if count > 1]
    ((widest, children),) = Counter(taxonomy.edges[1].tolist()).most_common(1)
    several = sum(map(bool, taxonomy.more_parents))
    facts = {
        "labels": f"{len(taxonomy):,}",
        "depth": f"{taxonomy.depth:,}",
        "per level": " · ".join(counts[:LEVELS]) + (" · …" if len(counts) > LEVELS else ""),
        "leaves": f"{len(taxonomy.leaves):,}",
        "repeated names": f"{len(repeated):,}" + (f", such as {repeated[0]!r}" if repeated else ""),
        **({"several parents": f"{several:,}"} if several else {}),
        "descriptions": f"{sum(map(bool, taxonomy.descriptions)):,}",
        "most children": f"{children:,}, {'top labels' if widest < 0 else f'of {taxonomy.ids[widest]!r}'}",
    }
    console = Console()
    console.say(f"{file}: a valid label tree", "bold")
    for subject, finding in facts.items():
        console.say(f"  {subject:<16}{finding}")


@app.command()
def show(
    file: File,
    depth: Annotated[int | None, option("Draw this many levels; default: as many as fit.", min=1)] = None,
    under: Annotated[str | None, option("Draw the branch of this label: an id, name or path.", metavar="LABEL")] = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Draw the label tree, with ids beside names where they differ.

    For a large tree, only the upper levels are drawn; '+12' is the number of hidden labels below a label.

    Example: **hgclr taxonomy show labels.tsv --under Physics --depth 2**

    Next: **hgclr taxonomy convert labels.tsv labels.json**
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
    counts = Counter(int(taxonomy.depths[label]) - top_depth for label in branch)
    fitting = [level for level in sorted(counts) if sum(counts[above] for above in range(1, level + 1)) <= ROWS]
    levels = depth or max(fitting, default=1)
    rows = [label for label in branch if taxonomy.depths[label] - top_depth <= levels]
    rows = rows if depth else rows[:ROWS]
    for label in rows:
        level = int(taxonomy.depths[label]) - top_depth
        row = Text("  " * min(level, LEVELS)).append_text(_label(taxonomy, label, separator))
        if level == levels and (hidden := int(taxonomy.branch_sizes[label]) - 1):
            row.append(f"  +{hidden:,}", style="dim")
        console.print(row, soft_wrap=True)
    if len(rows) < len(branch):
        remedy = f"show all with --depth {taxonomy.depth}, or one branch with --under LABEL"
        console.say(f"{len(branch) - len(rows):,} of {len(branch):,} labels are hidden: {remedy}", "italic")


@app.command()
def convert(
    file: File,
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="File: .json, .csv, .ttl (SKOS), or else the literature's format.")
    ],
    descriptions: Annotated[
        Path | None, option("CSV or TSV with descriptions of labels, by id, name or path.", metavar="TABLE")
    ] = None,
    label_column: Annotated[
        str | None, option("Column of TABLE with labels; default: the one with most matches.", metavar="COLUMN")
    ] = None,
    description_column: Annotated[
        str | None, option("Column of TABLE with descriptions; default: 'description'.", metavar="COLUMN")
    ] = None,
    main_parents: Annotated[bool, option("Keep only the main parent of each label.", "--main-parents")] = False,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """Write the label tree in FILE to OUTPUT in another format.

    JSON and SKOS keep everything. Tables keep ids, names, descriptions and the order of the labels, the literature's
    tab format only ids and structure; both need --main-parents if labels have several parents. A label whose id is no
    URI gets one in SKOS, from which hgclr restores the id.

    Example: **hgclr taxonomy convert labels.tsv labels.json --descriptions about.tsv**

    Next: **hgclr data import tickets.csv --taxonomy labels.json --output my-data**
    """
    from hgclr.taxonomy import Taxonomy

    taxonomy, console = Taxonomy.read(file, format=format, separator=separator), Console()
    if descriptions is not None:
        columns = {"label_column": label_column, "description_column": description_column}
        taxonomy, table = taxonomy.with_descriptions(descriptions, **columns, separator=separator)
        console.say(
            f"{descriptions}: {table.matched:,} of {table.rows:,} rows match a label, {len(table.texts):,} described"
        )
        for cell, line in [*table.unknown, *table.ambiguous][:CELLS]:
            console.say(f"{descriptions}:{line}: skipped: {cell!r} matches no label, or several")
    elif label_column is not None or description_column is not None:
        raise InputError("--label-column and --description-column need a table", remedy="add --descriptions TABLE")
    if main_parents:
        taxonomy = Taxonomy(**taxonomy.arguments() | {"more_parents": None})
    taxonomy.write(output)
    described = sum(map(bool, taxonomy.descriptions))
    console.say(f"{output}: {len(taxonomy):,} labels written, {described:,} with a description")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Label tree before: file, data folder, or model folder.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Label tree now: file, data folder, or model folder.")],
    changes: Annotated[Path | None, file("Map from old to new labels: lines 'old TAB new', or JSON.")] = None,
    json_file: JsonFile = None,
    format: Format = "auto",  # noqa: A002
    separator: Separator = " > ",
) -> None:
    """List the labels that were added, removed, renamed, moved, merged or split between two trees.

    Labels are matched by id, or else by their path of names. All other matches come from --changes: several old labels
    with one new label were merged, one old label with several new ones was split.

    Example: **hgclr taxonomy diff runs/first/model labels.tsv --json changes.json**

    Next: **hgclr train my-data --from runs/first/training-model**
    """
    from hgclr.data.folder import open_tree
    from hgclr.taxonomy.changes import compare, read_changes

    before, after = (open_tree(path, format=format, separator=separator) for path in (old, new))
    found = compare(before, after, None if changes is None else read_changes(changes, before, after))
    write_result(json_file, found.to_json())
    console = results(json_file)
    console.say(f"{old} ({len(before):,} labels) → {new} ({len(after):,})", "bold")
    print_changes(console, found, separator)


def print_changes(console: Console, found: TreeChanges, separator: str = " > ") -> None:
    """Print the changes between two trees, at most 20 of each kind; the option --json lists all."""
    from hgclr.taxonomy.changes import branches

    before, after = found.old, found.new

    def paths(taxonomy: Taxonomy, labels: Iterable[int], below: int = 0) -> Text:
        names = (_label(taxonomy, label, separator, whole_path=True) for label in labels)
        return Text(" + ").join(names).append(f" (+{below:,} below)" if below else "", "dim")

    def arrow(old_labels: Iterable[int], new_labels: Iterable[int], below: int = 0) -> Text:
        return Text(" → ").join((paths(before, old_labels), paths(after, new_labels, below)))

    added = [paths(after, [top], below) for top, below in branches(after, found.added)]
    removed = [paths(before, [top], below) for top, below in branches(before, found.removed)]
    renamed = [arrow([one.old], [one.new], below) for one, below in found.renamed_heads]
    kinds = (
        ("added", "green", len(found.added), added),
        ("removed", "red", len(found.removed), removed),
        ("renamed", "yellow", len(found.renamed), renamed),
        ("moved", "blue", len(found.moved), [arrow([one.old], [one.new]) for one in found.moved]),
        ("merged", "magenta", len(found.merged), [arrow(labels, [one]) for labels, one in found.merged]),
        ("split", "magenta", len(found.split), [arrow([one], labels) for one, labels in found.split]),
    )
    kept = [pair.old for pair in found.kept]  # in the order of the new tree
    console.say(f"kept      {len(kept):,}{'' if kept == sorted(kept) else ', in another order'}", "dim")
    for kind, colour, count, rows in kinds:
        if rows:
            console.say(f"{kind:<9} {count:,}", f"bold {colour}")
        for row in rows[:CHANGES]:
            console.print(Text("  ", style=colour).append_text(row), soft_wrap=True)
        if len(rows) > CHANGES:
            console.say(f"  and {len(rows) - CHANGES:,} more; write all labels with --json FILE", "italic")


def _label(taxonomy: Taxonomy, index: int, separator: str, *, whole_path: bool = False) -> Text:
    """Return a label's name or path of names, and its id if that differs from both, on one line."""
    name, path, identifier = taxonomy.names[index], taxonomy.path_name(index, separator), taxonomy.ids[index]
    text = Text(" ".join((path if whole_path else name).split("\n")))
    if identifier not in (name, path):
        text.append(f"  {' '.join(identifier.split(chr(10)))}", style="cyan")
    if others := taxonomy.more_parents[index]:
        places = "; ".join(taxonomy.path_name(parent, separator) for parent in others)
        text.append(f"  also under {' '.join(places.split(chr(10)))}", style="dim")
    return text
