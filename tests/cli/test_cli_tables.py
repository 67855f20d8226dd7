"""Tables, predictions and explanations on a terminal: nothing is cut, and control characters do no harm."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from hgclr.cli.console import Console, print_table
from hgclr.cli.tables import prediction_tree, print_explanations, print_positive_samples
from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, Word
from hgclr.evaluation.positive_samples import PositiveSample
from hgclr.inference.classifier import BLANK, UNLIKE, PredictedLabel, Prediction


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


@pytest.mark.parametrize(("colours", "expected"), [(None, "a ice[ fire]"), ("standard", "a ice\x1b[1;4m fire\x1b[0m")])
def test_kept_tokens_are_marked_with_and_without_a_terminal(colours: str | None, expected: str) -> None:
    kept = np.array([[False, False, True], [False, True, False]])
    words, spans = (Word(0, 1), Word(2, 5), Word(5, 10)), ((0, 1), (2, 5), (5, 10))
    sample = PositiveSample("a ice fire", ("x",), ("x",), words, 0, spans, np.arange(3), kept)
    console = Console(file=io.StringIO(), force_terminal=colours is not None, width=80, color_system=colours)
    print_positive_samples([sample], "half", console)
    assert expected in re.sub(r"\x1b\[2m(.*?)\x1b\[0m", r"\1", console.file.getvalue())


def test_marks_stay_in_their_places_beside_control_characters() -> None:
    text = "a\r\n\x1b[2Jice\x07 fire"
    words = tuple(Word(text.index(word), text.index(word) + len(word)) for word in ("a", "ice", "fire"))
    label = ExplainedLabel(PredictedLabel("x", ("x",), 0.9), "predicted", (0.0, 1.0, 0.0), (1,), 0.9, 0.5, 0.1)
    explanation = Explanation(text, "occlusion", words, 0, (label,), 0, 0.3, Stability((1,), (), ()))
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor")
    print_explanations([explanation], console)
    assert "\x1b[2J" not in console.file.getvalue()
    assert re.search(r"\x1b\[1;30;48;2;[\d;]+mice\x1b\[0m", console.file.getvalue())


def test_a_note_is_shown_with_and_without_labels() -> None:
    label = PredictedLabel("law", ("law",), 0.75)
    for prediction, words in ((Prediction((label,), note=UNLIKE), ["law", UNLIKE]), (BLANK, [BLANK.note])):
        stream = io.StringIO()
        Console(file=stream, width=200, force_terminal=False).print(prediction_tree("a text", prediction))
        assert all(word in stream.getvalue() for word in words)
