"""``hgclr compare``: put reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import JsonFile

if TYPE_CHECKING:
    from rich.table import Table

    from hgclr.reporting import Comparison

__all__ = ["compare"]


def compare(
    reports: Annotated[
        list[Path],
        typer.Argument(metavar="REPORT...", help="Folders that hgclr evaluate --report wrote, or their report.json."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write comparison.html, one page that needs nothing else, with a plot and the labels that gained and"
            " lost most; beside it the plot as PNG and SVG, and comparison.json.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare reports with the first of them: is the difference more than chance?

    The reports must be of the same documents and the same label tree. Chance is judged by a paired bootstrap test: both
    models are scored on the same resamples of the documents; **p** is how likely a difference as large is by chance.

    Example: **hgclr compare report-flat report-hgclr --output comparison**
    """
    import json
    import sys

    from rich.console import Console

    from hgclr.files import atomic_file
    from hgclr.reporting import compare as compare_reports
    from hgclr.reporting.comparison_page import write_comparison
    from hgclr.reporting.writing import check_output
    from hgclr.reproduction.provenance import command_line

    if output is not None:
        check_output(output)
    comparison = compare_reports(reports)
    if json_file is not None:
        with atomic_file(json_file) as path:
            path.write_text(json.dumps(comparison.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    console = Console()
    console.print(_table(comparison))
    if output is not None:
        page = write_comparison(output, comparison, command=command_line(["hgclr", *sys.argv[1:]]))
        console.print(f"wrote {page}", highlight=False, markup=False, soft_wrap=True)


def _table(comparison: Comparison) -> Table:
    """Return the scores side by side; differences that chance hardly explains are in colour."""
    from rich.table import Table
    from rich.text import Text

    from hgclr.reporting.comparison_rows import PLAUSIBLE, level_lines, score_lines

    first = comparison.contents[0]
    title = Text(f"{first['data']}, {first['split']}: {first['documents']:,} documents")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column(Text(comparison.names[0]), justify="right")
    for name in comparison.names[1:]:
        for heading in (name, "difference", "p"):
            table.add_column(Text(heading), justify="right")
    colours = {"better": "bold green", "worse": "bold red", None: ""}
    for lines in (score_lines(comparison), level_lines(comparison)):
        for line in lines:
            cells: list[str | Text] = [line.name, line.first]
            for other in line.others:
                cells += [other.value, Text(other.difference, colours[other.verdict]), other.p_value]
            table.add_row(*cells)
        table.add_section()
    table.caption = f"p: of the paired bootstrap test; in colour: p < {PLAUSIBLE}; without p: not resampled"
    table.caption_justify = "left"
    return table
