"""Write a table as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgclr.files import atomic_file
from hgclr.paper.summary import AVERAGES, Line, Spread, Summary

__all__ = ["MISSING", "cells", "columns", "rounded", "write_table"]

MISSING = "—"


def write_table(summary: Summary, folder: Path) -> list[Path]:
    """Write a table into ``folder``, each file whole or not at all, and return the files."""
    texts = {
        "md": markdown(summary),
        "csv": comma_separated(summary),
        "json": json.dumps(rounded(summary.to_json()), indent=2, ensure_ascii=False) + "\n",
    }
    files = []
    for suffix, text in texts.items():
        files.append(folder / f"{summary.name}.{suffix}")
        with atomic_file(files[-1]) as path:
            path.write_text(text, encoding="utf-8", newline="")
    return files


def columns(summary: Summary) -> list[str]:
    """Return the headings of the table; columns for which no row has a figure are left out."""
    gain = f"gain over {summary.base}"
    paper, tuned = _has_paper(summary), _has_tuned(summary)
    ours = "at one half" if tuned else "ours"
    return [
        "Micro / Macro-F1",
        *(["paper", ours, "ours − paper", f"{gain}, paper", f"{gain}, ours"] if paper else [ours, gain]),
        *(["tuned on dev", "gain, tuned"] if tuned else []),
        "seeds",
        "seconds",
        "kept",
    ]


def cells(summary: Summary, line: Line) -> list[str]:
    """Return the cells of a row, as people read them."""
    ours = "refused" if line.ours is None and line.refused else _pair(line.ours)
    gain = _pair(line.gain, signed=True)
    paper = [_pair(line.paper)], [_pair(line.difference, signed=True), _pair(line.paper_gain, signed=True)]
    scores = [*paper[0], ours, *paper[1], gain] if _has_paper(summary) else [ours, gain]
    if _has_tuned(summary):
        scores += [_pair(line.tuned), _pair(line.tuned_gain, signed=True)]
    seconds = MISSING if line.seconds is None else f"{line.seconds.mean:,.0f}"
    kept = MISSING if line.kept is None else f"{line.kept.mean:.1%}"
    return [line.title, *scores, str(len(line.runs)), seconds, kept]


def markdown(summary: Summary) -> str:
    """Return the table with its title, what it was made from, and its notes."""
    head = columns(summary)
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *(cells(summary, line) for line in summary.lines)]
    lines = [f"# {summary.title}", "", summary.setting + ".", ""]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", *(f"- {note}" for note in [*summary.notes, *_machines(summary)])]
    if summary.command:
        lines += ["", f"Made by `{summary.command}`."]
    return "\n".join(lines) + "\n"


def comma_separated(summary: Summary) -> str:
    """Return the table with one number per column, unrounded, empty where there is none."""
    names = ["key", "title", "seeds"]
    for average in AVERAGES:
        names += [
            f"{average}_{name}" for name in ("paper", "mean", "sd", "difference", "paper_gain", "gain", "gain_sd")
        ]
        names += [f"{average}_tuned_{name}" for name in ("mean", "sd", "gain", "gain_sd")]
    names += ["seconds", "kept", "refused"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for line in summary.lines:
        row: list[Any] = [line.key, line.title, len(line.runs)]
        for average in AVERAGES:
            ours, gain = (spreads and spreads.get(average) for spreads in (line.ours, line.gain))
            row += [_value(line.paper, average), ours and ours.mean, ours and ours.sd, _value(line.difference, average)]
            row += [_value(line.paper_gain, average), gain and gain.mean, gain and gain.sd]
            for spread in (spreads and spreads.get(average) for spreads in (line.tuned, line.tuned_gain)):
                row += [spread and spread.mean, spread and spread.sd]
        row += [line.seconds and line.seconds.mean, line.kept and line.kept.mean, "; ".join(line.refused.values())]
        writer.writerow(["" if cell is None else round(cell, 4) if isinstance(cell, float) else cell for cell in row])
    return text.getvalue()


def _has_paper(summary: Summary) -> bool:
    return any(line.paper is not None for line in summary.lines)


def _has_tuned(summary: Summary) -> bool:
    return any(line.tuned is not None for line in summary.lines)


def _value(values: Mapping[str, float] | None, average: str) -> float | None:
    return None if values is None else values[average]


def _pair(values: Mapping[str, float | Spread] | None, *, signed: bool = False) -> str:
    """Return Micro- and Macro-F1 in one cell."""
    if values is None:
        return MISSING
    return " / ".join(_number(values[average], signed) for average in AVERAGES)


def _number(value: float | Spread, signed: bool) -> str:
    mean, sd = value, ""
    if isinstance(value, Spread):
        mean, sd = value.mean, f" ± {MISSING if value.sd is None else f'{value.sd:.2f}'}"
    return (f"{mean:+.2f}" if signed else f"{mean:.2f}") + sd


def _machines(summary: Summary) -> list[str]:
    """Return a note for each machine and commit that runs were made on."""
    notes = []
    for facts in summary.machines:
        commit = MISSING if facts["commit"] is None else str(facts["commit"])[:10]
        changed = " with changes" if facts["modified"] else ""
        packages = ", ".join(f"{name} {facts['packages'].get(name)}" for name in ("torch", "transformers"))
        notes.append(f"Commit {commit}{changed}; {facts['processor']}, {facts['threads']} threads; {packages}.")
    return list(dict.fromkeys(notes))


def rounded(value: Any) -> Any:
    """Return the same with numbers short enough to read; more digits than any score is sure of."""
    if isinstance(value, dict):
        return {str(name): rounded(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return round(value, 6) if isinstance(value, float) and abs(value) > 0.01 else value
