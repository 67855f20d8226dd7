"""The data folder from the answers, and disagreements as rows of an audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.data.readers import text_hash
from hgclr.errors import InputError
from hgclr.evaluation.audit import COLUMNS
from hgclr.labelling import export as module
from hgclr.labelling.export import disagreements, export
from hgclr.labelling.store import Answer, Store
from hgclr.taxonomy import Taxonomy


@pytest.fixture
def store(tmp_path: Path, taxonomy: Taxonomy) -> Store:
    path = tmp_path / "texts.csv"
    path.write_text("id,text\n" + "".join(f"t{number},text number {number}\n" for number in range(60)))
    return Store.open(tmp_path / "labels", [path], taxonomy, shares=(0.5, 0.1))


def chosen(document: int, user: str, *labels: str, **fields) -> Answer:
    return Answer(document, user, "labels", labels, **fields)


def test_random_slice_becomes_dev_and_test_and_all_else_train(store: Store, taxonomy: Taxonomy, tmp_path: Path) -> None:
    texts = store.documents()
    for text in texts[:-1]:
        store.add(chosen(text.id, "anna", "optics", "law"))
    summary = export(store, taxonomy, tmp_path / "data")
    split = {text.text: ("dev", "test")[text_hash(text.text) % 2] if text.random else "train" for text in texts[:-1]}
    folder = DataFolder(tmp_path / "data")
    assert folder.taxonomy == taxonomy
    found = {document.text: name for name in folder.splits for document in folder.documents(name)}
    assert found == split
    assert set(found.values()) == {"train", "dev", "test"}
    assert summary.documents == {name: list(split.values()).count(name) for name in ("train", "dev", "test")}
    expected = taxonomy.closure([taxonomy.ids.index("optics"), taxonomy.ids.index("law")]).tolist()
    assert all(list(document.labels) == expected for name in folder.splits for document in folder.documents(name))
    assert not check(folder).bad_rows
    # More answers move no text to another split, and the same answers give the same bytes.
    store.add(chosen(texts[-1].id, "anna", "science"))
    export(store, taxonomy, tmp_path / "data")
    again = {
        document.text: name for name in DataFolder(tmp_path / "data").splits for document in folder.documents(name)
    }
    assert found.items() <= again.items()


def test_what_a_data_folder_cannot_say_is_left_out_and_counted(
    store: Store, taxonomy: Taxonomy, tmp_path: Path
) -> None:
    train = [text.id for text in store.documents() if not text.random]
    for answer in (
        chosen(train[0], "anna", "physics"),  # stop here
        chosen(train[1], "anna", "science", partial=True),
        Answer(train[2], "anna", "none"),
        Answer(train[3], "anna", "skip"),
        chosen(train[4], "anna", "optics"),
        chosen(train[4], "bert", "law"),
        chosen(train[5], "anna", "optics"),
        chosen(train[5], "bert", "optics"),
        chosen(train[6], "anna", "optics"),
        chosen(train[6], "bert", "law"),
        chosen(train[6], "anna", "law"),  # resolved
        chosen(train[7], "anna", "sports", partial=True),
        chosen(train[7], "bert", "tennis"),
    ):
        store.add(answer)
    summary = export(store, taxonomy, tmp_path / "data")
    counts = {"people disagree": 1, "partial answer": 1, "belongs nowhere": 1, "skipped": 1}
    assert summary.left_out == counts
    ids = taxonomy.ids
    found = {
        document.text: {ids[label] for label in document.labels}
        for document in DataFolder(tmp_path / "data").documents("train")
    }
    texts = store.texts()
    assert found == {
        texts[train[0]]: {"science", "physics"},
        texts[train[5]]: {"science", "physics", "optics"},
        texts[train[6]]: {"society", "law"},
        texts[train[7]]: {"society", "sports", "tennis"},
    }
    (row,) = map(json.loads, (tmp_path / "data" / "contradictions.jsonl").read_text().splitlines())
    assert row["text"] == texts[train[4]]
    assert row["rows"] == [{"where": "anna", "labels": ["optics"]}, {"where": "bert", "labels": ["law"]}]
    record = json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert record["left_out"] == counts


def test_disagreements_have_the_columns_of_an_audit(store: Store) -> None:
    store.add(chosen(3, "anna", "optics", note="glass"))
    store.add(chosen(3, "bert", "law", "optics"))
    store.add(chosen(3, "carl", "chemistry"))
    store.add(chosen(4, "anna", "science"))
    store.add(Answer(4, "bert", "none"))
    store.add(chosen(5, "anna", "law"))
    store.add(chosen(5, "bert", "law"))
    rows = disagreements(store)
    assert tuple(module.COLUMNS)[: len(COLUMNS)] == COLUMNS
    assert all(row.keys() == module.COLUMNS.keys() for row in rows)
    shown = [(row["row"], row["gold"], row["predicted"], row["kind"], row["level"]) for row in rows]
    optics = "science > physics > optics"
    assert shown == [
        (3, optics, f"society > law; {optics}", "missing label", 1),
        (3, optics, "science > chemistry", "other path", 2),
        (4, "science", "", "extra label", 1),
    ]
    assert (rows[1]["source"], rows[1]["gold user"], rows[1]["predicted user"]) == ("t3", "anna", "carl")
    assert rows[0]["gold note"] == "glass"


def test_no_answer_for_train_writes_nothing(store: Store, taxonomy: Taxonomy, tmp_path: Path) -> None:
    drawn = next(text.id for text in store.documents() if text.random)
    store.add(chosen(drawn, "anna", "law"))
    with pytest.raises(InputError) as caught:
        export(store, taxonomy, tmp_path / "data")
    assert caught.value.remedy
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("")
    store.add(chosen(next(text.id for text in store.documents() if not text.random), "anna", "law"))
    with pytest.raises(InputError):
        export(store, taxonomy, tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine.txt"]
