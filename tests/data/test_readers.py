"""Readers of rows: each format with constant memory, bad rows with file and line, InputError for damaged files."""

from __future__ import annotations

import codecs
import csv
import datetime
import gzip
import io
import itertools
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import readers
from hgclr.data.readers import BadRow, Row, TextForm, json_rows, read_rows, sheet_rows
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


TONGUES = {
    "cp1252": [
        "Die Lieferung ist verspätet – bitte prüfen Sie die Größe;Anfrage",
        "J’ai reçu le mauvais modèle, où ?;Été",
    ],
    "cp1250": ["Zażółć gęślą jaźń, proszę o zwrot pieniędzy;Płatność", "Gdzie jest moja przesyłka źródło;Wysyłka"],
    "cp1251": ["Где мой заказ? Прошу вернуть деньги;Оплата", "Посылка не пришла;Доставка"],
    "cp1253": ["Πού είναι η παραγγελία μου;Παράδοση", "Θέλω τα χρήματά μου πίσω;Πληρωμή"],
    "cp932": [
        "アプリが起動しないので困っています。バージョンは最新です。;製品",
        "カスタマーサービスの対応がとても良かったです。ありがとうございました！;連絡",
        "パスワードを忘れたため、ログインできません。;口座",
    ],
    "gb18030": ["我的订单在哪里？请退款;付款", "包裹什么时候到;配送"],
    "utf-16": ["Größe, – 漢字;Maß", "plain;A"],
}


@pytest.mark.parametrize("encoding", TONGUES)
def test_the_encoding_of_a_table_is_found(tmp_path: Path, encoding: str) -> None:
    lines = ["text;labels", *(f"{number} {line}" for number in range(30) for line in TONGUES[encoding])]
    path, form = write(tmp_path / "a.csv", ("\r\n".join(lines) + "\r\n").encode(encoding)), TextForm()
    for _ in range(2):  # also when it is known from the first time
        rows = list(read_rows(path, COLUMNS, form=form))
        assert [f"{row.values['text']};{row.values['labels']}" for row in rows] == lines[1:]
    assert form == TextForm(encoding, False, ";", "\r\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [("I want a refund – now", 4000), ("It’s broken, she said", 1), ("the café", 20), ("5 € only", 2)],
)
def test_one_character_in_windows_1252_is_enough(tmp_path: Path, text: str, number: int) -> None:
    rows = [f"plain {place}" for place in range(5000)]
    rows[number] = text
    path = write(tmp_path / "a.csv", "".join(f"{row}\t1\n" for row in ["text", *rows]).encode("cp1252"))
    assert [row.values["text"] for row in read_rows(path, ("text",))] == rows


@pytest.mark.parametrize("first", [b"n\xc3\xa9e", b"n\xe9e"])
def test_a_few_damaged_rows_leave_utf_8_as_it_is(tmp_path: Path, first: bytes) -> None:
    rows = [first] + [b"sch\xf6n", b"\xff", b"caf\xc3", "Größe".encode(), b"plain"] * 50
    path, form = write(tmp_path / "a.csv", b"\n".join([b"text,labels", *(row + b",A" for row in rows)])), TextForm()
    read = list(read_rows(path, COLUMNS, form=form))
    assert form.other is None
    assert [isinstance(row, BadRow) for row in read] == [b"\xc3\xa9" not in row and not utf8(row) for row in rows]
    assert {row.values["text"] for row in read[1:] if isinstance(row, Row)} == {"Größe", "plain"}


def utf8(data: bytes) -> bool:
    return data == data.decode(errors="ignore").encode()


def test_an_unclear_encoding_is_not_guessed() -> None:
    assert readers.guess_encoding(["注文した商品が届きません。返金してください".encode("cp932")]) is None


def test_a_mark_is_utf_8_and_json_lines_are_never_guessed(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,labels\ncaf\xe9,A\n")
    lines = write(tmp_path / "a.jsonl", b'{"text": "caf\xe9", "labels": "A"}\n')
    for path in (table, lines):
        (row,) = read_rows(path, COLUMNS)
        assert isinstance(row, BadRow)
        (row,) = read_rows(path, (), form=TextForm("latin-1"))
        assert "café" in row.values.values()


def test_a_named_encoding_is_used_and_bytes_it_lacks_are_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", "text,labels\nMüller,A\nb\x81d,A\n".encode("latin-1"))
    good, bad = read_rows(path, COLUMNS, form=TextForm("windows-1252"))
    assert (good.values["text"], bad.content) == ("Müller", ["b\\x81d", "A"])
    table = "text,labels\nz,A\n".encode("utf-16-le").replace(b"z", b"\x00\xd8z")  # half of a surrogate pair
    (bad,) = read_rows(write(tmp_path / "b.csv", codecs.BOM_UTF16_LE + table), COLUMNS)
    assert isinstance(bad, BadRow)
    with pytest.raises(InputError) as caught:  # half a character at the end
        list(read_rows(write(tmp_path / "c.csv", codecs.BOM_UTF16_LE + table + b"y"), COLUMNS))
    assert caught.value.path == tmp_path / "c.csv"
    for name in ("cp12520", "hex", "undefined", "a\0b"):
        with pytest.raises(InputError):
            TextForm(name)


def test_only_a_part_of_the_file_is_held_to_find_the_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "AHEAD", 1000)
    taken = itertools.count()
    lines = (b"plain\n" if next(taken) < 500 else b"sch\xf6n\n" for _ in itertools.count())
    converted = readers.in_utf8(lines, tmp_path / "a.csv", TextForm())
    assert next(itertools.islice(converted, 499, None)) == b"plain\n"
    assert next(taken) == 500
    assert next(converted) == "schön\n".encode()
    assert next(taken) < 1000


def test_values_of_a_sheet_are_texts_that_remember(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    when = datetime.datetime(2024, 1, 31)
    workbook, stream = openpyxl.Workbook(), io.BytesIO()
    workbook.active.append(["a_x000D_\nb", 3.0, 2.5, True, when, None])
    workbook.active["E1"].number_format = "dd.mm.yyyy"
    workbook.save(stream)
    ((cells, _),) = sheet_rows(Path("posts.xlsx"), stream)
    assert cells == ["a\r\nb", "3", "2.5", "True", "2024-01-31 00:00:00"]
    assert [(cell.value, cell.form) for cell in cells[1:]] == [
        *((value, "General") for value in (3, 2.5, True)),
        (when, "dd.mm.yyyy"),
    ]
