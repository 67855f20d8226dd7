"""Tables, predictions and explanations on a terminal: nothing is cut, and control characters do no harm."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from hgclr.cli.console import Console, print_table
from hgclr.cli.tables import prediction_tree, print_explanations, print_scores
from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, Word
from hgclr.inference.predictions import PredictedLabel, Prediction
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy


def printed(width: int, *arguments, **options) -> list[str]:
    stream = io.StringIO()
    print_table(Console(file=stream, width=width, force_terminal=False), *arguments, **options)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("width", "tables"), [(40, 6), (80, 3), (200, 1)])
def test_every_number_is_whole_at_any_width(width: int, tables: int) -> None:
    headings = ["", "Micro-F1", "gain over BERT, paper", *(f"level {n}" for n in range(1, 9)), "[orphans]"]
    rows = [[name, *(f"{10 * n + k}.25 / 81.5" for n in range(len(headings) - 1))] for k, name in enumerate("abc")]
    title = "runs/a-model-with-a-long-name on /some/where/far/down/in/folders/there-is-a-data-folder-of-this-name"
    lines = printed(width, headings, rows, title=title)
    assert lines[0] == title
    assert all(len(line) <= width for line in lines[1:])
    assert sum(line.lstrip().startswith("─") for line in lines) == tables
    for row in rows:
        cells = [line for line in lines[1:] if line.startswith(f"{row[0]} ")]
        assert " ".join(" ".join(line.split()[1:]) for line in cells) == " ".join(row[1:])
    for word in " ".join(headings).split():
        assert word in " ".join(lines)


def test_columns_of_text_are_before_each_part() -> None:
    rows = [["closure", "label, chosen", *["12.34"] * 9]]
    lines = printed(60, ["decoding rule", "thresholds", *(f"number {n}" for n in range(9))], rows, texts=2)
    starts = [line for line in lines if line.startswith("closure")]
    assert len(starts) > 1
    assert all("label, chosen" in line for line in starts)
    assert "".join(starts).count("12.34") == 9


def printed_scores(name: str, scores: dict[str, object]) -> str:
    stream = io.StringIO()
    print_scores("model on data", {name: scores}, Console(file=stream, width=80))
    return stream.getvalue()


@pytest.mark.parametrize("labels", [2, 4])
def test_labels_without_a_document_are_counted(labels: int) -> None:
    scores = MultiLabelScores(Taxonomy([str(label) for label in range(labels)], [-1] * labels))
    gold = np.zeros((1, labels), dtype=bool)
    gold[0, :2] = True
    scores.update(gold, gold)
    assert ("2 of 4 labels" in printed_scores("test", scores.to_json())) == (labels == 4)


def test_scores_of_a_deep_tree() -> None:
    f1 = {"f1": 0.875}
    level = {"micro": f1, "macro": f1}
    present = {"labels": 50, **f1}
    scores = {**level, "labels": 50, "macro_present": present, "levels": [level] * 7, "inconsistency_rate": 0.125}
    text = printed_scores("test (4500 documents)", scores)
    assert all(f"level {depth}" in text for depth in range(1, 8))
    assert text.count("87.5 / 87.5") == 7
    assert "12.5%" in text


def drawn(prediction: Prediction) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(prediction_tree("a text", prediction))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_prediction_is_a_tree_with_bars() -> None:
    sure, unsure = PredictedLabel("s", ("science",), 0.97), PredictedLabel("p", ("science", "physics"), 0.61)
    assert drawn(Prediction((sure,), (unsure,)))[1:] == [
        "└── ██████████  97% science",
        "    └── ██████░░░░  61% physics ?",
    ]
    for nothing in (Prediction((), (unsure,)), Prediction(())):
        assert "no label" in drawn(nothing)[1]
    lines = drawn(Prediction((unsure,)))  # its parent was not predicted, and has no bar
    assert len(lines) == 3
    assert "█" not in lines[1]


def test_marks_stay_in_their_places_beside_control_characters() -> None:
    text = "a\r\n\x1b[2Jice\x07 fire"
    words = tuple(Word(text.index(word), text.index(word) + len(word)) for word in ("a", "ice", "fire"))
    label = ExplainedLabel(PredictedLabel("x", ("x",), 0.9), "predicted", (0.0, 1.0, 0.0), (1,), 0.9, 0.5, 0.1)
    explanation = Explanation(text, "occlusion", words, 0, (label,), 0, 0.3, Stability((1,), (), ()))
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor")
    print_explanations([explanation], console)
    assert "\x1b[2J" not in console.file.getvalue()
    assert re.search(r"\x1b\[1;30;48;2;[\d;]+mice\x1b\[0m", console.file.getvalue())
