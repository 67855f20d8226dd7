"""Readers of rows: each format with constant memory, bad rows with file and line, InputError for damaged files."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import readers
from hgclr.data.readers import BadRow, Row, json_rows, read_rows
from hgclr.errors import InputError, MissingExtraError

COLUMNS = ("text", "labels")
ROWS = [{"text": "naïve – 漢字", "labels": ["A", "B"]}, {"text": "two\nlines", "labels": ["C"]}]


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def values(path: Path) -> list[dict[str, object]]:
    rows = list(read_rows(path, COLUMNS))
    assert all(isinstance(row, Row) for row in rows)
    return [{name: row.values[name] for name in COLUMNS} for row in rows]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_json_lines(tmp_path: Path, suffix: str) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    path = write(tmp_path / f"a.{suffix}", "\ufeff" + lines[0] + "\n\n" + lines[1])  # BOM, blank line, no last newline
    assert values(path) == ROWS
    assert [row.number for row in read_rows(path, COLUMNS)] == [1, 3]


@pytest.mark.parametrize(
    ("suffix", "delimiter", "end"),
    [("csv", ",", "\n"), ("csv", "|", "\r\n"), ("csv.gz", ",", "\n"), ("tsv", "\t", "\n")],
)
def test_tables_with_quotes_and_cells_of_several_lines(tmp_path: Path, suffix: str, delimiter: str, end: str) -> None:
    records = [
        ["id", "text", "labels"],
        ["1", '"He said ""no"", twice\tor so"', "A;B"],
        ["2", f'"one{end}two{end}{end}four"', "C"],
        ["3", "plain", '"D"'],
    ]
    path = write(tmp_path / f"a.{suffix}", "\ufeff" + end.join(delimiter.join(record) for record in records) + end)
    rows = list(read_rows(path, COLUMNS))
    assert [row.values["text"] for row in rows] == [
        'He said "no", twice\tor so',
        f"one{end}two{end}{end}four",
        "plain",
    ]
    assert [row.values["labels"] for row in rows] == ["A;B", "C", "D"]
    assert [row.number for row in rows] == [2, 3, 7]  # the line a record starts on


def test_a_cell_may_be_longer_than_pythons_default_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,labels\n" + "x" * 200_000 + ",A\n")
    assert len(values(path)[0]["text"]) == 200_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "a.csv"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    cells=st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.text("ab;\n\r\"', ")))
)
def test_tables_read_back_what_the_standard_library_wrote(cells: list[tuple[str, str]], place: Path) -> None:
    with place.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(COLUMNS)
        writer.writerows(cells)
    rows = list(read_rows(place, COLUMNS))
    assert [(row.values["text"], row.values["labels"]) for row in rows] == cells


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BATCH", 2)
    rows = [{"text": f"t{i}", "labels": ["A"] * i, "other": i} for i in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    read = list(read_rows(tmp_path / "a.parquet", COLUMNS))
    assert [row.number for row in read] == [1, 2, 3, 4, 5]
    assert [row.values for row in read] == [{"text": f"t{i}", "labels": ["A"] * i} for i in range(5)]


@pytest.mark.parametrize(
    ("line", "reason", "content"),
    [
        (b'{"text": "x", "labels": [', "broken JSON", '{"text": "x", "labels": ['),
        (b"[" * 100_000, "broken JSON", "[" * 100_000),
        (
            b'{"text": "\xe9t\xe9", "labels": ["A"]}',
            "not UTF-8",
            '{"text": "\\xe9t\\xe9", "labels": ["A"]}',
        ),
        (b'["x", "A"]', "wrong type: the row is a list", ["x", "A"]),
        (b'{"txt": "x", "labels": ["A"]}', "missing column 'text'", None),
    ],
)
def test_a_bad_json_line_is_named_and_the_next_still_read(
    tmp_path: Path, line: bytes, reason: str, content: object
) -> None:
    good = b'{"text": "x", "labels": ["A"]}'
    path = write(tmp_path / "a.jsonl", b"\n".join([good, line, good]) + b"\n")
    first, bad, last = read_rows(path, COLUMNS)
    assert isinstance(first, Row)
    assert isinstance(bad, BadRow)
    assert (bad.path, bad.number, last.number) == (path, 2, 3)
    assert bad.reason.startswith(reason)
    assert bad.content == (json.loads(line) if content is None else content)


@pytest.mark.parametrize(
    ("line", "content"),
    [
        ('"n\xe9e '.encode() + b'caf\xe9\nbar",A', ["n\xe9e caf\\xe9\nbar", "A"]),
        (b'"foo\nbar"', ["foo\nbar"]),
        (b'"foo\nbar",A,B', ["foo\nbar", "A", "B"]),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv.gz"])
def test_a_bad_table_row_is_named_and_the_next_still_read(
    tmp_path: Path, suffix: str, line: bytes, content: list[str]
) -> None:
    table = "text,labels\né,A\n".encode() + line + b"\nlast,A\n"
    path = write(tmp_path / f"a.{suffix}", table.replace(b",", b"\t") if "tsv" in suffix else table)
    _, bad, last = read_rows(path, COLUMNS)
    assert isinstance(bad, BadRow)
    assert (bad.path, bad.number, bad.content) == (path, 3, content)
    assert isinstance(last, Row)
    assert (last.number, last.values["text"]) == (5, "last")


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("txt,labels\nx,A\n", 1, "missing column 'text'"),
        ("text,labels,text\nx,A,y\n", 1, "column 'text'"),
        ('text,labels\nx,A\n"never closed,A\nx,A\n', 3, "broken quoting"),
        ('text,labels\n"a "quoted" word",A\n', 2, "broken quoting"),
        ("te\rxt,labels\nx,A\n", 1, "broken quoting"),  # a carriage return in a cell without quotes
        (b"te\xffxt,labels\n" + "é,A\n".encode(), 1, "not UTF-8"),
    ],
)
def test_tables_that_cannot_be_used_at_all(tmp_path: Path, content: str | bytes, line: int, what: str) -> None:
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(InputError) as caught:
        list(read_rows(path, COLUMNS))
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.what.startswith(what)
    assert caught.value.remedy


def test_truncated_gzip_names_the_row_it_breaks_off_at(tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [str(draw.getrandbits(400)) for _ in range(300)]
    packed = gzip.compress("".join(json.dumps({"text": text, "labels": ["A"]}) + "\n" for text in texts).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    read: list[Row] = []
    with pytest.raises(InputError) as caught:
        read.extend(read_rows(path, COLUMNS))  # keeps the rows before the error
    assert (caught.value.path, caught.value.line) == (path, len(read) + 1)
    assert len(read) <= 200
    assert [row.values["text"] for row in read] == texts[: len(read)]


def test_damaged_files(tmp_path: Path) -> None:
    for name, content in (("a.jsonl.gz", b'{"text": "x"}'), ("a.parquet", b"PAR1 this is none"), ("a.xlsx", b"PK")):
        (tmp_path / name).write_bytes(content)
    broken = pyarrow.array([b"fine", b"caf\xe9"], pyarrow.binary()).view(pyarrow.string())  # not UTF-8
    pyarrow.parquet.write_table(pyarrow.table({"text": broken, "labels": broken}), tmp_path / "b.parquet")
    for name in ("a.jsonl.gz", "a.parquet", "b.parquet", "a.xlsx"):
        with pytest.raises(InputError) as caught:
            list(read_rows(tmp_path / name, COLUMNS))
        assert caught.value.path == tmp_path / name
        assert caught.value.remedy


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    write(tmp_path / "a.docx", b"")
    for path in (tmp_path / "a.jsonl", tmp_path / "a.docx", tmp_path):
        with pytest.raises(InputError) as caught:
            read_rows(path, COLUMNS)
        assert caught.value.path == path


def test_missing_extras_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(MissingExtraError):
        list(read_rows(tmp_path / "a.parquet", COLUMNS))


def test_readers_take_no_more_than_they_need() -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield b'{"text": "x", "labels": []}\n'

    rows = json_rows(endless(), Path("a.jsonl"), COLUMNS)
    for count in range(1, 50):
        next(rows)
        assert taken == count
