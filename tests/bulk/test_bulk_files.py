"""Inputs and results of bulk prediction: every format from every format, all columns, all rows, in order."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import logging
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.bulk import files, predict_files
from hgclr.bulk.files import Columns, pair_with_targets, read_chunks, write_file
from hgclr.data.readers import TextForm
from hgclr.data.texts import find_inputs
from hgclr.errors import InputError
from support.bulk_cases import expected, prediction, read_lines, text_of, write_model

TEXTS = [text_of(number) for number in range(20)]
NOTES = ['plain, "quoted"', "two\nlines", "", "schön ☃"] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("bulk") / "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.csv",
        "a.jsonl",
        "c.parquet",
        "d.tsv.gz",
        "e.xlsx",
        "~$e.xlsx",
        "notes.txt",
        ".hidden.jsonl",
        "below/e.jsonl",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(paths: list[Path], folder: Path) -> list[str]:
    return [str(path.relative_to(folder.resolve())) for path in paths]


def test_folders_patterns_and_files_come_once_and_in_order(folder: Path) -> None:
    assert names(find_inputs([folder]), folder) == ["a.jsonl", "b.csv", "c.parquet", "d.tsv.gz", "e.xlsx"]
    assert find_inputs([f"{folder}/"]) == find_inputs([folder])
    for number in (10, 2, 1):
        (folder / f"part-{number:02}.jsonl").touch()
    found = find_inputs([folder / "part-*.jsonl", folder / "b.csv", folder / "part-01.jsonl"])
    assert names(found, folder) == ["part-01.jsonl", "part-02.jsonl", "part-10.jsonl", "b.csv"]
    assert "below/e.jsonl" in names(find_inputs([f"{folder}/**/*.jsonl"]), folder)
    (folder / "[ab].csv").touch()  # a file whose name looks like a pattern
    assert names(find_inputs([folder / "[ab].csv"]), folder) == ["[ab].csv"]


@pytest.mark.parametrize("name", ["missing.csv", "x*.csv", "none"])
def test_nothing_to_label_is_an_error(name: str, folder: Path) -> None:
    (folder / "none").mkdir()
    with pytest.raises(InputError) as refused:
        find_inputs([folder / name])
    assert refused.value.path == folder / name


@pytest.mark.parametrize(
    ("name", "wanted", "result"),
    [
        ("a.jsonl", None, "a.jsonl"),
        ("a.TSV.gz", None, "a.TSV.gz"),
        ("a.b.csv", "jsonl", "a.b.jsonl"),
        ("a.csv.gz", "jsonl", "a.jsonl"),
        ("a.jsonl.gz", "parquet", "a.parquet"),
    ],
)
def test_a_result_has_the_name_of_its_input(name: str, wanted, result: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    ((_, target),) = pair_with_targets([tmp_path / name], Path("out"), wanted)
    assert target == Path("out") / result


def test_inputs_and_results_that_would_mix_are_refused(folder: Path) -> None:
    (folder / "below" / "a.jsonl").touch()
    (folder / "a.csv").touch()
    cases = [
        (["notes.txt"], "out", None),  # of an unknown format
        (["a.jsonl", "below/a.jsonl"], "out", None),  # two results of one name
        (["a.jsonl", "a.csv"], "out", "parquet"),
        (["."], "labelled", None),  # the results within the folder of inputs
        (["a.jsonl"], ".", None),  # an input within the folder of results
        (["**/*.jsonl"], "below", None),
        (["a.jsonl"], "b.csv", None),  # a file where the folder would be
    ]
    for inputs, output, wanted in cases:
        with pytest.raises(InputError):
            pair_with_targets([folder / name for name in inputs], folder / output, wanted)
    assert len(pair_with_targets([folder / "*.csv"], folder / "labelled")) == 2


def write_table(path: Path, delimiter: str) -> Path:
    stream = io.StringIO()
    table = csv.writer(stream, delimiter=delimiter)
    table.writerow(("Größe, cm", "text", "note"))
    table.writerows((f"{number:03}", TEXTS[number], NOTES[number]) for number in range(20))
    path.write_bytes(gzip.compress(stream.getvalue().encode()) if path.suffix == ".gz" else stream.getvalue().encode())
    return path


def read_table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), delimiter=delimiter))


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.csv.gz", ","), ("t.tsv", "\t")])
def test_tables_keep_cells_order_and_quoting(name: str, delimiter: str, model: Path, tmp_path: Path) -> None:
    predict_files(model, [write_table(tmp_path / name, delimiter)], tmp_path / "out")
    assert read_table(tmp_path / "out" / name, delimiter) == [
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
        (row,) = read_table(tmp_path / str(raw) / "t.csv")
        assert (row["text"], row["more"]) == (text, "-5")


def test_json_lines_keep_all_that_json_can_say(model: Path, tmp_path: Path) -> None:
    rows = [
        {"größe": 2**70, "text": "atom", "nested": {"a": [1, None, {"b": 1.5}]}, "half": "\ud800"},
        {"text": "judge", "only here": True},
        {"text": "of"},
    ]
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress("\n\n".join(json.dumps(row) for row in rows).encode()))
    predict_files(model, [tmp_path / "t.jsonl.gz"], tmp_path / "out")
    lines = gzip.decompress((tmp_path / "out" / "t.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == [row | {"prediction": prediction(row["text"])} for row in rows]
    assert list(json.loads(lines[0])) == [*rows[0], "prediction"]


def nested_table() -> pyarrow.Table:
    return pyarrow.table(
        {
            "größe": pyarrow.array(range(20), pyarrow.uint8()),
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
    assert result.drop_columns(["prediction"]).equals(table, check_metadata=True)
    wanted = [prediction(text, note=None, error=None) for text in TEXTS]
    assert result.column("prediction").to_pylist() == wanted


def test_parquet_to_json_lines_and_tables(model: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(nested_table().drop_columns(["bytes", "map"]), tmp_path / "t.parquet")
    predict_files(model, [tmp_path / "t.parquet"], tmp_path / "json", file_format="jsonl")
    rows = read_lines(tmp_path / "json" / "t.jsonl")
    assert rows[5] == {
        "größe": 5,
        "text": TEXTS[5],
        "nested": {"tags": ["a", None], "weight": 2.5},
        "when": "2020-01-06 00:00:00",
        "price": "1.25",
        "kind": "y",
        "prediction": prediction(TEXTS[5]),
    }
    predict_files(model, [tmp_path / "t.parquet"], tmp_path / "csv", file_format="csv")
    cells = read_table(tmp_path / "csv" / "t.csv")
    assert cells[5]["nested"] == '{"tags": ["a", null], "weight": 2.5}'
    assert [cells[5][name] for name in ("größe", "when", "price", "kind")] == ["5", "2020-01-06 00:00:00", "1.25", "y"]
    assert cells[3]["nested"] == ""


def test_json_lines_and_tables_to_parquet(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "atom", "a": 1}, {"text": "judge", "a": 1.5, "b": {"c": None}}, {"text": "", "b": {"c": ["d"]}}]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sources = [tmp_path / "j.jsonl", write_table(tmp_path / "t.csv", ",")]
    predict_files(model, sources, tmp_path / "out", file_format="parquet")
    result = pyarrow.parquet.read_table(tmp_path / "out" / "j.parquet")
    assert result.column("a").to_pylist() == [1.0, 1.5, None]
    assert result.column("b").to_pylist() == [None, {"c": None}, {"c": ["d"]}]
    table = pyarrow.parquet.read_table(tmp_path / "out" / "t.parquet")
    assert table.column("note").to_pylist() == NOTES


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([{"text": "a"}] * 4 + [{"text": "b", "late": 1}], "csv"),
        ([{"text": "a"}] * 4 + [{"text": "b", "late": 1}], "parquet"),
        ([{"text": "a"}] * 4 + [{"text": "b", "prediction": 1}], "jsonl"),
        ([{"text": "a", "b": 1}, {"text": "a", "b": "x"}], "parquet"),
        ([{"text": "a", "b": 2**70}], "parquet"),
        ([{"text": "a", "b": "\ud800"}], "csv"),
    ],
)
def test_rows_that_a_format_cannot_hold_are_an_error(
    rows: list[dict], wanted, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", 4)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        predict_files(model, [tmp_path / "t.jsonl"], tmp_path / "out", file_format=wanted)
    assert refused.value.path == tmp_path / "t.jsonl"
    assert refused.value.remedy
    assert not (tmp_path / "out" / f"t.{wanted}").exists()


def test_empty_files_become_empty_files(model: Path, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").touch()
    (tmp_path / "e.tsv.gz").write_bytes(gzip.compress(b"id\ttext\n"))
    schema = pyarrow.schema([("id", pyarrow.int8()), ("text", pyarrow.string())])
    pyarrow.parquet.write_table(schema.empty_table(), tmp_path / "e.parquet")
    assert predict_files(model, [tmp_path / "e.*"], tmp_path / "out").rows == 0
    assert (tmp_path / "out" / "e.jsonl").read_bytes() == b""
    assert read_table(tmp_path / "out" / "e.tsv.gz", "\t") == []
    assert pyarrow.parquet.read_table(tmp_path / "out" / "e.parquet").schema.names == ["id", "text", "prediction"]


def test_abstained_labels(model: Path, tmp_path: Path) -> None:
    # One word: sigmoid(2) = 0.8808, two: sigmoid(7) = 0.9991.
    (tmp_path / "t.csv").write_text("text\natom\natom atom\n", encoding="utf-8")
    predict_files(model, [tmp_path / "t.csv"], tmp_path / "out", abstain_below=0.9)
    rows = read_table(tmp_path / "out" / "t.csv")
    assert [(row["labels"], row["abstained"]) for row in rows] == [("", "science;physics"), ("science;physics", "")]
    predict_files(model, [tmp_path / "t.csv"], tmp_path / "parquet", abstain_below=0.9, file_format="parquet")
    found = pyarrow.parquet.read_table(tmp_path / "parquet" / "t.parquet").column("prediction").to_pylist()
    assert [label["id"] for label in found[0]["abstained"]] == ["science", "physics"]


@pytest.mark.parametrize("wanted", ["csv", "jsonl", "parquet"])
def test_columns_of_the_same_name_are_refused(wanted, model: Path, tmp_path: Path) -> None:
    name = "labels" if wanted == "csv" else "prediction"
    for header in (f"text,{name}", "text,a,a"):
        (tmp_path / "t.csv").write_text(f"{header}\n{header}\n", encoding="utf-8")
        with pytest.raises(InputError) as refused:
            predict_files(model, [tmp_path / "t.csv"], tmp_path / "out", file_format=wanted)
        assert (refused.value.path, refused.value.remedy is not None) == (tmp_path / "t.csv", True)


def test_thefind_text_column(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\natom\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text('{"body": "atom"}\n', encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"body": ["atom"]}), tmp_path / "t.parquet")
    trained = write_model(tmp_path / "trained")
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps(config | {"text_column": "body"}))
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        with pytest.raises(InputError) as refused:
            predict_files(model, [tmp_path / name], tmp_path / "out")
        assert refused.value.path == tmp_path / name
        assert "--text-column" in refused.value.remedy
        assert predict_files(model, [tmp_path / name], tmp_path / f"out-{name}", text_column="body").rows == 1
        assert predict_files(trained, [tmp_path / name], tmp_path / f"trained-{name}").rows == 1


def test_bad_rows_can_be_left_without_labels(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "atom"}\n{"text": 3, "id": 7}\nnonsense\n{"id": 8}\n', encoding="utf-8")
    (tmp_path / "t.csv").write_text("text,id\natom,1\njudge\njudge,3\n", encoding="utf-8")
    sources = [tmp_path / name for name in ("t.jsonl", "t.csv")]
    result = predict_files(model, sources, tmp_path / "out", skip_bad_rows=True)
    assert (result.rows, result.bad_rows) == (7, 4)
    rows = read_lines(tmp_path / "out" / "t.jsonl")
    assert rows[0] == {"text": "atom", "prediction": prediction("atom")}
    assert (rows[1]["text"], rows[1]["id"], rows[3]["id"]) == (3, 7, 8)
    assert [row["prediction"].get("error", "")[:5] for row in rows] == ["", "row 2", "row 3", "row 4"]
    cells = read_table(tmp_path / "out" / "t.csv")
    assert [(row["text"], row["labels"], row["error"][:5]) for row in cells] == [
        ("atom", "science;physics", ""),
        ("", "", "row 3"),
        ("judge", "law;courts", ""),
    ]


def test_damaged_files_are_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b'{"text": "atom"}\n' * 1000)[:-20])
    (tmp_path / "t.csv").write_text('text\n"atom\n', encoding="utf-8")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more")
    broken = pyarrow.array([b"judge", b"\xff"]).cast(pyarrow.binary()).view(pyarrow.string())  # not UTF-8
    pyarrow.parquet.write_table(pyarrow.table({"text": broken}), tmp_path / "u.parquet")
    for name in ("t.jsonl.gz", "t.csv", "t.parquet", "u.parquet"):
        with pytest.raises(InputError) as refused:
            predict_files(model, [tmp_path / name], tmp_path / "out", skip_bad_rows=True)
        assert refused.value.path == tmp_path / name


def test_labels_that_a_table_could_not_tell_apart_are_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", ids={"law": "law; order"})
    write_table(tmp_path / "t.csv", ",")
    with pytest.raises(InputError) as refused:
        predict_files(model, [tmp_path / "t.csv"], tmp_path / "out")
    assert "--format jsonl" in refused.value.remedy
    assert predict_files(model, [tmp_path / "t.csv"], tmp_path / "out", file_format="jsonl").rows == 20


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    cells=st.lists(st.tuples(st.text("aé–\"';,\t|\n "), st.text("bß 1=")), min_size=1, max_size=5),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]),
    packed=st.booleans(),
)
def test_a_table_is_written_in_the_form_of_its_input(
    cells: list[tuple[str, str]], delimiter: str, end: str, encoding: str, packed: bool, place: Path
) -> None:
    def table(*more: str) -> bytes:
        """Return the table as the standard library writes it, with further columns."""
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=delimiter, lineterminator=end)
        writer.writerows([["text", "größe", *more], *([*row, *("" for _ in more)] for row in cells)])
        data = stream.getvalue().encode(encoding)
        return gzip.compress(data, mtime=0) if packed else data

    name = "t.csv.gz" if packed else "t.csv"
    (place / name).write_bytes(table())
    form = TextForm(encoding if encoding == "cp1252" else None)
    chunks = read_chunks(place / name, ["text"], form)
    labelled = ((chunk, chunk.answers({"labels": []} for _ in chunk.usable_texts)) for chunk in chunks)
    list(write_file(labelled, place / f"out-{name}", "csv", Columns(raw=True)))
    written, wanted = (place / f"out-{name}").read_bytes(), table("labels", "probabilities")
    if packed:
        written, wanted = gzip.decompress(written), gzip.decompress(wanted)
    assert written == wanted
    assert not list(place.glob(".*.tmp"))


def test_labels_that_the_encoding_of_the_input_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = write_model(tmp_path / "model", ids={"law": "法"})
    rows = [f"schön {number};{'judge' if number == 2000 else 'atom'}" for number in range(2001)]
    (tmp_path / "t.csv").write_bytes("\n".join(["note;text", *rows, ""]).encode("cp1252"))
    for file in ("t.csv", "u.csv"):
        with caplog.at_level(logging.WARNING):
            predict_files(model, [tmp_path / file], tmp_path / "out")
        encoding = "utf-8-sig" if file == "t.csv" else "cp1252"
        table = (tmp_path / "out" / file).read_bytes().decode(encoding)
        assert [";".join(row[:2]) for row in csv.reader(io.StringIO(table), delimiter=";")][1:] == rows
        assert (str(tmp_path / "out" / "t.csv") in caplog.messages[-1]) == (file == "t.csv")
        caplog.clear()
        (tmp_path / "u.csv").write_bytes("\n".join(["note;text", *rows[:-1], ""]).encode("cp1252"))
        rows.pop()


WHEN = datetime.datetime(2024, 1, 31)


def write_sheet(path: Path, rows: list[list[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.active.append(row)
    for cell in workbook.active["B"][1:]:
        cell.number_format = "dd.mm.yyyy"
    workbook.save(path)
    return path


def read_sheet(path: Path) -> list[list[object]]:
    openpyxl = pytest.importorskip("openpyxl")
    return [list(row) for row in openpyxl.load_workbook(path).active.iter_rows(values_only=True)]


SHEET = [["text", "when", "price", "paid"], ["atom\nof two lines", WHEN, 2.5, True], [2024, None, 3, None]]


def test_workbooks_keep_cells_and_formats(model: Path, tmp_path: Path) -> None:
    source = write_sheet(tmp_path / "t.xlsx", SHEET)
    assert predict_files(model, [tmp_path], tmp_path.parent / "sheets").rows == 2
    target = tmp_path.parent / "sheets" / "t.xlsx"
    header, first, second = read_sheet(target)
    assert header == [*SHEET[0], "labels", "probabilities"]
    assert (first[:4], second[1:4]) == (SHEET[1], SHEET[2][1:])
    assert first[4] == "science;physics"
    assert str(second[0]) == "2024"
    cell = pytest.importorskip("openpyxl").load_workbook(target).active["B2"]
    assert cell.number_format == "dd.mm.yyyy"
    predict_files(model, [source], tmp_path / "csv", file_format="csv")
    (row, _) = read_table(tmp_path / "csv" / "t.csv")
    assert [row[name] for name in SHEET[0]] == ["atom\nof two lines", "2024-01-31 00:00:00", "2.5", "True"]


def test_every_format_becomes_a_workbook(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "=1+1", "n": 5, "big": 2**60, "more": {"a": 1}}, {"text": "bell\a _x0041_", "n": None, "nan": 1}]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["atom"], "x": [float("nan")]}), tmp_path / "p.parquet")
    sources = [tmp_path / "j.jsonl", write_table(tmp_path / "t.csv", ","), tmp_path / "p.parquet"]
    predict_files(model, sources, tmp_path / "out", file_format="xlsx")
    _, first, second = read_sheet(tmp_path / "out" / "j.xlsx")
    assert first[:4] == ["=1+1", 5, str(2**60), '{"a": 1}']
    assert second[0] == "bell  _x005F_x0041_"  # as Excel writes it; its reader decodes it
    sheet = pytest.importorskip("openpyxl").load_workbook(tmp_path / "out" / "j.xlsx").active
    assert (sheet["A2"].data_type, sheet["A2"].quotePrefix, sheet["A3"].quotePrefix) == ("s", True, False)
    chunk = next(read_chunks(tmp_path / "out" / "j.xlsx", ["text"]))
    assert chunk.texts == ["=1+1", "bell  _x0041_"]
    assert [row[2] or "" for row in read_sheet(tmp_path / "out" / "t.xlsx")][1:] == NOTES
    assert read_sheet(tmp_path / "out" / "p.xlsx")[1][:2] == ["atom", "nan"]


def test_what_excel_cannot_hold_is_an_error(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [{"text": "atom", "more": "😀" * 16_383}, {"text": "atom", "more": "😀" * 16_384}]
    for count, limit in ((1, 2**20), (2, 2**20), (1, 1)):
        monkeypatch.setattr("hgclr.files.SHEET_ROWS", limit)
        (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows[:count])), encoding="utf-8")
        if (count, limit) == (1, 2**20):
            predict_files(model, [tmp_path / "t.jsonl"], tmp_path / "out", file_format="xlsx")
            continue
        with pytest.raises(InputError) as refused:
            predict_files(model, [tmp_path / "t.jsonl"], tmp_path / str(limit), file_format="xlsx")
        assert refused.value.path == tmp_path / "t.jsonl"
        assert refused.value.remedy
        assert not list(tmp_path.glob(f"{limit}/*.xlsx")) + list(tmp_path.glob("openpyxl*"))
