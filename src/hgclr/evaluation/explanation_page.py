"""Explanations as one HTML page: choose a label to see its words. It needs no script."""

from __future__ import annotations

from collections.abc import Sequence

from hgclr.evaluation.explanation import METHODS, Explanation, counted
from hgclr.presentation import render_page

__all__ = ["explanation_page"]


def explanation_page(explanations: Sequence[Explanation], *, model: str) -> str:
    """Return the page.

    Args:
        explanations: of some texts, at least one.
        model: how to call the model.
    """
    return render_page(
        "evaluation/templates/explanation.html",
        explanations=explanations,
        model=model,
        methods=[METHODS[method] for method in dict.fromkeys(each.method for each in explanations)],
        most_labels=max(len(explanation.labels) for explanation in explanations),
        counted=counted,
        levels=4,  # of marks, as explanation.css has them
        listed_words=5,
        excerpt=60,  # characters of a text that are its heading
    )
