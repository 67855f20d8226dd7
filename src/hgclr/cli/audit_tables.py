"""Show an audit on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hgclr.auditing import Audit, Finding

__all__ = ["print_audit"]

SHOWN = 20
"""Documents that are listed."""
FEW = 5
"""Pairs of labels, and labels, that are listed."""
PATHS = 3
"""Paths of a document that are listed for either side."""
GAP = 3
"""Columns of the terminal between two columns of a table."""


def print_audit(found: Audit, console: Console) -> None:
    """Print how many documents are contradicted, the first of them, and what they have in common."""
    share = 100 * found.contradicted / found.documents
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
    summary = f"{found.contradicted:,} of {found.documents:,} documents ({share:.1f} %) are contradicted"
    console.print(f"{summary}: {by_kind}" if by_kind else summary, highlight=False)
    if not found.findings:
        return
    console.print()
    console.print(_findings(found.findings[:SHOWN], console.width))
    if len(found.findings) > SHOWN:
        more = f"and {len(found.findings) - SHOWN:,} more: --output DIR writes them all"
        console.print(more, style="dim", highlight=False)
    if found.pairs:
        width = (console.width - len("documents") - 2 * GAP) // 2
        table = _table(("documents", "take this label", "and this one for each other"), (None, width, width))
        for pair in found.pairs[:FEW]:
            table.add_row(f"{pair.documents:,}", *(_path(path, width) for path in pair.paths))
        console.print()
        console.print(table)
    if found.labels:
        width = console.width - len("surely wrong") - len("of") - 2 * GAP - 8
        table = _table(("surely wrong", "of", "with the label"), (None, None, width))
        for label in found.labels[:FEW]:
            table.add_row(f"{label.wrong:,}", f"{label.given:,}", _path(label.path, width))
        console.print()
        console.print(table)


def _findings(findings: Sequence[Finding], room: int) -> Table:
    """Return documents, about two lines each."""
    rows = [str(finding.row) for finding in findings]
    rest = max(40, room - max(3, *map(len, rows)) - len("score") - 3 * GAP)
    widths = rest - rest * 11 // 20, rest * 11 // 20
    table = _table(("row", "score", "text", "given (−), suggested (+)"), (None, None, *widths))
    for row, finding in zip(rows, findings, strict=True):
        table.add_row(row, f"{finding.score:.2f}", _cut(finding.text, 2 * widths[0] - 8), _changes(finding, widths[1]))
    return table


def _table(headings: Sequence[str], widths: Sequence[int | None]) -> Table:
    """Return an empty table; columns without a width are numbers."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading, width in zip(headings, widths, strict=True):
        justify, wrap = ("right", False) if width is None else ("left", True)
        table.add_column(heading, justify=justify, no_wrap=not wrap, max_width=width)  # type: ignore[arg-type]
    return table


def _changes(finding: Finding, width: int) -> Text:
    """Return the paths that only one side has, a line each, of each side the most contradicted ones."""
    strengths = {contradiction.label.path: contradiction.strength for contradiction in finding.contradictions}
    lines = []
    for sign, style, labels in (("−", "red", finding.given), ("+", "green", finding.suggested)):
        differing = sorted((one.path for one in labels if one.path in strengths), key=lambda path: -strengths[path])
        lines += [Text(f"{sign} {_path(path, width - 2)}", style) for path in differing[:PATHS]]
        if len(differing) > PATHS:
            lines.append(Text(f"{sign} {len(differing) - PATHS:,} more", style))
    return Text("\n").join(lines)


def _path(path: Sequence[str], width: int) -> str:
    """Return as much of the lower end of a path as there is room for."""
    whole = " > ".join(path)
    for first in range(1, len(path)):
        if len(whole) <= width:
            break
        whole = " > ".join(("…", *path[first:]))
    return _cut(whole, width)


def _cut(text: str, room: int) -> str:
    """Return the start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= room else line[: room - 1].rstrip() + "…"
