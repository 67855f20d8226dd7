"""What bulk prediction writes: every format from every format, all columns, all rows, in order."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from hgclr.bulk import predict_files
from hgclr.errors import InputError
from support.bulk_cases import check_lines, expected, read_lines, text_of, write_lines, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("bulk") / "model")


TEXTS = [text_of(number) for number in range(20)]
NOTES = ['plain, "quoted"', "two\nlines", "", "schön ☃"] * 5


def write_table(path: Path, delimiter: str, header: tuple[str, ...] = ("Größe, cm", "text", "note")) -> Path:
    stream = io.StringIO()
    table = csv.writer(stream, delimiter=delimiter)
    table.writerow(header)
    table.writerows((f"{number:03}", TEXTS[number], NOTES[number]) for number in range(20))
    path.write_bytes(gzip.compress(stream.getvalue().encode()) if path.suffix == ".gz" else stream.getvalue().encode())
    return path


def read_table(path: Path, delimiter: str) -> list[dict[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), delimiter=delimiter))


@pytest.mark.parametrize(
    ("name", "delimiter"), [("t.csv", ","), ("t.csv.gz", ","), ("t.tsv", "\t"), ("t.tsv.gz", "\t")]
)
def test_tables_keep_cells_order_and_quoting(name: str, delimiter: str, model: Path, tmp_path: Path) -> None:
    predict_files(model, [write_table(tmp_path / name, delimiter)], tmp_path / "out")
    rows = read_table(tmp_path / "out" / name, delimiter)
    assert rows == [
        {
            "Größe, cm": f"{number:03}",
            "text": TEXTS[number],
            "note": NOTES[number],
            "labels": ";".join(label["id"] for label in expected(TEXTS[number])),
            "probabilities": ";".join(str(label["probability"]) for label in expected(TEXTS[number])),
        }
        for number in range(20)
    ]


def test_cells_that_a_spreadsheet_would_run_become_texts_unless_asked_for_raw(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,more\n=1+1,-5\n")
    for raw, text in ((False, "'=1+1"), (True, "=1+1")):
        predict_files(model, [tmp_path / "t.csv"], tmp_path / str(raw), raw=raw)
        (row,) = read_table(tmp_path / str(raw) / "t.csv", ",")
        assert (row["text"], row["more"]) == (text, "-5")


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines_keep_all_that_json_can_say(packed: bool, model: Path, tmp_path: Path) -> None:
    rows = [
        {"größe": 2**70, "text": "atom", "nested": {"a": [1, None, {"b": 1.5}]}, "half": "\ud800"},
        {"text": "judge", "only here": True},
        {"text": "of"},
    ]
    content = "\n\n".join(json.dumps(row) for row in rows)
    path = tmp_path / ("t.jsonl.gz" if packed else "t.jsonl")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    predict_files(model, [path], tmp_path / "out")
    result = tmp_path / "out" / path.name
    lines = (gzip.decompress(result.read_bytes()) if packed else result.read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == [row | {"predictions": expected(row["text"])} for row in rows]
    assert "größe" in lines[0] or "\\u" in lines[0]
    assert list(json.loads(lines[0])) == [*rows[0], "predictions"]


def nested_table() -> pyarrow.Table:
    number = pyarrow.array(range(20), pyarrow.uint8())
    return pyarrow.table(
        {
            "größe": number,
            "text": pyarrow.array(TEXTS, pyarrow.large_string()),
            "nested": pyarrow.array(
                [None if n == 3 else {"tags": ["a", None], "weight": n / 2} for n in range(20)],
                pyarrow.struct([("tags", pyarrow.list_(pyarrow.string())), ("weight", pyarrow.float32())]),
            ),
            "map": pyarrow.array([[("k", n)] for n in range(20)], pyarrow.map_(pyarrow.string(), pyarrow.int16())),
            "bytes": pyarrow.array([bytes([n, 255]) for n in range(20)]),
            "when": pyarrow.array([datetime.datetime(2020, 1, 1 + n) for n in range(20)], pyarrow.timestamp("us")),
            "price": pyarrow.array([decimal.Decimal(n) / 4 for n in range(20)], pyarrow.decimal128(9, 2)),
            "kind": pyarrow.array(["x", "y"] * 10).dictionary_encode(),
        }
    ).replace_schema_metadata({"origin": "a test"})


def test_parquet_keeps_types_and_metadata(model: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(nested_table(), tmp_path / "t.parquet", row_group_size=7)
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")  # as the file has it
    predict_files(model, [tmp_path / "t.parquet"], tmp_path / "out")
    result = pyarrow.parquet.read_table(tmp_path / "out" / "t.parquet")
    assert result.drop_columns(["predictions"]).equals(table, check_metadata=True)
    assert result.column("predictions").to_pylist() == [expected(text) for text in TEXTS]
    assert result.schema.names == [*table.schema.names, "predictions"]


def test_parquet_to_json_lines_and_tables(model: Path, tmp_path: Path) -> None:
    table = nested_table().drop_columns(["bytes", "map"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    predict_files(model, [tmp_path / "t.parquet"], tmp_path / "json", file_format="jsonl")
    rows = read_lines(tmp_path / "json" / "t.jsonl")
    assert rows[5] == {
        "größe": 5,
        "text": TEXTS[5],
        "nested": {"tags": ["a", None], "weight": 2.5},
        "when": "2020-01-06T00:00:00",
        "price": "1.25",
        "kind": "y",
        "predictions": expected(TEXTS[5]),
    }
    assert rows[3]["nested"] is None
    predict_files(model, [tmp_path / "t.parquet"], tmp_path / "csv", file_format="csv")
    cells = read_table(tmp_path / "csv" / "t.csv", ",")
    assert cells[5]["nested"] == '{"tags": ["a", null], "weight": 2.5}'
    assert [cells[5][name] for name in ("größe", "when", "price", "kind")] == ["5", "2020-01-06T00:00:00", "1.25", "y"]
    assert cells[3]["nested"] == ""


def test_what_json_cannot_hold_is_said(model: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(nested_table(), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet: JSON and tables cannot hold the bytes .*--format parquet"):
        predict_files(model, [tmp_path / "t.parquet"], tmp_path / "out", file_format="jsonl")
    assert not (tmp_path / "out" / "t.jsonl").exists()


def test_json_lines_and_tables_to_parquet(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "atom", "a": 1}, {"text": "judge", "a": 1.5, "b": {"c": None}}, {"text": "", "b": {"c": ["d"]}}]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict_files(
        model, [tmp_path / "j.jsonl", write_table(tmp_path / "t.csv", ",")], tmp_path / "out", file_format="parquet"
    )
    result = pyarrow.parquet.read_table(tmp_path / "out" / "j.parquet")
    assert result.column("a").to_pylist() == [1.0, 1.5, None]
    assert result.column("b").to_pylist() == [None, {"c": None}, {"c": ["d"]}]
    assert result.column("predictions").to_pylist() == [expected(row["text"]) for row in rows]
    result = pyarrow.parquet.read_table(tmp_path / "out" / "t.parquet")
    assert result.column("Größe, cm").to_pylist() == [f"{number:03}" for number in range(20)]
    assert result.column("note").to_pylist() == NOTES


def test_a_column_without_a_type_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"text": "atom", "a": 1}\n{"text": "atom", "a": "x"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"j\.jsonl:1: column 'a' does not fit Parquet: .*--format jsonl"):
        predict_files(model, [tmp_path / "j.jsonl"], tmp_path / "out", file_format="parquet")


@pytest.mark.parametrize("name", ["e.jsonl", "e.csv", "e.parquet", "e.tsv.gz", "e.jsonl.gz"])
def test_empty_files_beside_others_become_empty_files(name: str, model: Path, tmp_path: Path) -> None:
    header = {"e.csv": b"id,text\n", "e.tsv.gz": gzip.compress(b"id\ttext\n"), "e.jsonl.gz": gzip.compress(b"")}
    (tmp_path / name).write_bytes(header.get(name, b""))
    if name == "e.parquet":
        schema = pyarrow.schema([("id", pyarrow.int8()), ("text", pyarrow.string())])
        pyarrow.parquet.write_table(schema.empty_table(), tmp_path / name)
    (tmp_path / "full.csv").write_text("text\natom\n", encoding="utf-8")
    assert predict_files(model, [tmp_path / name, tmp_path / "full.csv"], tmp_path / "out").rows == 1
    result = tmp_path / "out" / name
    if name == "e.parquet":
        assert pyarrow.parquet.read_table(result).schema.names == ["id", "text", "predictions"]
    else:
        content = gzip.decompress(result.read_bytes()) if name.endswith(".gz") else result.read_bytes()
        wanted = {"e.csv": b"id,text,labels,probabilities\n", "e.tsv.gz": b"id\ttext\tlabels\tprobabilities\n"}
        assert content == wanted.get(name, b"")


def test_labels_abstained_from_have_a_column_where_they_are_asked_for(model: Path, tmp_path: Path) -> None:
    # One word: sigmoid(2) = 0.8808, two: sigmoid(7) = 0.9991.
    (tmp_path / "t.csv").write_text("text\natom\natom atom\n", encoding="utf-8")
    predict_files(model, [tmp_path / "t.csv"], tmp_path / "out", abstain_below=0.9)
    rows = read_table(tmp_path / "out" / "t.csv", ",")
    assert [(row["labels"], row["abstained"]) for row in rows] == [("", "science;physics"), ("science;physics", "")]
    predict_files(model, [tmp_path / "t.csv"], tmp_path / "parquet", abstain_below=0.9, file_format="parquet")
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / "t.parquet")
    assert [[label["id"] for label in row] for row in table.column("abstained").to_pylist()] == [
        ["science", "physics"],
        [],
    ]


def test_columns_of_the_same_name_stay(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,labels,labels_2\natom,gold,x\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text('{"text": "atom"}\n{"text": "", "predictions": 1}\n', encoding="utf-8")
    predict_files(model, [tmp_path / "t.csv", tmp_path / "t.jsonl"], tmp_path / "out")
    (row,) = read_table(tmp_path / "out" / "t.csv", ",")
    assert (row["labels"], row["labels_2"], row["labels_3"]) == ("gold", "x", "science;physics")
    first, second = read_lines(tmp_path / "out" / "t.jsonl")
    assert first == {"text": "atom", "predictions_2": expected("atom")}
    assert second == {"text": "", "predictions": 1, "predictions_2": [], "note": "the text is empty or blank"}


def test_a_column_that_stands_twice_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,a,a\natom,1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.csv: column 'a' stands 2 times in the file; rename one of them"):
        predict_files(model, [tmp_path / "t.csv"], tmp_path / "out")


def test_an_unknown_column_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\natom\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text('{"body": "atom"}\n', encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"body": ["atom"]}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        with pytest.raises(InputError, match=rf"{name}.*missing column 'text' .*'body'.*--text-column"):
            predict_files(model, [tmp_path / name], tmp_path / "out")
        assert predict_files(model, [tmp_path / name], tmp_path / f"out-{name}", text_column="body").rows == 1


def test_a_bad_row_stops_the_run_and_finished_files_stay(model: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", 0, 3)
    (tmp_path / "b.jsonl").write_text('{"text": "atom"}\n{"text": 3}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"b\.jsonl:2: column 'text': expected a text, got int 3; .*--skip-bad-rows"):
        predict_files(model, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out")
    check_lines(tmp_path / "out" / "a.jsonl", 0, 3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".hgclr-bulk.jsonl", "a.jsonl"]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["atom", None]}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet:2: column 'text': expected a text, got NoneType"):
        predict_files(model, [tmp_path / "c.parquet"], tmp_path / "out")
    assert not (tmp_path / "out" / "c.parquet").exists()


def test_bad_rows_can_be_left_without_labels(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "atom"}\n{"text": 3, "id": 7}\nnonsense\n{"id": 8}\n', encoding="utf-8")
    (tmp_path / "t.csv").write_text("text,id\natom,1\njudge\njudge,3\n", encoding="utf-8")
    broken = pyarrow.array([b"judge", b"\xff"]).cast(pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": broken}), tmp_path / "t.parquet")
    names = [tmp_path / name for name in ("t.jsonl", "t.csv", "t.parquet")]
    result = predict_files(model, names, tmp_path / "out", skip_bad_rows=True)
    assert (result.rows, result.bad_rows) == (9, 5)
    rows = read_lines(tmp_path / "out" / "t.jsonl")
    assert rows[0] == {"text": "atom", "predictions": expected("atom")}
    assert rows[1] == {
        "text": 3, "id": 7, "predictions": [], "error": "row 2: column 'text': expected a text, got int 3",
    }  # fmt: skip
    assert (rows[2]["predictions"], rows[3]["id"]) == ([], 8)
    assert rows[2]["error"].startswith("row 3: broken JSON")
    assert rows[3]["error"].startswith("row 4: missing column 'text'")
    cells = read_table(tmp_path / "out" / "t.csv", ",")
    assert [(row["text"], row["labels"]) for row in cells] == [
        ("atom", "science;physics"),
        ("", ""),
        ("judge", "law;courts"),
    ]
    assert cells[1]["error"].startswith("row 3: missing column: the row has 1 cells")
    table = pyarrow.parquet.read_table(tmp_path / "out" / "t.parquet")
    assert table.column("error").to_pylist() == [None, "row 2: column 'text': not UTF-8: invalid start byte"]
    assert table.column("text").cast(pyarrow.binary()).to_pylist() == [b"judge", b"\xff"]


def test_damaged_files_are_named(model: Path, tmp_path: Path) -> None:
    whole = gzip.compress(b'{"text": "atom"}\n' * 1000)
    (tmp_path / "t.jsonl.gz").write_bytes(whole[:-20])
    (tmp_path / "t.csv").write_text('text\n"atom\n', encoding="utf-8")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more")
    for name, message in (("t.jsonl.gz", "gzip"), ("t.csv", "broken quoting"), ("t.parquet", "no Parquet file")):
        with pytest.raises(InputError, match=rf"{name}.*{message}"):
            predict_files(model, [tmp_path / name], tmp_path / "out", skip_bad_rows=True)


def test_labels_that_a_table_could_not_tell_apart_are_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", ids={"law": "law; order"})
    write_table(tmp_path / "t.csv", ",")
    with pytest.raises(InputError, match=r"the label 'law; order' has the ';' in it .*--format jsonl"):
        predict_files(model, [tmp_path / "t.csv"], tmp_path / "out")
    assert predict_files(model, [tmp_path / "t.csv"], tmp_path / "out", file_format="jsonl").rows == 20


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(model: Path, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        path = write_lines(tmp_path / f"t{rows}.jsonl", 0, rows)
        predict_files(model, [path], tmp_path / "warm", overwrite=True)
        tracemalloc.start()
        predict_files(model, [path], tmp_path / f"out{rows}")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(12_000) < 1.3 * peak(3_000)
