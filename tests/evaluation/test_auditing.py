"""What an audit says: paths, pairs, labels, predictions, places in files; and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgclr.data import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.audit import LabelSurvey, audit, audit_decisions, survey_labels
from hgclr.taxonomy import Taxonomy
from support.audit_cases import KnownClassifier, write_folder

TREE = Taxonomy(["A", "a1", "a2", "B", "b1"], [-1, 0, 0, -1, 3], ["Art", "one", "two", "Biology", "one"])


def row(**probabilities: float) -> np.ndarray:
    return np.array([probabilities.get(label, 0.01) for label in TREE.ids])


def run(tmp_path: Path, *documents: tuple[str, set[str], np.ndarray], **settings):
    labelled = [(text, {TREE.ids.index(label) for label in labels}) for text, labels, _ in documents]
    answers = {text: answer for text, _, answer in documents}
    top = settings.pop("top", 50)
    return audit(KnownClassifier(TREE, answers, **settings), write_folder(tmp_path / "data", TREE, labelled), top=top)


def test_a_finding_names_both_paths_and_where_they_part(tmp_path: Path) -> None:
    found = run(tmp_path, ("x", {"A", "a1"}, row(A=0.9, a2=0.8)), ("y", {"A", "a1"}, row(A=0.9, a1=0.9)))
    (finding,) = found.findings
    assert (finding.row, finding.kind, finding.level, finding.common) == (1, "other path", 2, ("Art",))
    assert [(label.id, label.path) for label in finding.gold] == [("a1", ("Art", "one"))]
    assert [(label.id, label.path) for label in finding.predicted] == [("a2", ("Art", "two"))]
    assert finding.predicted[0].probability == pytest.approx(0.8)
    assert [(one.label.id, one.gold) for one in finding.contradictions] == [("a1", True), ("a2", False)]
    assert found.kinds == {"other path": 1}


def test_several_paths_part_where_they_are_nearest(tmp_path: Path) -> None:
    """Gold A > a1 and B, predicted A > a2 and B > b1: a1 and a2 part below A, b1 is below B."""
    documents = [
        ("x", {"A", "a1", "B"}, row(A=0.9, a2=0.9, B=0.9, b1=0.9)),
        ("far", {"A", "a1", "B"}, row(A=0.9, B=0.9, b1=0.9)),
    ]
    found = run(tmp_path, *documents, rule="closure")
    near, far = sorted(found.findings, key=lambda finding: finding.row)
    assert (near.level, near.common) == (2, ("Art",))
    assert (far.level, far.common) == (1, ())  # a1 is extra, b1 is missing: they have nothing in common
    assert [label.id for label in near.predicted] == ["a2", "b1"]
    assert [(pair.first, pair.second) for pair in found.pairs] == [("a1", "a2")]  # b1 is no sibling of a1


def test_pairs_are_counted_in_both_directions_where_paths_part_and_at_their_ends(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        ("1", {"A", "a1"}, row(B=0.9, b1=0.9)),
        ("2", {"B", "b1"}, row(A=0.9, a1=0.95)),
        ("3", {"B", "b1"}, row(A=0.9, a1=0.90)),
        ("4", {"B", "b1"}, row(A=0.9, a2=0.9)),
        ("5", {"A", "a1"}, row(A=0.9, a2=0.9)),
    )
    counts = {(pair.first, pair.second): (pair.first_gold, pair.second_gold) for pair in found.pairs}
    assert counts == {("A", "B"): (1, 3), ("a1", "b1"): (1, 2), ("a2", "b1"): (0, 1), ("a1", "a2"): (1, 0)}
    assert [pair.documents for pair in found.pairs] == [4, 3, 1, 1]
    assert found.pairs[1].paths == (("Art", "one"), ("Biology", "one"))
    rank = [finding.text for finding in found.findings]
    shown = [text for _, text in found.pairs[1].examples]
    assert shown == sorted("123", key=rank.index)[:2]  # those that are contradicted most


def test_labels_are_ranked_by_what_is_sure_to_be_wrong(tmp_path: Path) -> None:
    """Of a1 10 of 40 documents are wrong, of a2 1 of 2: the larger share is less sure. Doubts do not count."""
    right = {"a1": row(A=0.9, a1=0.9), "a2": row(A=0.9, a2=0.9), "b1": row(B=0.9, b1=0.9)}
    documents = [(f"a1 {n}", {"A", "a1"}, right["b1"] if n < 10 else right["a1"]) for n in range(40)]
    documents += [(f"a2 {n}", {"A", "a2"}, right["b1"] if n < 1 else right["a2"]) for n in range(2)]
    documents += [(f"b1 {n}", {"B", "b1"}, row(A=0.5, a1=0.5, B=0.4, b1=0.4)) for n in range(10)]
    found = run(tmp_path, *documents)
    counts = {label.id: (label.wrong, label.gold, label.missing) for label in found.suspect_labels}
    assert counts == {"A": (11, 42, 0), "a1": (10, 40, 0), "a2": (1, 2, 0)}
    assert [label.id for label in found.suspect_labels] == ["A", "a1", "a2"]
    assert found.suspect_labels[1].error_rate == 0.25
    assert found.contradicted == 21


@pytest.mark.parametrize(
    ("one_path", "ends_inside", "expected"),
    [(True, False, ("best-path", False)), (True, True, ("best-path", True)), (False, True, ("closure", True))],
)
def test_predictions_are_whole_paths(one_path: bool, ends_inside: bool, expected: tuple[str, bool]) -> None:
    survey = LabelSurvey(9, one_path, ends_inside)
    decisions = audit_decisions(Decisions(TREE, thresholds=0.3, abstain_below=0.9), survey)
    assert (decisions.rule, decisions.allow_inner_nodes) == expected
    assert (decisions.thresholds, decisions.abstain_below) == (0.3, None)
    own = Decisions(TREE, rule="drop-orphans", abstain_below=0.9)
    assert audit_decisions(own, survey).to_json() == replace(own, abstain_below=None).to_json()


def test_the_survey_sees_paths(tmp_path: Path) -> None:
    cases = {
        "leaves": ([{0, 1}, {3, 4}], True, False),
        "inside": ([{0, 1}, {3}], True, True),
        "several": ([{0, 1}, {0, 1, 2}], False, False),
    }
    for name, (labels, one_path, ends_inside) in cases.items():
        folder = write_folder(tmp_path / name, TREE, [("x", own) for own in labels])
        assert survey_labels(folder, "dev") == LabelSurvey(2, one_path, ends_inside)


def test_the_row_is_the_line_in_the_file(tmp_path: Path) -> None:
    TREE.write(tmp_path / "taxonomy.json")
    (tmp_path / "dev.csv").write_text('text,labels\n"two\nlines",A\n\nshort,A\nbad,Q\nlast,A;a1\n')
    answers = {text: row(B=0.9) for text in ("two\nlines", "short", "last")}
    folder = DataFolder(tmp_path, skip_bad_rows=True)
    found = audit(KnownClassifier(folder.taxonomy, answers), folder)
    assert {finding.text: finding.row for finding in found.findings} == {"two\nlines": 2, "short": 5, "last": 7}
    assert found.documents == 3


def test_bad_input_is_refused_before_the_model_runs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", TREE, [("x", {0})])
    classifier = KnownClassifier(TREE, {})
    with (folder.path / "dev.jsonl").open("a") as file:
        file.write('{"text": "y", "labels": ["a1"]}\n')
    with pytest.raises(InputError, match=r"dev\.jsonl:2: label without its parent.*add the parent"):
        audit(classifier, folder)
    with pytest.raises(InputError, match="no split 'test'; it has: dev"):
        audit(classifier, folder, "test")
    other = KnownClassifier(Taxonomy(["A", "B"], [-1, -1]), {})
    with pytest.raises(InputError, match="another label tree than the model has; open the folder with taxonomy="):
        audit(other, folder)
    (folder.path / "dev.jsonl").write_text("\n")
    with pytest.raises(InputError, match="empty split: no rows"):
        audit(classifier, folder)
    assert not classifier.asked


def test_auditing_train_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path / "data", TREE, [("x", {0})], split="train")
    audit(KnownClassifier(TREE, {"x": row(A=0.9)}), folder, "train")
    assert "it has learned their errors" in caplog.text
    assert "--folds" in caplog.text


def test_a_model_that_contradicts_most_of_the_data_is_doubted_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [(f"{n}", {"A"}, row(B=0.9) if n < 3 else row(A=0.9)) for n in range(5)]
    assert run(tmp_path, *documents).contradicted == 3
    assert "would label 3 of 5 documents otherwise: this may say more about the model" in caplog.text
    caplog.clear()
    run(tmp_path, *documents[1:])
    assert not caplog.text


def test_nothing_is_found_where_all_agree(tmp_path: Path) -> None:
    found = run(tmp_path, ("x", {"A", "a1"}, row(A=0.9, a1=0.9)))
    assert (found.documents, found.contradicted, found.findings, found.pairs, found.suspect_labels) == (
        1,
        0,
        (),
        (),
        (),
    )
    assert json.loads(json.dumps(found.to_json()))["kinds"] == {}


def test_a_document_without_a_predicted_label_is_found(tmp_path: Path) -> None:
    (finding,) = run(tmp_path, ("x", {"A"}, row()), rule="closure").findings
    assert (finding.kind, finding.predicted, finding.level) == ("extra label", (), 1)


def test_the_audit_needs_no_torch() -> None:
    code = "import sys, hgclr.evaluation.audit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
