from __future__ import annotations

import gzip
import json
import logging
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hgclr.data import DataFolder
from hgclr.errors import InputError, MissingExtraError
from hgclr.paper.corpora.wos import GIT_BLOBS, TableRow, build_wos, clean_text, git_blob, read_table, split_rows

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("sklearn")

SHEET, STRINGS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"

HEADER = ["Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract"]

ROWS: list[list[object]] = [
    [1, 9, 25, "ECE ", "Electrical generator", "rotor; coil", "\"It's a generator, isn't it?\""],
    [1, 9, 25, "ECE", " Analog signal processing", "filter", "Filters &lt; 5 dB & <b>more</b>"],
    [1, 9, 25, "ECE", "Electrical generator ", "", "  Two   spaces\u00a0\u2003here "],
    [1, 9, 25, "ECE", "Analog signal processing", "", 'A "quoted" word'],
    [5, 7, 79, " Medical", "Atrial Fibrillation", "", "We've heard; they're fast, he'd run, we'll see"],
    [5, 7, 79, "Medical", "Atrial Fibrillation", "", "Heart 2"],
    [5, 7, 79, "Medical", "Depression", "", "Mood 1"],
    [2, 13, 42, "Psychology", "Depression", "", "Mood 2"],
    [2, 13, 42, "Psychology", "Depression", "", "Mood 3"],
    [2, 13, 42, "Psychology", "Depression", "", "Größe: µm"],
]

TEXTS = [
    "it 's a generator, is n't it?",
    "filters &lt; 5 db & <b>more</b>",
    "two spaces here",
    'a "quoted" word',
    "we 've heard; they 're fast, he 'd run, we 'll see",
    "heart 2",
    "mood 1",
    "mood 2",
    "mood 3",
    "größe: µm",
]

LITERATURE = [
    ["ECE", "Electrical generator"],  # tied with Analog signal processing, so nothing is merged
    ["ECE", "Analog signal processing"],
    ["ECE", "Electrical generator"],
    ["ECE", "Analog signal processing"],
    ["Medical", "Atrial Fibrillation"],
    ["Medical", "Atrial Fibrillation"],
    ["Medical", "Atrial Fibrillation"],
    ["Psychology", "Depression"],
    ["Psychology", "Depression"],
    ["Psychology", "Depression"],
]

ORIGINAL = [
    *LITERATURE[:6],
    ["Medical", "Medical/Depression"],
    *[["Psychology", "Psychology/Depression"]] * 3,
]


def write_xlsx(path: Path, rows: Sequence[Sequence[object]], header: Sequence[object] = HEADER) -> Path:
    workbook = openpyxl.Workbook()
    for row in (header, *rows):
        workbook.active.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    workbook.save(path)
    return path


def repack(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def unpack(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def share_strings(path: Path) -> Path:
    """Store strings as Excel does: once each in a part of their own, some in differently formatted runs."""
    parts = unpack(path)
    sheet = ElementTree.fromstring(parts[SHEET])
    strings: dict[str, int] = {}
    for cell in sheet.iter(f"{{{MAIN}}}c"):
        if cell.get("t") == "inlineStr":
            text = "".join(cell.itertext())
            for child in list(cell):
                cell.remove(child)
            cell.set("t", "s")
            ElementTree.SubElement(cell, f"{{{MAIN}}}v").text = str(strings.setdefault(text, len(strings)))
    assert len(strings) > 7
    table = ElementTree.Element(f"{{{MAIN}}}sst")
    for text in strings:
        item = ElementTree.SubElement(table, f"{{{MAIN}}}si")
        for run in (text[:4], text[4:]) if text.startswith("Filters") else ():
            ElementTree.SubElement(ElementTree.SubElement(item, f"{{{MAIN}}}r"), f"{{{MAIN}}}t").text = run
        if not len(item):
            ElementTree.SubElement(item, f"{{{MAIN}}}t").text = text
    parts[SHEET], parts[STRINGS] = ElementTree.tostring(sheet), ElementTree.tostring(table)
    override = (
        b'<Override PartName="/xl/sharedStrings.xml" '
        b'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>'
    )
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"</Types>", override)
    repack(path, parts)
    return path


def write_text(path: Path, rows: Sequence[Sequence[object]], encoding: str = "utf-8") -> Path:
    lines = ["\t".join(map(str, row)) + "\r\n" for row in (HEADER, *rows)]
    path.write_bytes("".join(lines).encode(encoding))
    return path


def write_json(path: Path, rows: Sequence[tuple[str, Sequence[str]]]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for text, labels in rows:
            row = {"doc_token": text, "doc_label": labels, "doc_topic": [], "doc_keyword": []}
            file.write(json.dumps(row) + "\n")
    return path


def expected(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> dict[str, list[dict[str, object]]]:
    return {
        split: [{"text": texts[row], "labels": list(labels[row])} for row in rows if texts[row]]
        for split, rows in split_rows(len(texts)).items()
    }


def documents(folder: Path) -> dict[str, list[dict[str, object]]]:
    splits = {}
    for name in ("train", "dev", "test"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            splits[name] = [json.loads(line) for line in lines]
    return splits


@pytest.mark.parametrize("shared", [False, True])
def test_spreadsheet(shared: bool, tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    if shared:
        share_strings(source)
    summary = build_wos(source, tmp_path / "out")
    assert documents(tmp_path / "out") == expected(TEXTS, LITERATURE)
    assert summary.documents == {"train": 6, "dev": 2, "test": 2}
    assert summary.left_out == {}
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == (
        "ECE",
        "Medical",
        "Psychology",
        "Electrical generator",
        "Analog signal processing",
        "Atrial Fibrillation",
        "Depression",
    )
    assert tree.parents.tolist() == [-1, -1, -1, 0, 0, 1, 2]
    for split, rows in expected(TEXTS, LITERATURE).items():
        read = list(DataFolder(tmp_path / "out").documents(split))
        assert [document.text for document in read] == [row["text"] for row in rows]
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"] == {"source": ["Data.xlsx"], "labels": "literature"}


def test_original_names(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    build_wos(source, tmp_path / "out", labels="original")
    assert documents(tmp_path / "out") == expected(TEXTS, ORIGINAL)
    tree = DataFolder(tmp_path / "out").taxonomy
    assert [tree.path_name(index) for index in tree.levels[1]] == [
        "ECE > Electrical generator",
        "ECE > Analog signal processing",
        "Medical > Atrial Fibrillation",
        "Medical > Depression",
        "Psychology > Depression",
    ]


def test_merging_in_a_file(tmp_path: Path) -> None:
    rows = [[1, 9, 25, "ECE", "Analog signal processing", "", f"more {number}"] for number in range(3)]
    build_wos(write_xlsx(tmp_path / "Data.xlsx", [*ROWS, *rows]), tmp_path / "out")
    labels = [*LITERATURE[:2], ["ECE", "Analog signal processing"], *LITERATURE[3:], *[LITERATURE[1]] * 3]
    assert documents(tmp_path / "out") == expected([*TEXTS, "more 0", "more 1", "more 2"], labels)


def test_numbers_in_a_spreadsheet(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", [[1.0, "9 ", None, "ECE", "x", None, 2017]])
    assert list(read_table(source)) == [TableRow(2, (1, 9), "ECE", "x", "2017")]


def test_dimensions_of_a_sheet_are_not_believed(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    parts = unpack(source)
    assert b'<dimension ref="A1:G11"' in parts[SHEET]
    repack(source, {**parts, SHEET: parts[SHEET].replace(b'"A1:G11"', b'"A1:B3"')})
    assert [row.number for row in read_table(source)] == list(range(2, 12))


def test_progress_goes_over_the_rows(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    build_wos(
        write_xlsx(tmp_path / "Data.xlsx", ROWS),
        tmp_path / "out",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, 10) for done in range(1, 11)]
    seen.clear()
    build_wos(write_text(tmp_path / "Data.txt", ROWS), tmp_path / "out", progress=lambda *numbers: seen.append(numbers))
    assert seen == [(done, None) for done in range(1, 11)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_file(encoding: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [[str(cell).replace("\u2003", "  ") for cell in row] for row in ROWS]  # no such space in Windows-1252
    with caplog.at_level(logging.WARNING):
        build_wos(write_text(tmp_path / "Data.txt", rows, encoding), tmp_path / "out")
    assert documents(tmp_path / "out") == expected(TEXTS, LITERATURE)
    assert ("Data.txt is not UTF-8: read as Windows-1252" in caplog.text) == (encoding == "cp1252")


def test_latin1_control_characters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "Data.txt"
    source.write_bytes("\t".join(HEADER).encode() + b"\n0\t1\t1\tCS\tx\tk\tcaf\xe9 \x81\n")
    assert [row.abstract for row in read_table(source)] == ["café \x81"]
    assert "neither UTF-8 nor Windows-1252: read as Latin-1" in caplog.text


def test_a_truncated_utf16_file(tmp_path: Path) -> None:
    source = write_text(tmp_path / "Data.txt", ROWS, "utf-16")
    source.write_bytes(source.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"Data\.txt: no utf-16 text somewhere after row \d+: .*truncated data"):
        list(read_table(source))


def test_quotes_in_a_text_file_mean_nothing(tmp_path: Path) -> None:
    source = tmp_path / "Data.txt"
    header = "\t".join(HEADER)
    source.write_text(f'{header}\n0\t1\t1\tCS\tx\t"open\t"An ""inner"" quote, "\n0\t1\t1\tCS\tx\t\t"Not closed\n')
    texts = [clean_text(row.abstract) for row in read_table(source)]
    assert texts == ['an ""inner"" quote,', "not closed"]


def test_a_row_without_an_abstract_keeps_its_place_in_the_split(tmp_path: Path) -> None:
    lacking = split_rows(10)["dev"][0]
    rows = [[*row[:6], ' "" ' if place == lacking else row[6]] for place, row in enumerate(ROWS)]
    texts = ["" if place == lacking else text for place, text in enumerate(TEXTS)]
    for source in (write_xlsx(tmp_path / "Data.xlsx", rows), write_text(tmp_path / "Data.txt", rows)):
        summary = build_wos(source, tmp_path / "out")
        assert documents(tmp_path / "out") == expected(texts, LITERATURE)
        assert summary.documents == {"train": 6, "dev": 1, "test": 2}
        left_out = [json.loads(line) for line in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
        assert left_out == [{"where": f"{source.name}:{lacking + 2}", "reason": "no abstract"}]


def test_an_empty_last_cell_is_an_empty_abstract(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", [[0, 1, 1, "CS", "x"], [0, 1, 1, "CS", "x", "", "y", None, " "]])
    assert [row.abstract for row in read_table(source)] == ["", "y"]


def test_empty_rows_at_the_end(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", [*ROWS, [None] * 7, [" "]])
    assert len(list(read_table(source))) == 10
    text = write_text(tmp_path / "Data.txt", ROWS)
    text.write_bytes(text.read_bytes() + b"\r\n\t\t\t\t\t\t\r\n")
    assert len(list(read_table(text))) == 10
    source = write_xlsx(tmp_path / "Data.xlsx", [ROWS[0], [], ROWS[1]])
    with pytest.raises(InputError, match=r"Data\.xlsx:3: an empty row between others; delete it"):
        list(read_table(source))


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    for name in ("one", "two"):
        build_wos(source, tmp_path / name)
        build_wos(source, tmp_path / name)  # over an earlier build
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["corpus.json", "dev.jsonl.gz", "taxonomy.json", "test.jsonl.gz", "train.jsonl.gz"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_json_lines_in_one_file(tmp_path: Path) -> None:
    rows = [(f" {text.replace('e', 'E')} ", labels) for text, labels in zip(TEXTS, LITERATURE, strict=True)]
    source = write_json(tmp_path / "wos_total.json", rows)
    build_wos(source, tmp_path / "out")
    assert documents(tmp_path / "out") == expected(TEXTS, LITERATURE)


def write_parts(folder: Path) -> dict[str, list[dict[str, object]]]:
    """The three files of the literature, split otherwise than it would."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": slice(0, 5), "val": slice(5, 8), "test": slice(8, 10)}
    for name, part in parts.items():
        write_json(folder / f"wos_{name}.json", list(zip(TEXTS[part], LITERATURE[part], strict=True)))
    return {
        {"val": "dev"}.get(name, name): [
            {"text": text, "labels": labels} for text, labels in zip(TEXTS[part], LITERATURE[part], strict=True)
        ]
        for name, part in parts.items()
    }


def test_json_lines_with_a_split_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = write_parts(tmp_path / "json")
    with caplog.at_level(logging.WARNING):
        build_wos(tmp_path / "json", tmp_path / "out")
    assert documents(tmp_path / "out") == wanted
    for name, blob in GIT_BLOBS.items():
        found = git_blob(tmp_path / "json" / name)
        assert f"{tmp_path / 'json' / name} is not the literature's file: git blob {found}, not {blob}" in caplog.text
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"]["source"] == ["wos_train.json", "wos_val.json", "wos_test.json"]


def test_a_copy_of_the_literatures_file_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_parts(tmp_path)
    monkeypatch.setitem(GIT_BLOBS, "wos_val.json", git_blob(tmp_path / "wos_val.json"))
    with caplog.at_level(logging.INFO):
        build_wos(tmp_path, tmp_path / "out")
    assert f"{tmp_path / 'wos_val.json'} is the literature's file" in caplog.text
    assert caplog.text.count("is not the literature's file") == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "broken JSON"),
        ("[]", "wrong type: the row is a list"),
        ('{"doc_token": "x"}', "missing column 'doc_label'"),
        ('{"doc_token": ["x"], "doc_label": ["CS", "x"]}', "doc_token is not a string"),
        ('{"doc_token": "x", "doc_label": ["CS"]}', re.escape("doc_label is ['CS'], not a domain and an area")),
        ('{"doc_token": "x", "doc_label": ["CS", 3]}', re.escape("doc_label is ['CS', 3], not a domain and")),
        ('{"doc_token": "x", "doc_label": ["CS", " "]}', re.escape("doc_label is ['CS', ' '], not a domain and")),
        ('{"doc_token": "x\\ud800", "doc_label": ["CS", "x"]}', r"not valid Unicode text; correct its \\u escapes"),
    ],
)
def test_broken_json_lines(line: str, problem: str, tmp_path: Path) -> None:
    source = write_json(tmp_path / "wos_total.json", [("x", ["CS", "x"])] * 3)
    with source.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"wos_total\.json:4: " + problem):
        build_wos(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_original_names_are_not_in_json_lines(tmp_path: Path) -> None:
    source = write_json(tmp_path / "wos_total.json", list(zip(TEXTS, LITERATURE, strict=True)))
    with pytest.raises(InputError, match=r"merged already; the original ones are in Data\.xlsx and Data\.txt"):
        build_wos(source, tmp_path / "out", labels="original")


def test_a_folder_of_the_publisher(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_xlsx(tmp_path / "wos" / "Meta-data" / "Data.xlsx", ROWS)
    build_wos(tmp_path / "wos", tmp_path / "out")
    assert documents(tmp_path / "out") == expected(TEXTS, LITERATURE)
    assert "which the folder holds as well" not in caplog.text


def test_a_folder_with_several_sources(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "wos"
    write_parts(folder)
    write_text(folder / "Data.txt", ROWS)
    (folder / "wos_total.json").write_text("never read")
    build_wos(folder, tmp_path / "out")
    assert documents(tmp_path / "out") == expected(TEXTS, LITERATURE)
    others = "wos_total.json, wos_train.json, wos_val.json, wos_test.json"
    assert f"reading {folder / 'Data.txt'}, not {others}, which the folder holds as well" in caplog.text


def test_sources_that_are_none(tmp_path: Path) -> None:
    def refused(source: Path, problem: str) -> None:
        with pytest.raises(InputError, match=problem):
            build_wos(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    refused(tmp_path / "absent", "absent: no such file or folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"no file of Web of Science in this folder; it must hold one of Meta-data/Data\.xlsx, ")
    (tmp_path / "Data.xls").touch()
    refused(tmp_path / "Data.xls", r"unknown format; its name must end in \.xlsx, \.txt, \.tsv, \.json, \.jsonl")
    write_parts(tmp_path / "json")
    refused(tmp_path / "json" / "wos_val.json", "one of three files, each with a split of its own; name the folder")
    (tmp_path / "json" / "wos_val.json").unlink()
    refused(tmp_path / "json", r"no wos_val\.json beside wos_train\.json; all three splits are needed")
    refused(write_xlsx(tmp_path / "Data.xlsx", ROWS[:2]), r"Data\.xlsx: too few rows for three splits: 2")
    (tmp_path / "Data.txt").touch()
    refused(tmp_path / "Data.txt", r"Data\.txt: too few rows for three splits: 0")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([0, 1, 1, "CS", "x", "k", "text", "more"], "8 columns instead of 7; a cell must hold neither tabs nor line"),
        (["A", 1, 1, "CS", "x", "k", "text"], "Y1 is 'A', not a whole number"),
        ([0, 1.5, 1, "CS", "x", "k", "text"], r"Y2 is '1\.5', not a whole number"),
        ([0, -1, 1, "CS", "x", "k", "text"], "Y2 is '-1', not a whole number"),
        ([0, "", 1, "CS", "x", "k", "text"], "Y2 is '', not a whole number"),
        ([0, 1, 1, " ", "x", "k", "text"], "no Domain"),
        ([0, 1, 1, "CS", "", "k", "text"], "no area"),
    ],
)
def test_bad_rows_of_a_table(row: list[object], problem: str, tmp_path: Path) -> None:
    for source in (write_xlsx(tmp_path / "Data.xlsx", [*ROWS, row]), write_text(tmp_path / "Data.txt", [*ROWS, row])):
        with pytest.raises(InputError, match=f"{source.name}:12: {problem}"):
            build_wos(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_too_few_columns_in_a_text_file(tmp_path: Path) -> None:
    source = write_text(tmp_path / "Data.txt", [*ROWS, ["a line of its own"]])
    with pytest.raises(InputError, match=r"Data\.txt:12: 1 column instead of 7"):
        build_wos(source, tmp_path / "out")


def test_other_headers(tmp_path: Path) -> None:
    source = write_xlsx(
        tmp_path / "Data.xlsx", ROWS, header=["y1 ", "Y2", "Y", "domain", "Area", "keywords", "Abstract"]
    )
    assert len(list(read_table(source))) == 10
    for header in (HEADER[::-1], HEADER[:6], [*HEADER, "title"], ROWS[0]):
        source = write_xlsx(tmp_path / "Data.xlsx", ROWS, header=header)
        with pytest.raises(
            InputError, match=r"Data\.xlsx:1: the columns are .*; they must be Y1, Y2, Y, Domain, area, "
        ):
            build_wos(source, tmp_path / "out")


def test_damaged_spreadsheets(tmp_path: Path) -> None:
    whole = share_strings(write_xlsx(tmp_path / "whole.xlsx", ROWS * 50))
    damaged = tmp_path / "Data.xlsx"

    def refused(place: str = "") -> None:
        problem = rf"Data\.xlsx: damaged, truncated or no XLSX file{place}: .*; copy it again from its source"
        with pytest.raises(InputError, match=problem):
            build_wos(damaged, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    content = whole.read_bytes()
    for length in (0, 100, len(content) // 2, len(content) - 30):
        damaged.write_bytes(content[:length])
        refused()
    parts = unpack(whole)
    for name in ("xl/workbook.xml", SHEET, STRINGS):
        repack(damaged, {key: part for key, part in parts.items() if key != name})
        refused()
    repack(damaged, {**parts, STRINGS: parts[STRINGS][:-40]})
    refused()
    repack(damaged, {**parts, SHEET: parts[SHEET][: re.search(rb'<\S*row r="101"', parts[SHEET]).start()]})
    refused(r" somewhere after row (100|9\d)")


def test_other_sizes_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    build_wos(source, tmp_path / "out")
    assert f"{source}: 10 rows, not the 46,985 of WOS-46985" in caplog.text


def test_unknown_labels(tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    with pytest.raises(InputError, match="labels are 'merged'; use 'literature' or 'original'"):
        build_wos(source, tmp_path / "out", labels="merged")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "capability"),
    [("openpyxl", r"Reading Data\.xlsx"), ("sklearn", "The literature's split of Web of Science")],
)
def test_missing_extra(module: str, capability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == module else find(name))
    source = write_xlsx(tmp_path / "Data.xlsx", ROWS)
    with pytest.raises(MissingExtraError, match=capability + r" needs an optional part: pip install 'hgclr\[data\]'"):
        build_wos(source, tmp_path / "out")
    write_parts(tmp_path / "json")
    assert build_wos(tmp_path / "json", tmp_path / "out").documents["train"] == 5  # needs neither
