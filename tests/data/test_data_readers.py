from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import readers
from hgclr.data import readers as arrow
from hgclr.data.readers import json_rows, read_rows, table_rows
from hgclr.data.rows import BadRow, Row
from hgclr.errors import InputError, MissingExtraError

COLUMNS = ("text", "labels")
ROWS = [{"text": "naïve – 漢字", "labels": ["A", "B"]}, {"text": "two\nlines", "labels": ["C"]}]


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_dataset(path: Path, rows: list[dict[str, object]], features: object = None) -> Path:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows, features=features).save_to_disk(path)
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


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("csv.gz", ","), ("tsv", "\t"), ("tsv.gz", "\t")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.text("ab;\n\r\"', "))))
def test_tables_read_back_what_the_standard_library_wrote(cells: list[tuple[str, str]]) -> None:
    import csv
    import io

    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    writer.writerows(cells)
    stream.seek(0)
    rows = list(table_rows(stream, Path("a.csv"), COLUMNS, delimiter=","))
    assert [(row.values["text"], row.values["labels"]) for row in rows] == cells


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 2)
    rows = [{"text": f"t{i}", "labels": ["A"] * i, "other": i} for i in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    read = list(read_rows(tmp_path / "a.parquet", COLUMNS))
    assert [row.number for row in read] == [1, 2, 3, 4, 5]
    assert [row.values for row in read] == [{"text": f"t{i}", "labels": ["A"] * i} for i in range(5)]


def test_datasets_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 2)
    rows = [{"text": f"t{i}", "labels": ["A"] * i} for i in range(5)]
    path = write_dataset(tmp_path / "train", rows)
    assert values(path) == rows
    assert [row.number for row in read_rows(path, COLUMNS)] == [1, 2, 3, 4, 5]


def test_class_labels_of_a_datasets_folder_come_as_names(tmp_path: Path) -> None:
    import datasets

    kind = datasets.ClassLabel(names=["A", "B"])
    one = datasets.Features(text=datasets.Value("string"), labels=kind)
    many = datasets.Features(text=datasets.Value("string"), labels=datasets.List(kind))
    path = write_dataset(tmp_path / "one", [{"text": "x", "labels": 1}, {"text": "y", "labels": -1}], one)
    assert [row["labels"] for row in values(path)] == ["B", -1]
    path = write_dataset(tmp_path / "many", [{"text": "x", "labels": [1, 0]}], many)
    assert [row["labels"] for row in values(path)] == [["B", "A"]]


@pytest.mark.parametrize(
    ("line", "reason", "content"),
    [
        (b'{"text": "x", "labels": [', "broken JSON", '{"text": "x", "labels": ['),
        (b"[" * 100_000, "broken JSON", "[" * 100_000),
        (
            b'{"text": "x", "labels": ["A"], "more": ' + b"[" * 500 + b"]" * 500 + b"}",
            "values are nested more than 100 deep",
            '{"text": "x", "labels": ["A"], "more": ' + "[" * 500 + "]" * 500 + "}",
        ),
        (
            b'{"text": "\xe9t\xe9", "labels": ["A"]}',
            "not UTF-8: byte 0xe9",
            '{"text": "\\xe9t\\xe9", "labels": ["A"]}',
        ),
        (b'["x", "A"]', "wrong type: the row is a list", ["x", "A"]),
        (b'{"txt": "x", "labels": ["A"]}', "missing column 'text' (the row has: 'txt', 'labels')", None),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_bad_json_line_is_named_and_the_next_still_read(
    tmp_path: Path, suffix: str, line: bytes, reason: str, content: object
) -> None:
    good = b'{"text": "x", "labels": ["A"]}'
    path = write(tmp_path / f"a.{suffix}", b"\n".join([good, line, good]) + b"\n")
    first, bad, last = read_rows(path, COLUMNS)
    assert isinstance(first, Row)
    assert isinstance(last, Row)
    assert last.number == 3
    assert isinstance(bad, BadRow)
    assert (bad.path, bad.number) == (path, 2)
    assert bad.reason.startswith(reason)
    assert bad.content == (json.loads(line) if content is None else content)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'"caf\xe9\nbar",A', "not UTF-8: byte 0xe9 in cell 1"),
        (b'"foo\nbar"', "missing column: the row has 1 cells, the header 2"),
        (b'"foo\nbar",A,B', "too many columns: the row has 3 cells, the header 2"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "tsv.gz"])
def test_a_bad_table_row_is_named_and_the_next_still_read(
    tmp_path: Path, suffix: str, line: bytes, reason: str
) -> None:
    content = b"text,labels\nx,A\n" + line + b"\nlast,A\n"
    if "tsv" in suffix:
        content = content.replace(b",", b"\t")
    path = write(tmp_path / f"a.{suffix}", content)
    _, bad, last = read_rows(path, COLUMNS)
    assert isinstance(bad, BadRow)
    assert (bad.path, bad.number, bad.reason) == (path, 3, reason)
    assert isinstance(last, Row)
    assert (last.number, last.values["text"]) == (5, "last")


def test_unreadable_bytes_of_a_table_are_kept_in_the_record(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"text,labels\ncaf\xe9,A\n")
    (bad,) = read_rows(path, COLUMNS)
    assert bad.content == ["caf\\xe9", "A"]


def _not_utf8(kind: str) -> pyarrow.Table:
    broken = pyarrow.array([b"fine", b"caf\xe9", b"also fine"], pyarrow.binary()).view(pyarrow.string())
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 2, 3], pyarrow.int32()), broken)
    plain = pyarrow.array(["x", "y", "z"])
    return pyarrow.table({"text": broken, "labels": plain} if kind == "text" else {"text": plain, "labels": lists})


@pytest.mark.parametrize(("kind", "content"), [("text", "caf\\xe9"), ("labels", ["caf\\xe9"])])
@pytest.mark.parametrize("form", ["parquet", "datasets"])
def test_arrow_rows_that_are_not_utf8(tmp_path: Path, form: str, kind: str, content: object) -> None:
    import datasets

    table = _not_utf8(kind)
    if form == "parquet":
        path = tmp_path / "a.parquet"
        pyarrow.parquet.write_table(table, path)
    else:
        path = tmp_path / "train"
        datasets.Dataset(table).save_to_disk(path)
    first, bad, last = read_rows(path, COLUMNS)
    assert isinstance(first, Row)
    assert isinstance(bad, BadRow)
    assert (bad.path, bad.number) == (path, 2)
    assert bad.reason.startswith("not UTF-8")
    assert bad.content[kind] == content
    assert isinstance(last, Row)
    assert last.number == 3


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("txt,labels\nx,A\n", 1, "missing column 'text' (the table has: 'txt', 'labels')"),
        ("text,labels,text\nx,A,y\n", 1, "column 'text' stands 2 times"),
        ('text,labels\nx,A\n"never closed,A\nx,A\n', 3, "broken quoting"),
        ('text,labels\n"a "quoted" word",A\n', 2, "broken quoting"),
        (b"te\xffxt,labels\nx,A\n", 1, "not UTF-8: byte 0xff in cell 1"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_that_cannot_be_used_at_all(
    tmp_path: Path, suffix: str, content: str | bytes, line: int, what: str
) -> None:
    data = content.encode() if isinstance(content, str) else content
    path = write(tmp_path / f"a.{suffix}", data.replace(b",", b"\t") if suffix == "tsv" else data)
    with pytest.raises(InputError) as caught:
        list(read_rows(path, COLUMNS))
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.what.startswith(what)
    assert caught.value.remedy


def test_missing_columns_of_arrow_tables(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"], "tags": ["A"]}), tmp_path / "a.parquet")
    write_dataset(tmp_path / "train", [{"text": "x", "tags": "A"}])
    for path in (tmp_path / "a.parquet", tmp_path / "train"):
        with pytest.raises(InputError, match=r"missing column 'labels' \(the table has: 'text', 'tags'\)") as caught:
            list(read_rows(path, COLUMNS))
        assert caught.value.path == path


@pytest.mark.parametrize("suffix", ["jsonl.gz", "csv.gz", "tsv.gz"])
def test_truncated_gzip_names_the_row_it_breaks_off_at(tmp_path: Path, suffix: str) -> None:
    import random

    words = random.Random(1)
    texts = [str(words.getrandbits(400)) for _ in range(300)]
    if suffix == "jsonl.gz":
        content = "".join(json.dumps({"text": text, "labels": ["A"]}) + "\n" for text in texts)
    else:
        tab = "," if suffix == "csv.gz" else "\t"
        content = f"text{tab}labels\n" + "".join(f"{text}{tab}A\n" for text in texts)
    packed = gzip.compress(content.encode())
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(packed[: len(packed) // 2])
    read: list[Row] = []
    with pytest.raises(InputError, match="damaged or truncated gzip") as caught:
        read.extend(read_rows(path, COLUMNS))  # keeps what came before the error
    assert caught.value.path == path
    assert caught.value.line is not None
    if suffix == "jsonl.gz":
        assert caught.value.line == len(read) + 1
    assert 1 <= caught.value.line <= 200
    assert [row.values["text"] for row in read] == texts[: len(read)]


def test_a_gz_file_that_is_not_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b'{"text": "x"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl\.gz:1: damaged or truncated gzip"):
        list(read_rows(tmp_path / "a.jsonl.gz", COLUMNS))


def test_damaged_arrow_files(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(InputError, match=r"a\.parquet:1: damaged, or no Parquet file"):
        list(read_rows(tmp_path / "a.parquet", COLUMNS))
    path = write_dataset(tmp_path / "train", ROWS)
    next(path.glob("*.arrow")).write_bytes(b"nothing")
    with pytest.raises(InputError, match="datasets folder"):
        list(read_rows(path, COLUMNS))


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_rows(tmp_path / "a.jsonl", COLUMNS)
    write(tmp_path / "a.docx", b"")
    with pytest.raises(InputError, match=r"unknown format; its name must end in \.jsonl, "):
        read_rows(tmp_path / "a.docx", COLUMNS)
    with pytest.raises(InputError, match=r"no state\.json"):
        read_rows(tmp_path, COLUMNS)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv.gz", "text,labels\n")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=r"a\.csv\.gz: cannot be read: Permission denied"):
        list(read_rows(path, COLUMNS))


def test_missing_extras_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[parquet\]'"):
        list(read_rows(tmp_path / "a.parquet", COLUMNS))
    (tmp_path / "state.json").touch()
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[parquet\]'"):
        list(read_rows(tmp_path, COLUMNS))


class Feed:
    """Lines without end that know how many were taken."""

    def __init__(self, head: list[str], line: str) -> None:
        self.taken = 0
        self._head, self._line = head, line

    def __iter__(self) -> Iterator[str]:
        yield from self._head
        while True:
            self.taken += 1
            yield self._line


def test_text_readers_take_one_line_per_row() -> None:
    feed = Feed(["text,labels\n"], "x,A\n")
    rows = table_rows(feed, Path("a.csv"), COLUMNS, delimiter=",")
    for count in range(1, 50):
        next(rows)
        assert feed.taken == count
    feed = Feed([], '{"text": "x", "labels": []}\n')
    rows = json_rows((line.encode() for line in feed), Path("a.jsonl"), COLUMNS)
    for count in range(1, 50):
        next(rows)
        assert feed.taken == count


def test_parquet_reader_takes_a_batch_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 10)
    table = pyarrow.table({"text": ["x"] * 100, "labels": ["A"] * 100})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    sizes = []
    inner = arrow._rows
    monkeypatch.setattr(arrow, "_rows", lambda batch, *rest: sizes.append(batch.num_rows) or inner(batch, *rest))
    rows = readers.read_rows(tmp_path / "a.parquet", COLUMNS)
    for _ in range(11):
        next(rows)
    assert sizes == [10, 10]
