"""Show predictions and scores to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hgclr.inference.classifier import Prediction

__all__ = ["prediction_tree", "score_table"]

BAR = 10


def prediction_tree(text: str, prediction: Prediction) -> Tree:
    """Return the labels of a text as a tree with a bar for each probability.

    A label whose parent was not predicted still hangs below it; the parent is then grey and has no bar.
    """
    tree = Tree(Text(text if len(text) <= 100 else text[:99] + "…", "bold"), guide_style="dim")
    branches: dict[tuple[str, ...], Tree] = {(): tree}
    probabilities = {label.path: label.probability for label in prediction.labels}
    for label in prediction.labels:
        for depth in range(1, len(label.path) + 1):
            path = label.path[:depth]
            if path not in branches:
                branches[path] = branches[path[:-1]].add(_branch(path[-1], probabilities.get(path)))
    if not prediction.labels:
        tree.add(Text("no label above the threshold", "yellow"))
    return tree


def _branch(name: str, probability: float | None) -> Text:
    if probability is None:
        return Text(f"{name} (not predicted itself)", "dim")
    full = round(BAR * probability)
    colour = "green" if probability >= 0.75 else "yellow" if probability >= 0.5 else "red"
    return Text.assemble(("█" * full + "░" * (BAR - full), colour), f" {probability:4.0%} ", name)


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
