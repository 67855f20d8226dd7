"""Texts without labels: which files, which column, which rows are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.data.readers import text_hash
from hgclr.data.texts import read_texts
from hgclr.errors import InputError

LONG = [f"a sentence with several words, number {number}" for number in range(6)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mail.csv"
    rows = [f'{number},"{text}",queue' for number, text in enumerate(LONG)]
    path.write_text("\n".join(["id,message,labels", *rows, "", f'9,"{LONG[0].upper()}",queue', '10," ",queue']))
    return path


def test_the_text_column_is_found_and_labels_are_ignored(table: Path) -> None:
    found = read_texts([table])
    assert found.texts == LONG
    assert found.sources == ["0", "1", "2", "3", "4", "5"]
    assert found.columns == {table: "message"}
    assert found.left_out == {"repeated": 1, "empty text": 1}


def test_known_texts_are_left_out_by_reason(table: Path) -> None:
    known = {text_hash(LONG[1].upper()): "in dev", text_hash(LONG[2]): "in test", text_hash("absent"): "in dev"}
    found = read_texts([table], known=known)
    assert found.texts == [LONG[0], *LONG[3:]]
    assert found.left_out == {"repeated": 1, "empty text": 1, "in dev": 1, "in test": 1}
    assert len(known) == 3


def test_a_folder_and_several_forms(table: Path) -> None:
    lines = [{"body": "another text", "queue": "a"}, {"body": LONG[3]}]
    (table.parent / "new.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n")
    found = read_texts([table.parent], text_columns=("title", "body"))
    assert found.texts == [*LONG, "another text"]
    assert found.sources[-1] == "1"
    assert found.left_out == {"repeated": 2, "empty text": 1, "unreadable": 1}
    assert sorted(found.columns.values()) == ["body", "message"]


def test_a_named_column_wins(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("text,summary\nfirst long text,short\nsecond long text,tiny\n")
    assert read_texts([path], text_columns=("summary",)).texts == ["short", "tiny"]
    assert read_texts([path]).texts == ["first long text", "second long text"]


def test_no_texts(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.csv").write_text("text\n")
    assert read_texts([empty]).texts == []
    with pytest.raises(InputError, match="no input files"):
        read_texts([tmp_path / "absent.csv"])
    (unclear := tmp_path / "unclear.csv").write_text("one,two\nsome words here,other words there\n")
    with pytest.raises(InputError, match="several columns may be the text"):
        read_texts([unclear])
