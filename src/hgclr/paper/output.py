"""A table in words: as people read it, and as Markdown, CSV and JSON files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hgclr.files import write_files
from hgclr.paper.curves import Point
from hgclr.paper.summary import AVERAGES, Spread, Summary, TableLine

__all__ = ["MISSING", "markdown_table", "rounded", "table_cells", "time_shown", "write_table"]

MISSING = "—"


def write_table(summary: Summary, folder: Path) -> list[Path]:
    """Write a table into ``folder``, each file whole or not at all, and return the files."""
    texts = {
        "md": markdown(summary),
        "csv": comma_separated(summary),
        "json": json.dumps(rounded(summary.to_json()), indent=2, ensure_ascii=False) + "\n",
    }
    return write_files(folder, {f"{summary.name}.{suffix}": text.encode() for suffix, text in texts.items()})


def table_cells(summary: Summary) -> list[list[str]]:
    """Return the headings and then each row's cells; columns for which no row has a figure are left out."""
    paper = any(line.paper is not None for line in summary.lines)
    tuned = any(line.tuned is not None for line in summary.lines)
    gain = f"gain over {summary.base}"
    columns: dict[str, Callable[[TableLine], str]] = {"Micro / Macro-F1": lambda line: line.title}
    if paper:
        columns["paper"] = lambda line: _pair(line.paper)
    columns["at one half" if tuned else "ours"] = lambda line: (
        "refused" if line.ours is None and line.refused else _pair(line.ours)
    )
    if paper:
        columns["ours − paper"] = lambda line: _pair(line.difference, signed=True)
        columns[f"{gain}, paper"] = lambda line: _pair(line.paper_gain, signed=True)
    columns[f"{gain}, ours" if paper else gain] = lambda line: _pair(line.gain, signed=True)
    if tuned:
        columns["tuned on dev"] = lambda line: _pair(line.tuned)
        columns["gain, tuned"] = lambda line: _pair(line.tuned_gain, signed=True)
    columns["seeds"] = lambda line: str(len(line.runs))
    time, unit = time_shown(summary.lines)
    columns[unit] = lambda line: MISSING if (spent := getattr(line, time)) is None else f"{spent.mean:,.0f}"
    columns["kept"] = lambda line: MISSING if line.kept is None else f"{line.kept.mean:.1%}"
    return [list(columns), *([cell(line) for cell in columns.values()] for line in summary.lines)]


def time_shown(timed: Iterable[TableLine | Point]) -> tuple[str, str]:
    """Return which time of training to show, as a name and in words: CPU time, if all have it, else that of the clock.

    A busy machine makes the clock's longer.
    """
    if all(one.cpu_seconds is not None for one in timed if one.seconds is not None):
        return "cpu_seconds", "CPU seconds"
    return "seconds", "seconds"


def _pair(values: Mapping[str, float | Spread] | None, *, signed: bool = False) -> str:
    """Return Micro- and Macro-F1 in one cell."""
    return MISSING if values is None else " / ".join(_number(values[average], signed) for average in AVERAGES)


def _number(value: float | Spread, signed: bool) -> str:
    mean, sd = value, ""
    if isinstance(value, Spread):
        mean, sd = value.mean, f" ± {MISSING if value.sd is None else f'{value.sd:.2f}'}"
    return (f"{mean:+.2f}" if signed else f"{mean:.2f}") + sd


def markdown(summary: Summary) -> str:
    """Return the table with its title, what it was made from, and its notes."""
    lines = [f"# {summary.title}", "", summary.setting + ".", "", *markdown_table(table_cells(summary)), ""]
    lines += [f"- {note}" for note in [*summary.notes, *_machines(summary)]]
    if summary.command:
        lines += ["", f"Made by `{summary.command}`."]
    return "\n".join(lines) + "\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first row are headings and whose first column is text, the others numbers."""
    ruled = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in ruled]


def _machines(summary: Summary) -> list[str]:
    """Return a note for each machine and commit that runs were made on."""
    notes = []
    for facts in summary.machines:
        commit = MISSING if facts["commit"] is None else str(facts["commit"])[:10]
        changed = " with changes" if facts["modified"] else ""
        packages = ", ".join(f"{name} {facts['packages'].get(name)}" for name in ("torch", "transformers"))
        notes.append(f"Commit {commit}{changed}; {facts['processor']}, {facts['threads']} threads; {packages}.")
    return list(dict.fromkeys(notes))


def comma_separated(summary: Summary) -> str:
    """Return the table with one number per column, empty where there is none."""
    text = io.StringIO()
    rows = [_numbers(line) for line in summary.lines]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
    return text.getvalue()


def _numbers(line: TableLine) -> dict[str, Any]:
    """Return the cells of a row of the CSV by column."""
    row: dict[str, Any] = {"key": line.key, "title": line.title, "seeds": len(line.runs)}
    for average in AVERAGES:
        ours, gain, tuned, tuned_gain = (
            (None, None) if spreads is None else (spreads[average].mean, spreads[average].sd)
            for spreads in (line.ours, line.gain, line.tuned, line.tuned_gain)
        )
        paper, difference, paper_gain = (
            None if values is None else values[average] for values in (line.paper, line.difference, line.paper_gain)
        )
        cells = {
            "paper": paper,
            "mean": ours[0],
            "sd": ours[1],
            "difference": difference,
            "paper_gain": paper_gain,
            "gain": gain[0],
            "gain_sd": gain[1],
            "tuned_mean": tuned[0],
            "tuned_sd": tuned[1],
            "tuned_gain": tuned_gain[0],
            "tuned_gain_sd": tuned_gain[1],
        }
        row |= {f"{average}_{name}": value for name, value in cells.items()}
    for name in ("seconds", "cpu_seconds", "kept"):
        spread: Spread | None = getattr(line, name)
        row[name] = None if spread is None else spread.mean
    return row | {"refused": "; ".join(line.refused.values())}


def rounded(value: Any) -> Any:
    """Return the same with numbers short enough to read; more digits than any score is sure of."""
    if isinstance(value, dict):
        return {str(name): rounded(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return round(value, 6) if isinstance(value, float) and abs(value) > 0.01 else value
