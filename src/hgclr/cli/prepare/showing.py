"""Run the preparation of a corpus with a progress bar, and say what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgclr.data.folder_writer import Progress, Summary

__all__ = ["prepare_with_bar", "show_summary"]


def prepare_with_bar(unit: str, build: Callable[[Progress], Summary]) -> Summary:
    """Build a corpus, with a progress bar on standard error where that is a terminal.

    Args:
        unit: what the progress counts, as "files".
        build: takes the progress to report to.
    """
    from hgclr.cli.console import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(unit, total=None)
        return build(lambda done, total: bar.update(task, completed=done, total=total))


def show_summary(summary: Summary) -> None:
    """Print what was written and, on standard error, what was left out."""
    from rich.console import Console

    from hgclr.cli.console import standard_error
    from hgclr.data.folder_writer import LEFT_OUT

    counts = ", ".join(f"{split} {count:,}" for split, count in summary.documents.items() if count)
    Console().print(f"wrote {summary.output}: {counts}", highlight=False, markup=False, soft_wrap=True)
    for reason, count in summary.left_out.most_common():
        line = f"left out {count:,} document{'s' * (count > 1)}: {reason}; see {summary.output / LEFT_OUT}"
        standard_error().print(line, style="yellow", markup=False, soft_wrap=True)
