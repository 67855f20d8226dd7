"""Findings, pairs, labels and rows of an audit; its files; errors."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgclr.data import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.audit import (
    COLUMNS,
    Audit,
    LabelSurvey,
    audit,
    audit_csv,
    audit_decisions,
    write_audit,
)
from hgclr.files import write_json
from hgclr.taxonomy import Taxonomy
from support.audit_cases import KnownClassifier, write_folder
from support.html import HtmlReader

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
    assert (finding.row, finding.kind, finding.level) == (1, "other path", 2)
    assert [(label.id, label.path) for label in finding.gold] == [("a1", ("Art", "one"))]
    assert [(label.id, label.path) for label in finding.predicted] == [("a2", ("Art", "two"))]
    assert finding.predicted[0].probability == pytest.approx(0.8)
    assert [(one.label.id, one.gold) for one in finding.contradictions] == [("a1", True), ("a2", False)]
    assert found.kinds == {"other path": 1}


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
    """10 of 40 documents of a1 are wrong and 1 of 2 of a2: the larger share is less certain. Weak ones do not count."""
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
    with pytest.raises(InputError) as caught:
        audit(classifier, folder)
    assert caught.value.line == 2
    with pytest.raises(InputError, match="test"):
        audit(classifier, folder, "test")
    other = KnownClassifier(Taxonomy(["A", "B"], [-1, -1]), {})
    with pytest.raises(InputError, match="another label tree"):
        audit(other, folder)
    (folder.path / "dev.jsonl").write_text("\n")
    with pytest.raises(InputError):
        audit(classifier, folder)
    assert not classifier.asked


def test_a_doubtful_audit_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Warn if the model contradicts most documents, or may have been trained on them."""
    documents = [(f"{n}", {"A"}, row(B=0.9) if n < 3 else row(A=0.9)) for n in range(5)]
    assert run(tmp_path, *documents).contradicted == 3
    assert "3 of 5 documents" in caplog.text
    caplog.clear()
    run(tmp_path, *documents[1:])
    assert not caplog.text
    folder = write_folder(tmp_path / "train", TREE, [("x", {0})], split="train")
    audit(KnownClassifier(TREE, {"x": row(A=0.9)}), folder, "train")
    assert "hgclr audit DATA" in caplog.text


TEXTS = ['a "quoted", text; with\nlines', "<script>alert('x')</script> & co", "ünïcode 日本", "x" * 2000]
NAMED = Taxonomy(["A", "a1", "a2", "B"], [-1, 0, 0, -1], ["R&D <lab>", "one", "two", "Biology"])


@pytest.fixture
def found(tmp_path: Path) -> Audit:
    answers = {text: np.array([0.9, 0.0004, 0.9 - 0.1 * n, 0.01]) for n, text in enumerate(TEXTS)}
    documents = [(text, {0, 1} if n else {0, 1, 3}) for n, text in enumerate(TEXTS)]
    folder = write_folder(tmp_path / "data", NAMED, documents)
    return audit(KnownClassifier(NAMED, answers, rule="closure"), folder)


def test_the_table_comes_back_as_it_was(found: Audit, tmp_path: Path) -> None:
    harmful = replace(found, findings=(replace(found.findings[0], text="=1+1"),))
    assert b"'=1+1" in audit_csv(harmful)
    assert b"'=1+1" not in audit_csv(harmful, raw=True)
    (tmp_path / "audit.csv").write_bytes(audit_csv(found))
    assert (tmp_path / "audit.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with (tmp_path / "audit.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(int(row["row"]), row["text"], row["kind"]) for row in rows] == [
        (finding.row, finding.text, finding.kind) for finding in found.findings
    ]
    assert sorted(row["text"] for row in rows) == sorted(TEXTS)
    assert [float(row["score"]) for row in rows] == pytest.approx([one.score for one in found.findings], abs=5e-5)
    assert {row["verdict"] for row in rows} == {""}
    first = next(row for row in rows if row["text"] == TEXTS[0])
    assert (first["gold"], first["predicted"]) == ("Biology; R&D <lab> > one", "R&D <lab> > two")


def test_ids_and_other_columns_go_through(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", NAMED, [])
    rows = [{"text": "one", "labels": ["A", "a1"], "id": 17, "score": "own"}, {"text": "two", "labels": ["A", "a1"]}]
    (tmp_path / "data" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answers = {"one": np.array([0.9, 0.1, 0.9, 0.1]), "two": np.array([0.9, 0.1, 0.8, 0.1])}
    found = audit(KnownClassifier(NAMED, answers, rule="closure"), folder)
    write_audit(tmp_path / "audit", found)
    with (tmp_path / "audit" / "audit.csv").open(encoding="utf-8-sig", newline="") as file:
        cells = {row["text"]: (row["id"], row["score (data)"]) for row in csv.DictReader(file)}
    assert cells == {"one": ("17", "own"), "two": ("", "")}
    content = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))
    assert {one["text"]: one["columns"] for one in content["findings"]} == {
        "one": {"id": 17, "score": "own"},
        "two": {},
    }
    assert "<span>id 17</span>" in (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")


def test_json_has_everything(found: Audit, tmp_path: Path) -> None:
    write_json(tmp_path / "audit.json", found.to_json())
    content = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert content["documents"] == content["contradicted"] == len(content["findings"]) == 4
    assert content["kinds"] == {"other path": 4}
    assert content["data"] == "data"
    finding = content["findings"][0]
    assert finding["predicted"][0] == {"id": "a2", "path": ["R&D <lab>", "two"], "probability": pytest.approx(0.9)}
    assert {one["label"]["id"]: one["gold"] for one in finding["contradictions"]} == {
        "B": True,
        "a1": True,
        "a2": False,
    }
    assert content["pairs"][0]["first_gold"] == 4
    assert content["suspect_labels"][0]["error_rate"] == 1.0


def test_the_page_shows_all_and_fetches_nothing(found: Audit, tmp_path: Path) -> None:
    write_audit(tmp_path, found)
    shown = HtmlReader((tmp_path / "audit.html").read_text(encoding="utf-8"))
    assert not shown.fetched
    assert shown.tags.count("script") == 1  # ours; that of the text is text
    assert TEXTS[1] in shown.text
    assert [values["data-kind"] for tag, values in shown.attributes if tag == "article"] == ["other path"] * 4
    assert {"del", "ins", "details"} <= set(shown.tags)  # the long text unfolds
    assert "R&D <lab>" in shown.text
