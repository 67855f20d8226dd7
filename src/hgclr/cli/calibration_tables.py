"""Show what calibration has found: how good decisions were and are, how they are made, what else was compared."""

from __future__ import annotations

from dataclasses import astuple

from rich.console import Console
from rich.table import Table

from hgclr.decisions.tuning import Calibrated, Quality

__all__ = ["candidate_table", "decision_table", "print_calibrated"]


def print_calibrated(found: Calibrated, console: Console) -> None:
    """Print the decisions that were found, and how good they are beside those before them."""
    console.print(decision_table(found))
    before, after = found.calibration_before, found.calibration_after
    error = f"calibration error {before.ece():.2%} → {after.ece():.2%}"
    lines = [
        found.decisions.summary(),
        f"{error}, Brier score {before.brier():.4f} → {after.brier():.4f}",
    ]
    if found.decisions.sure is not None:
        lines.append(f"labels less probable than {found.decisions.sure:.1%} are left out as doubtful")
    for line in lines:
        console.print(line, highlight=False, markup=False)


def decision_table(found: Calibrated) -> Table:
    """Return the quality of decisions before and after, on documents that they were not fitted to."""
    title = f"decisions on {found.decisions.found['documents']:,} documents, held out"
    table = _table(title, "", "Micro-F1", "Macro-F1", "precision", "recall", "exact")
    table.add_row("before", *_cells(found.before))
    table.add_row("after" if found.best is not None else "after (the same)", *_cells(found.after), style="bold")
    return table


def candidate_table(found: Calibrated) -> Table:
    """Return all that was compared, the chosen one marked."""
    table = _table("compared", "decoding rule", "Micro-F1", "Macro-F1", "mean", "exact", first="thresholds")
    for candidate in found.candidates:
        quality, chosen = candidate.held_out, candidate is found.best
        values = (quality.micro_f1, quality.macro_f1, quality.by("both"), quality.exact)
        name = f"{candidate.thresholds}, chosen" if chosen else candidate.thresholds
        table.add_row(
            candidate.rule, name, *(f"{100 * value:.2f}" for value in values), style="bold green" if chosen else None
        )
    return table


def _table(title: str, name: str, *columns: str, first: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(name)
    if first is not None:
        table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _cells(quality: Quality) -> list[str]:
    return [f"{100 * value:.2f}" for value in astuple(quality)]
