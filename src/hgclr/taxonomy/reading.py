"""Read a label tree from a file in any of the formats."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from hgclr.errors import InputError
from hgclr.taxonomy.drafting import Labels, empty_tree
from hgclr.taxonomy.json_tree import read_json
from hgclr.taxonomy.literature import ROOT, read_literature
from hgclr.taxonomy.paths import read_paths
from hgclr.taxonomy.source import Source
from hgclr.taxonomy.table import find_columns, read_table

__all__ = ["FileFormat", "read_labels"]

FileFormat = Literal["auto", "literature", "table", "json", "paths"]


def read_labels(path: str | Path, file_format: FileFormat, separator: str) -> Labels:
    """Read the labels of a tree.

    Args:
        path: a UTF-8 text file.
        file_format: ``auto`` finds the format by the content, whatever the file is called.
        separator: stands between the names of a path.

    Raises:
        InputError: with file, line and remedy.
    """
    formats = get_args(FileFormat)
    if file_format not in formats:
        raise InputError(f"unknown format {file_format!r}", remedy=f"choose one of {', '.join(formats)}")
    if not separator:
        raise InputError("the separator of paths is empty", remedy="use for example ' > '")
    source = Source.load(path)
    if not source.text.strip():
        raise empty_tree(source)
    chosen = _detect(source, separator) if file_format == "auto" else file_format
    if chosen == "literature":
        return read_literature(source)
    if chosen == "table":
        return read_table(source)
    if chosen == "json":
        return read_json(source, separator)
    return read_paths(source, separator)


def _detect(source: Source, separator: str) -> FileFormat:
    """Return the format that the content shows."""
    number, first = next(source.lines())
    if first.lstrip()[0] in "{[":
        return "json"
    if first.split("\t")[0] == ROOT:
        return "literature"
    if find_columns(first) is not None:
        return "table"
    if any(separator in line for _, line in source.lines()):
        return "paths"
    raise source.error(
        f"cannot tell the format from the line {first[:60]!r}",
        number,
        "name it with --format: literature (lines 'Root<TAB>label...'), table (a header with 'child' and"
        f" 'parent'), json, or paths (lines 'A{separator}B'; --separator says what stands between)",
    )
