"""Show predictions and scores to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hgclr.inference.predictions import PredictedLabel, Prediction

__all__ = ["prediction_tree", "score_table"]

BAR = 10


def prediction_tree(text: str, prediction: Prediction) -> Tree:
    """Return the labels of a text as a tree with a bar for each probability.

    A label whose parent was not predicted still hangs below it; the parent is then grey and has no bar. Labels that
    were left out for doubt are grey, with a question mark.
    """
    tree = Tree(Text(text if len(text) <= 100 else text[:99] + "…", "bold"), guide_style="dim")
    given = {label.path: _branch(label) for label in prediction.labels}
    doubtful = {label.path: _doubtful_branch(label) for label in prediction.doubtful}
    branches: dict[tuple[str, ...], Tree] = {(): tree}
    if not given:
        tree.add(Text("no label is sure enough" if doubtful else "no label above the threshold", "yellow"))
    known = given | doubtful
    for whole in known:
        for depth in range(1, len(whole) + 1):
            path = whole[:depth]
            if path not in branches:
                shown = known.get(path, Text(f"{path[-1]} (not predicted itself)", "dim"))
                branches[path] = branches[path[:-1]].add(shown)
    return tree


def _branch(label: PredictedLabel) -> Text:
    colour = "green" if label.probability >= 0.75 else "yellow" if label.probability >= 0.5 else "red"
    return Text.assemble((_bar(label.probability), colour), f" {label.probability:4.0%} ", label.path[-1])


def _doubtful_branch(label: PredictedLabel) -> Text:
    return Text(f"{_bar(label.probability)} {label.probability:4.0%} {label.path[-1]} ?", "dim")


def _bar(probability: float) -> str:
    full = round(BAR * probability)
    return "█" * full + "░" * (BAR - full)


def score_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return Micro- and Macro-F1 over all labels and per level, one row per set of scores (see ``to_json``)."""
    levels = max(len(scores["levels"]) for scores in rows.values())
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("Micro-F1", "Macro-F1", *(f"level {depth + 1}" for depth in range(levels)), "orphans"):
        table.add_column(name, justify="right")
    for name, scores in rows.items():
        per_level = [
            f"{100 * level['micro']['f1']:.1f} / {100 * level['macro']['f1']:.1f}" for level in scores["levels"]
        ]
        table.add_row(
            name,
            f"{100 * scores['micro']['f1']:.2f}",
            f"{100 * scores['macro']['f1']:.2f}",
            *per_level,
            *[""] * (levels - len(per_level)),
            f"{scores['inconsistency_rate']:.1%}",
        )
    table.caption = "levels: micro / macro; orphans: predicted labels whose parent was not predicted"
    table.caption_justify = "left"
    return table
