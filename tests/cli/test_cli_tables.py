"""Tables on a terminal of 80 columns: nothing is cut, columns without room stand below."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from hgclr.cli.tables import print_scores, print_table
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy


def printed(width: int, *arguments, **options) -> list[str]:
    stream = io.StringIO()
    print_table(Console(file=stream, width=width, force_terminal=False), *arguments, **options)
    return stream.getvalue().splitlines()


def read(lines: list[str]) -> dict[tuple[str, str], str]:
    """Return the cells of all tables by row and heading, headings put together from their lines."""
    cells: dict[tuple[str, str], str] = {}
    headings: list[str] = []
    for line in lines:
        parts = [part.strip() for part in re.split("[┃│]", line)[1:-1]]
        if line.startswith("┏"):
            headings = []
        elif line.startswith("┃"):
            headings = (
                [" ".join(filter(None, pair)) for pair in zip(headings, parts, strict=True)] if headings else parts
            )
        elif line.startswith("│"):
            cells |= {(parts[0], heading): cell for heading, cell in zip(headings[1:], parts[1:], strict=True)}
    return cells


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_cell_and_heading_is_whole_at_any_width(width: int) -> None:
    headings = ["", "Micro-F1", "gain over BERT, paper", *(f"level {n}" for n in range(1, 9)), "[orphans]"]
    rows = [[name, *(f"{10 * n + k}.25 / 81.5" for n in range(len(headings) - 1))] for k, name in enumerate("abc")]
    title = "runs/a-model-with-a-long-name on /some/where/far/down/in/folders/there-is-a-data-folder-of-this-name"
    lines = printed(width, headings, rows, title=title)
    assert lines[0] == title
    assert all(len(line) <= width for line in lines[1:])
    assert "…" not in "".join(lines)
    expected = {(row[0], heading): cell for row in rows for heading, cell in zip(headings[1:], row[1:], strict=True)}
    assert read(lines[1:]) == expected
    assert sum(line.startswith("┏") for line in lines) == {40: 6, 80: 3, 200: 1}[width]


def test_columns_of_text_stand_before_each_part() -> None:
    rows = [["closure", "label, chosen", *["12.34"] * 9]]
    lines = printed(60, ["decoding rule", "thresholds", *(f"number {n}" for n in range(9))], rows, texts=2)
    starts = [line for line in lines if line.startswith("│")]
    assert len(starts) > 1
    assert all(line.startswith("│ closure") and "label, chosen" in line for line in starts)
    assert "".join(starts).count("12.34") == 9


def printed_scores(name: str, scores: dict[str, object]) -> str:
    stream = io.StringIO()
    print_scores("model on data", {name: scores}, Console(file=stream, width=80))
    return stream.getvalue()


@pytest.mark.parametrize("labels", [2, 4])
def test_what_labels_without_a_document_do_to_macro_f1_is_told(labels: int) -> None:
    scores = MultiLabelScores(Taxonomy([str(label) for label in range(labels)], [-1] * labels))
    gold = np.zeros((1, labels), dtype=bool)
    gold[0, :2] = True
    scores.update(gold, gold)
    text = " ".join(printed_scores("test", scores.to_json()).split())
    told = "test: 2 of 4 labels are on no document and never predicted, and count as 0; without them Macro-F1 is 100.00"
    assert (told in text) == (labels == 4)
    assert ("never predicted" in text) == (labels == 4)


def test_scores_of_a_deep_tree() -> None:
    f1 = {"f1": 0.875}
    level = {"micro": f1, "macro": f1}
    present = {"labels": 50, **f1}
    scores = {**level, "labels": 50, "macro_present": present, "levels": [level] * 7, "inconsistency_rate": 0.125}
    text = printed_scores("test (4500 documents)", scores)
    assert all(f"level {depth}" in text for depth in range(1, 8))
    assert text.count("87.5 / 87.5") == 7
    assert "12.5%" in text
