"""The files of an audit: a table that comes back as it was, JSON, a page that needs nothing else."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.evaluation.audit import audit
from hgclr.evaluation.audit import (
    COLUMNS,
    Audit,
    audit_page,
    percent,
    write_audit,
    write_csv,
)
from hgclr.files import check_output, write_json
from hgclr.taxonomy import Taxonomy
from support.audit_cases import KnownClassifier, write_folder

TEXTS = ['a "quoted", text; with\nlines', "<script>alert('x')</script> & co", "ünïcode 日本", "x" * 2000]
TREE = Taxonomy(["A", "a1", "a2", "B"], [-1, 0, 0, -1], ["R&D <lab>", "one", "two", "Biology"])


@pytest.fixture
def found(tmp_path: Path) -> Audit:
    answers = {text: np.array([0.9, 0.0004, 0.9 - 0.1 * n, 0.01]) for n, text in enumerate(TEXTS)}
    documents = [(text, {0, 1} if n else {0, 1, 3}) for n, text in enumerate(TEXTS)]
    folder = write_folder(tmp_path / "data", TREE, documents)
    return audit(KnownClassifier(TREE, answers, rule="closure"), folder)


def test_the_table_comes_back_as_it_was(found: Audit, tmp_path: Path) -> None:
    write_csv(tmp_path / "audit.csv", found)
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


def test_texts_that_a_spreadsheet_would_run_are_texts_in_the_table(found: Audit, tmp_path: Path) -> None:
    first = replace(found.findings[0], text="=1+1")
    harmful = replace(found, findings=(first,))
    for raw, text in ((False, "'=1+1"), (True, "=1+1")):
        write_audit(tmp_path, harmful, raw=raw)
        with (tmp_path / "audit.csv").open(encoding="utf-8-sig", newline="") as file:
            assert [row["text"] for row in csv.DictReader(file)] == [text]


def test_ids_and_other_columns_go_through(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", TREE, [])
    rows = [{"text": "one", "labels": ["A", "a1"], "id": 17, "score": "own"}, {"text": "two", "labels": ["A", "a1"]}]
    (tmp_path / "data" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answers = {"one": np.array([0.9, 0.1, 0.9, 0.1]), "two": np.array([0.9, 0.1, 0.8, 0.1])}
    found = audit(KnownClassifier(TREE, answers, rule="closure"), folder)
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
    assert {one["id"]: one["gold"] for one in finding["contradictions"]} == {"B": True, "a1": True, "a2": False}
    assert content["pairs"][0]["documents"] == 4
    assert content["suspect_labels"][0]["error_rate"] == 1.0


class Page(HTMLParser):
    """Collects tags, attributes that fetch something, and the text of each finding."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.kinds: list[str] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attributes) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "srcset") or (name == "href" and not (value or "").startswith("#")):
                self.fetched.append(value or "")
            if name == "data-kind":
                self.kinds.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_all_and_fetches_nothing(found: Audit) -> None:
    content = audit_page(found)
    shown = Page(content)
    assert not shown.fetched
    assert shown.tags.count("script") == 1  # ours; that of the text is text
    assert "<script>alert('x')</script> & co" in shown.text
    assert "R&D <lab> › one" in re.sub(r"\s+", " ", shown.text)
    assert shown.kinds == ["other path"] * 4
    assert "Label audit of data, dev" in shown.text
    assert "whole text" in shown.text  # of the long one, of which only the beginning is shown at once


def test_a_page_does_not_list_dozens_of_paths(tmp_path: Path) -> None:
    tree = Taxonomy([f"label {n:02}" for n in range(30)], [-1] * 30)
    folder = write_folder(tmp_path / "many", tree, [("x", {0})])
    many = audit(KnownClassifier(tree, {"x": np.full(30, 0.9)}, rule="closure"), folder)
    shown = Page(audit_page(many)).text
    assert "label 08" in shown  # the label that both have comes last, after those that differ
    assert "label 09" not in shown.partition("Labels")[0]
    assert "and 22 more" in shown


def test_a_page_without_findings_says_so(found: Audit, tmp_path: Path) -> None:
    nothing = Audit("data", "dev.jsonl", "dev", 3, {}, (), (), ())
    assert "the model would label every document as it is labelled" in audit_page(nothing)
    paths = write_audit(tmp_path / "new" / "out", nothing)
    assert [path.name for path in paths] == ["audit.html", "audit.csv", "audit.json"]
    assert all(path.is_file() for path in paths)


def test_places_that_cannot_be_written_to_are_refused(found: Audit, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: the output is a file; give a folder"):
        check_output(tmp_path / "file")
    for write, content in ((write_csv, found), (write_json, found.to_json())):
        with pytest.raises(InputError, match="cannot be written"):
            write(tmp_path / "file" / "x", content)


@pytest.mark.parametrize(
    ("probability", "written"),
    [(0.0, "< 0.1 %"), (0.0123, "1.2 %"), (0.456, "46 %"), (0.997, "99.7 %"), (1.0, "> 99.9 %")],
)
def test_no_probability_is_certain(probability: float, written: str) -> None:
    assert percent(probability) == written
