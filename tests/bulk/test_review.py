"""Review queues: order, columns and suggestions; a round trip through a workbook or CSV into a data folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hgclr.bulk.files import read_chunks
from hgclr.bulk.review import ADDED, training_data, write_review
from hgclr.data import DataFolder
from hgclr.data.adding import add_tables
from hgclr.data.readers import Row, read_rows
from hgclr.decisions.review import TrainingDistance, best_paths, review
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.training import RunConfig
from support.bulk_cases import write_model
from support.toy import TEXTS, make_model

LINES = ["atom", "judge, statute", "nothing of it", "=atom experiment", " ", "-statute\nof\tjudge judge"]


@pytest.fixture
def classifier(tmp_path: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(write_model(tmp_path / "model", each=2.0))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps({"n": n, "text": text, "more": ["é"]}) + "\n" for n, text in enumerate(LINES)))
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    return [row.values for row in read_rows(path, ()) if isinstance(row, Row)]


@pytest.mark.parametrize("name", ["review.xlsx", "review.csv"])
def test_the_rows_are_sorted_and_have_suggestions(
    classifier: HierarchicalClassifier, source: Path, tmp_path: Path, name: str
) -> None:
    result = write_review(classifier, source, tmp_path / name)
    rows = rows_of(tmp_path / name)
    assert list(rows[0]) == ["n", "text", "more", *ADDED]
    texts = [text for text in LINES if text.strip()]
    probabilities = classifier.predict_proba(texts)
    expected = review(classifier.decisions, probabilities)
    order = np.argsort(-expected.score, kind="stable")
    assert [int(row["n"]) for row in rows] == [LINES.index(texts[place]) for place in order]
    assert [row["reason"] for row in rows] == [expected.reason[place] for place in order]
    assert {row["label"] for row in rows} == {""}
    for row, place in zip(rows, order, strict=True):
        paths = best_paths(probabilities[[place]], classifier.decisions.decoder, 3)[0]
        named = [classifier.taxonomy.path_name(end) for end, _ in paths] + [""] * (3 - len(paths))
        assert [row[f"path {number}"] for number in (1, 2, 3)] == named
        assert float(row["probability 1"]) == pytest.approx(paths[0][1], abs=1e-4)
    assert (result.rows, result.blank, result.left_out, result.compared) == (5, 1, 0, 0)
    assert sum(result.reasons.values()) == 5


@pytest.mark.parametrize("name", ["review.xlsx", "review.csv"])
def test_corrected_rows_come_back_with_their_texts(
    classifier: HierarchicalClassifier, source: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    classifier.taxonomy.write(folder / "taxonomy.json")
    (folder / "train.jsonl").write_text('{"text": "a", "labels": ["law"]}\n')
    write_review(classifier, source, tmp_path / name)
    fill_in(tmp_path / name, "1")
    assert add_tables(folder, [tmp_path / name]).added == 5
    added = {document.text for document in DataFolder(folder).documents("train")}
    assert added == {"a", *(text for text in LINES if text.strip())}


def fill_in(path: Path, label: str) -> None:
    if path.suffix == ".csv":
        lines = path.read_text(encoding="utf-8-sig")
        path.write_text(lines.replace(",\n", f",{label}\n"), encoding="utf-8-sig")
        return
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.load_workbook(path)
    sheet = workbook.active
    assert sheet.freeze_panes == "A2"
    assert sheet.column_dimensions["B"].width > sheet.column_dimensions["A"].width
    for row in range(2, sheet.max_row + 1):
        sheet.cell(row, sheet.max_column).value = label
    workbook.save(path)


def test_the_top_rows_are_the_first(classifier: HierarchicalClassifier, source: Path, tmp_path: Path) -> None:
    write_review(classifier, source, tmp_path / "all.csv")
    result = write_review(classifier, source, tmp_path / "top.csv", top=2)
    assert rows_of(tmp_path / "top.csv") == rows_of(tmp_path / "all.csv")[:2]
    assert (result.rows, result.left_out) == (2, 3)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"text": "atom", "label": "x"}, "out.csv"),
        ({"text": "atom"}, "out.ods"),
        ({"text": "atom " * 7000}, "out.xlsx"),
        ({"no text": "atom"}, "out.csv"),
    ],
)
def test_what_cannot_be_written_is_refused(
    classifier: HierarchicalClassifier, tmp_path: Path, row: dict[str, str], name: str
) -> None:
    (tmp_path / "new.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError):
        write_review(classifier, tmp_path / "new.jsonl", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_bad_rows_are_left_out_on_request(classifier: HierarchicalClassifier, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"text": "atom"}\n{"text": 1}\n')
    result = write_review(classifier, tmp_path / "new.jsonl", tmp_path / "out.csv", skip_bad_rows=True)
    assert (result.rows, result.bad) == (1, 1)


def test_texts_are_compared_with_a_sample_of_train(
    make_encoder, taxonomy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy)
    classifier = HierarchicalClassifier.from_model(model.eval(), tokenizer)
    folder = tmp_path / "data"
    folder.mkdir()
    taxonomy.write(folder / "taxonomy.json")
    ends = ["the", "of", "in", "lake", "net"]
    words = [f"{word} {end}" for word in ["atom", "laser", "lens", "mirror", "goal"] for end in ends]
    lines = [json.dumps({"text": text, "labels": ["science"]}) + "\n" for text in words]
    (folder / "train.jsonl").write_text("".join(lines))
    (tmp_path / "new.txt").write_text("\n".join([words[0], *TEXTS]))
    monkeypatch.setattr("hgclr.bulk.review.SAMPLED", 24)
    result = write_review(classifier, tmp_path / "new.txt", tmp_path / "out.csv", training=DataFolder(folder))
    assert result.compared == 24
    vectors = np.concatenate(list(classifier.vectors(words)))
    for text, vector in zip(words, vectors, strict=True):  # batches do not change a vector
        np.testing.assert_allclose(next(classifier.vectors([text]))[0], vector, atol=1e-5)
    assert TrainingDistance(vectors)(vectors[:1]) == 0
    assert len(next(read_chunks(tmp_path / "out.csv", ["text"])).rows) == 1 + len(TEXTS)


def test_the_data_of_the_run_is_found_while_its_tree_is_the_models(taxonomy, tmp_path: Path) -> None:
    folder, run = tmp_path / "data", tmp_path / "run"
    for each in (folder, run / "model"):
        each.mkdir(parents=True)
    taxonomy.write(folder / "taxonomy.json")
    (folder / "train.jsonl").write_text('{"text": "a", "labels": ["science"]}\n')
    assert training_data(run / "model", taxonomy) is None
    RunConfig(data={"path": folder}, output=run).write(run / "config.yaml")
    found = training_data(run / "model", taxonomy)
    assert found is not None
    assert found.path == folder
    (folder / "taxonomy.json").unlink()
    (folder / "taxonomy.tsv").write_text("Root\tscience\n")
    assert training_data(run / "model", taxonomy) is None
