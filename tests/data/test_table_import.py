"""Import of tables: every format and every way to write labels gives the same data folder."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.data.layout import Layout
from hgclr.data.table_import import MANY_LABELS, TIMES, ImportResult, import_tables, merge_twins, near_twins
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare

PATHS = [("Home", "Garden"), ("Home", "Kitchen", "Oven"), ("Travel", "Train"), ("Travel",)]
ROWS = [(f"a letter about matter number {number}, with, a comma", PATHS[number % len(PATHS)]) for number in range(48)]
IDS = {"Home", "Home > Garden", "Home > Kitchen", "Home > Kitchen > Oven", "Travel", "Travel > Train"}


def write_csv(path: Path, rows: Sequence[Sequence[object]], *, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def as_paths(separator: str = " > ") -> list[list[object]]:
    return [
        ["No", "Letter", "Desk"],
        *([number, text, separator.join(path)] for number, (text, path) in enumerate(ROWS)),
    ]


def documents(folder: Path) -> dict[str, set[str]]:
    """The labels of each text, read by the data folder's own reader."""
    data = DataFolder(folder)
    return {
        document.text: {data.taxonomy.path_name(label) for label in document.labels}
        for split in data.splits
        for document in data.documents(split)
    }


def expected() -> dict[str, set[str]]:
    return {text: {" > ".join(path[:depth]) for depth in range(1, len(path) + 1)} for text, path in ROWS}


def brought_in(path: Path | Sequence[Path], folder: Path, **options: object) -> ImportResult:
    paths = [path] if isinstance(path, Path) else path
    return import_tables(paths, folder / "out", **{"stratify": False, "skip_bad_rows": True, **options})


@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-8"), ("|", "utf-8")]
)
def test_any_delimiter_with_and_without_a_mark(tmp_path: Path, delimiter: str, encoding: str) -> None:
    path = write_csv(tmp_path / "letters.csv", as_paths(), delimiter=delimiter, encoding=encoding)
    result = brought_in(path, tmp_path)
    assert (result.layout.text, result.layout.labels, result.layout.path_separator) == ("Letter", ("Desk",), ">")
    assert documents(tmp_path / "out") == expected()
    assert set(result.taxonomy.ids) == IDS


def as_excel(folder: Path) -> Path:
    workbook = pytest.importorskip("openpyxl").Workbook()
    for row in as_paths():
        workbook.active.append(row)
    workbook.save(folder / "letters.xlsx")
    return folder / "letters.xlsx"


def as_json_lines(folder: Path) -> Path:
    path = folder / "letters.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"letter": text, "labels": [list(names)]}) + "\n" for text, names in ROWS)
    return path


def as_parquet(folder: Path) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"letter": [text for text, _ in ROWS], "labels": [[" > ".join(names)] for _, names in ROWS]}
    parquet.write_table(pyarrow.table(columns), folder / "letters.parquet")
    return folder / "letters.parquet"


def as_levels(folder: Path) -> Path:
    rows = [[text, *names, *[""] * (3 - len(names))] for text, names in ROWS]
    return write_csv(folder / "letters.csv", [["letter", "Level 1", "Level 2", "Level 3"], *rows])


def as_several_columns(folder: Path) -> Path:
    rows = [[text, "/".join(names), "Travel" if names[0] == "Travel" else ""] for text, names in ROWS]
    return write_csv(folder / "letters.csv", [["letter", "first desk", "second desk"], *rows])


@pytest.mark.parametrize("write", [as_excel, as_json_lines, as_parquet, as_levels])
def test_any_format(tmp_path: Path, write) -> None:
    brought_in(write(tmp_path), tmp_path)
    assert documents(tmp_path / "out") == expected()


def test_several_columns_of_labels(tmp_path: Path) -> None:
    layout = Layout(labels=("first desk", "second desk"), path_separator="/")
    brought_in(as_several_columns(tmp_path), tmp_path, layout=layout)
    assert documents(tmp_path / "out") == expected()


@pytest.mark.parametrize("sign", [" / ", " -> ", "::", "\\"])
def test_what_stands_between_names_is_found(tmp_path: Path, sign: str) -> None:
    result = brought_in(write_csv(tmp_path / "letters.csv", as_paths(sign)), tmp_path)
    assert result.layout.path_separator == sign.strip()
    assert documents(tmp_path / "out") == expected()


def test_names_with_a_tree(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("Home > Garden\nHome > Kitchen > Oven\nTravel > Train\n", encoding="utf-8")
    rows = [[text, names[-1]] for text, names in ROWS]
    path = write_csv(tmp_path / "letters.csv", [["text", "desk"], *rows, ["a lost letter", "Cellar"]])
    result = brought_in(path, tmp_path, taxonomy=tmp_path / "tree.txt")
    assert documents(tmp_path / "out") == expected()
    assert result.taxonomy == Taxonomy.read(tmp_path / "tree.txt")
    assert [line.partition(": ")[0] for line in result.left_out] == [f"{path}:{len(rows) + 2}"]


TWINS = [
    *(("mind", "Mental Processes > Memory") for _ in range(3)),
    *(("mind", "mental  Processes>Memory") for _ in range(2)),
    *(("body", "Health > Sport") for _ in range(5)),
]


@pytest.mark.parametrize("merge", [False, True])
def test_near_twins_are_reported_and_merged_by_default(tmp_path: Path, merge: bool) -> None:
    rows = [[f"{word} {number}", label] for number, (word, label) in enumerate(TWINS)]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *rows])
    result = brought_in(path, tmp_path, dev=0, test=0, **({} if merge else {"merge": False}))
    assert result.twins_merged == merge
    assert [twins.paths for twins in result.twins] == [((("Mental Processes",), 3), (("mental  Processes",), 2))]
    tops = [result.taxonomy.names[label] for label in result.taxonomy.levels[0]]
    assert tops == (["Health", "Mental Processes"] if merge else ["Health", "Mental Processes", "mental  Processes"])
    labels = documents(tmp_path / "out")["mind 4"]
    top = "Mental Processes" if merge else "mental  Processes"
    assert labels == {top, f"{top} > Memory"}


def test_near_twins_of_a_tree_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("Mental Processes > Memory\n", encoding="utf-8")
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], ["a", "memory"], ["b", "Memory"], ["c", "MEMORY"]])
    options = {"taxonomy": tmp_path / "tree.txt", "dev": 0, "test": 0}
    apart = brought_in(path, tmp_path, merge=False, **options)
    assert (len(apart.left_out), sorted(documents(tmp_path / "out"))) == (2, ["b"])
    assert [path for path, _ in apart.twins[0].paths] == [("Mental Processes", "Memory"), ("memory",), ("MEMORY",)]
    brought_in(path, tmp_path, **options)
    assert sorted(documents(tmp_path / "out")) == ["a", "b", "c"]


def test_rows_with_one_text_become_one_document(tmp_path: Path) -> None:
    head = [["text", "labels"], ["the same", "A > B"], ["other", "C"]]
    rows = [["The  SAME", "A > D"], ["other", "C"], ["third", "C"], ["the same", "A > B"]]
    path = write_csv(tmp_path / "a.csv", [*head, *rows])
    result = brought_in(path, tmp_path, dev=0, test=0)
    assert documents(tmp_path / "out") == {"the same": {"A", "A > B", "A > D"}, "other": {"C"}, "third": {"C"}}
    assert (result.rows, result.merged, result.contradictions) == (6, 3, 1)
    (line,) = (tmp_path / "out" / "contradictions.jsonl").read_text(encoding="utf-8").splitlines()
    places = [
        {"where": f"{path}:{number}", "labels": [label]} for number, label in ((2, "A > B"), (4, "A > D"), (7, "A > B"))
    ]
    assert json.loads(line) == {"text": "the same", "rows": places}


def recurring(text: str, labels: int) -> list[list[str]]:
    """Rows with one text, each with another label, and one row more."""
    return [[text, f"X > x{number % labels}"] for number in range(labels + 1)]


@pytest.mark.parametrize("labels", [MANY_LABELS - 1, MANY_LABELS])
def test_texts_with_many_different_labels_are_placeholders(tmp_path: Path, labels: int) -> None:
    rows = [[f"text {number}", "A"] for number in range(40)]
    rows += [
        ["two labels", "A"],
        ["two labels", "B"],
        ["a list", "A; B; C > D; E; F; G"],
        *recurring("see above", labels),
    ]
    rows += [["SEE ABOVE", " x>X0"], ["text 1", "A"], ["text 1", "a"]]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *rows])
    result = brought_in(path, tmp_path, dev=0, test=0)
    kept = documents(tmp_path / "out")
    if labels < MANY_LABELS:
        assert (result.contradictions, result.placeholders) == (2, {})
        assert len(kept["see above"]) == labels + 1
        return
    assert (result.contradictions, result.merged) == (1, 3)
    assert list(result.placeholders.values()) == [labels + 2]
    assert "'see above'" in next(iter(result.placeholders))
    assert (len(kept), kept["two labels"]) == (42, {"A", "B"})
    assert "X" not in result.taxonomy.ids  # only placeholders have it
    lines = map(json.loads, (tmp_path / "out" / "left-out.jsonl").read_text(encoding="utf-8").splitlines())
    assert {(line["reason"], "'see above'" in line["detail"]) for line in lines} == {("placeholder", True)}
    everything = brought_in(path, tmp_path, keep_placeholders=True, dev=0, test=0)
    assert (everything.contradictions, everything.placeholders) == (2, {})


@pytest.mark.parametrize("labels", [3 * TIMES - 1, 3 * TIMES])
def test_a_table_with_one_row_per_label(tmp_path: Path, labels: int) -> None:
    """Texts with three labels are usual here, so only a text with three times as many is a placeholder."""
    rows = [[f"text {number}", f"A > {(number + step) % 9}"] for number in range(60) for step in range(3)]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *rows, *recurring("as before", labels)])
    result = brought_in(path, tmp_path, dev=0, test=0)
    assert len(documents(tmp_path / "out")) == (61 if labels < 3 * TIMES else 60)
    assert result.placeholders.total() == (0 if labels < 3 * TIMES else labels + 1)


def test_usual_placeholders_need_not_recur(tmp_path: Path) -> None:
    rows = [[f"text {number}", "A"] for number in range(40)] + [["TBD", "B"], ["k. A.", "B"], ["Ka 7", "B"]]
    result = brought_in(write_csv(tmp_path / "a.csv", [["text", "labels"], *rows]), tmp_path, dev=0, test=0)
    assert (result.placeholders.total(), len(documents(tmp_path / "out"))) == (2, 41)


def test_placeholders_are_found_across_given_splits(tmp_path: Path) -> None:
    rows = [[f"text {number}", "A"] for number in range(40)]
    train = write_csv(tmp_path / "train.csv", [["text", "labels"], *rows, *recurring("n/a", MANY_LABELS)])
    test = write_csv(tmp_path / "test.csv", [["text", "labels"], ["n/a", "A"], ["other", "A"]])
    result = brought_in([train, test], tmp_path, dev=0)
    assert (result.summary.documents["test"], result.placeholders.total()) == (1, MANY_LABELS + 2)


def test_texts_without_a_word_are_placeholders(tmp_path: Path) -> None:
    texts = ["-", "...", "?", "— —", "404", "数", "👍", "да", "ok"]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *([text, "A"] for text in texts)])
    layout = Layout(text="text", labels=("labels",))
    result = brought_in(path, tmp_path, layout=layout, dev=0, test=0)
    assert sorted(documents(tmp_path / "out")) == sorted(texts[4:])
    assert (result.placeholders.total(), result.left_out) == (4, [])
    brought_in(path, tmp_path, layout=layout, keep_placeholders=True, dev=0, test=0)
    assert sorted(documents(tmp_path / "out")) == sorted(texts)


FIRST = ["Home > Garden > Roses", "Home > Garden > Other", "Home > Kitchen", "Travel > Train", "Travel > Other"]
SECOND = ["Leisure > garden > Roses", "Leisure > garden > Other", "House > Kitchen", "Travel > Rail", "Travel > Other"]
KEPT = {"Home > Garden > Roses", "Home > Garden > Other", "Home > Garden", "Home > Kitchen", "Travel", "Travel > Other"}


def labelled(path: Path, labels: Sequence[str]) -> Path:
    return write_csv(path, [["text", "labels"], *([f"text {number}", label] for number, label in enumerate(labels))])


def ids(changes: TreeChanges, pairs) -> dict[str, str]:
    assert all(changes.old.ids[pair.old] == changes.new.ids[pair.new] for pair in pairs)
    return {changes.old.ids[pair.old]: changes.new.path_name(pair.new) for pair in pairs}


def test_a_label_keeps_its_id_when_it_is_moved_or_renamed(tmp_path: Path) -> None:
    tables = [labelled(tmp_path / f"{name}.csv", labels) for name, labels in (("1", FIRST), ("2", SECOND))]
    options = {"dev": 0, "test": 0}
    assert brought_in(tables[0], tmp_path, **options).changes is None
    first = DataFolder(tmp_path / "out").taxonomy
    result = brought_in(tables[1], tmp_path, **options)
    moved = {"Home > Garden": "Leisure > garden", "Home > Kitchen": "House > Kitchen"}
    for changes in (result.changes, compare(first, DataFolder(tmp_path / "out").taxonomy)):
        assert ids(changes, changes.moved) == moved
        assert [changes.new.ids[label] for label in changes.added] == ["House", "Leisure", "Travel > Rail"]
        assert [changes.old.ids[label] for label in changes.removed] == ["Home", "Travel > Train"]
        assert set(changes.new.ids) == {*KEPT, "House", "Leisure", "Travel > Rail"}
    names = {"House > Kitchen", "House"}
    assert documents(tmp_path / "out")["text 2"] == names
    with gzip.open(tmp_path / "out" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert json.loads(list(lines)[2])["labels"] == ["House", "Home > Kitchen"]

    (tmp_path / "map.tsv").write_text("old\tnew\nHome\tHouse\nTrain\tTravel > Rail\n", encoding="utf-8")
    renamed = brought_in(tables[1], tmp_path / "b", ids_from=first, changes=tmp_path / "map.tsv", **options)
    for changes in (renamed.changes, compare(first, DataFolder(tmp_path / "b" / "out").taxonomy)):
        assert ids(changes, changes.renamed) == {
            "Home": "House",
            "Travel > Train": "Travel > Rail",
            "Home > Garden": "Leisure > garden",
        }
        assert ids(changes, changes.moved) == {"Home > Garden": "Leisure > garden"}
        assert [changes.new.ids[label] for label in changes.added] == ["Leisure"]
        assert changes.removed == ()
    # Ids survive the next import, and the same table gives the same folder.
    before = {file.name: file.read_bytes() for file in (tmp_path / "b" / "out").iterdir()}
    again = brought_in(tables[1], tmp_path / "b", **options)
    assert not again.changes
    after = {file.name: file.read_bytes() for file in (tmp_path / "b" / "out").iterdir()}
    assert {name for name in before if before[name] != after[name]} <= {"corpus.json"}


def test_ids_of_a_tree_that_is_given(tmp_path: Path) -> None:
    """A tree whose ids are paths gets the old ones; a tree with ids has its own."""
    table = labelled(tmp_path / "a.csv", ["Roses", "Train"])
    (tmp_path / "1.txt").write_text("Home\n\tRoses\nTravel\n\tTrain\n", encoding="utf-8")
    (tmp_path / "2.txt").write_text("Home\nTravel\n\tTrain\n\tRoses\n", encoding="utf-8")
    (tmp_path / "3.csv").write_text("id,name,parent\nt,Travel,\nr,Roses,t\nz,Train,t\n", encoding="utf-8")
    options = {"dev": 0, "test": 0}
    brought_in(table, tmp_path, taxonomy=tmp_path / "1.txt", **options)
    moved = brought_in(table, tmp_path, taxonomy=tmp_path / "2.txt", **options)
    assert moved.taxonomy.ids == ("Home", "Travel", "Travel > Train", "Home > Roses")
    assert documents(tmp_path / "out")["text 0"] == {"Travel", "Travel > Roses"}
    assert brought_in(table, tmp_path, taxonomy=tmp_path / "3.csv", **options).taxonomy.ids == ("t", "r", "z")


def test_changes_need_an_earlier_tree(tmp_path: Path) -> None:
    (tmp_path / "map.tsv").write_text("old\tnew\nA\tB\n", encoding="utf-8")
    with pytest.raises(InputError):
        brought_in(labelled(tmp_path / "a.csv", FIRST), tmp_path, changes=tmp_path / "map.tsv", dev=0, test=0)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_used_is_left_out_with_its_place(tmp_path: Path) -> None:
    rows = [["", "A > B"], ["no label", ""], ["hole", "A > > B"], ["good\nin two lines", "A > B"], ["too", "A", "many"]]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *rows])
    result = brought_in(path, tmp_path, dev=0, test=0)
    rows = [2, 3, 4, 7]
    assert [line.split(": ")[0] for line in result.left_out] == [f"{path}:{number}" for number in rows]
    left_out = (tmp_path / "out" / "left-out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["where"] for line in left_out] == [f"{path}:{number}" for number in rows]
    assert list(documents(tmp_path / "out")) == ["good\nin two lines"]


@pytest.mark.parametrize(("bad", "allowed"), [(2, True), (3, False)])
def test_more_than_one_bad_row_in_a_hundred_is_an_error(tmp_path: Path, bad: int, allowed: bool) -> None:
    rows = [[f"text {number}", "" if number < bad else "A > B"] for number in range(200)]
    path = write_csv(tmp_path / "a.csv", [["text", "labels"], *rows])
    options = {"dev": 0, "test": 0, "skip_bad_rows": False}
    if allowed:
        assert brought_in(path, tmp_path, **options).summary.left_out.total() == bad
        return
    with pytest.raises(InputError) as caught:
        brought_in(path, tmp_path, **options)
    assert "--skip-bad-rows" in caught.value.remedy
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(("encoding", "named"), [("cp1252", False), ("utf-16", False), ("cp437", True)])
def test_tables_in_other_encodings(tmp_path: Path, encoding: str, named: bool) -> None:
    rows = [[f"Müller {number}, schön", "Größe > Übermaß" if number % 2 else "Größe > Maß"] for number in range(60)]
    path = write_csv(tmp_path / "a.csv", [["Text", "Thema"], *rows], delimiter=";", encoding=encoding)
    options = {"encoding": encoding} if named else {}
    result = brought_in(path, tmp_path, skip_bad_rows=False, **options)
    assert (result.rows, result.encodings) == (60, {str(path): encoding})
    assert documents(tmp_path / "out") == {text: {"Größe", label} for text, label in rows}


def test_splits_are_drawn_by_label(tmp_path: Path) -> None:
    pytest.importorskip("iterstrat")
    rows = [[f"text {number}", f"Top > {number % 4}"] for number in range(80)]
    result = brought_in(write_csv(tmp_path / "a.csv", [["text", "labels"], *rows]), tmp_path, stratify=True)
    assert result.summary.documents == {"train": 64, "dev": 8, "test": 8}
    data = DataFolder(tmp_path / "out")
    for split, count in (("dev", 2), ("test", 2), ("train", 16)):
        labels = [document.labels[-1] for document in data.documents(split)]
        assert {label: labels.count(label) for label in set(labels)} == dict.fromkeys(range(1, 5), count)


def test_files_may_be_the_splits(tmp_path: Path) -> None:
    files = []
    for name, rows in (("train", ROWS[:30]), ("valid", ROWS[30:40]), ("test", ROWS[38:])):
        content = [["text", "labels"], *([text, " > ".join(path)] for text, path in rows)]
        files.append(write_csv(tmp_path / f"{name}.csv", content))
    result = brought_in(files, tmp_path)
    assert result.summary.documents == {"train": 30, "dev": 10, "test": 10}
    other = brought_in(files[0], tmp_path, test=files[2], dev=0.1)
    assert other.summary.documents == {"train": 27, "dev": 3, "test": 10}
    with pytest.raises(InputError):
        brought_in(files, tmp_path, test=0.1)


def test_ids_are_kept(tmp_path: Path) -> None:
    rows = [[f"K-{number}", text, " > ".join(path)] for number, (text, path) in enumerate(ROWS)]
    path = write_csv(tmp_path / "a.csv", [["Key", "text", "labels"], *rows])
    brought_in(path, tmp_path, layout=Layout(id="Key"), dev=0, test=0)
    with gzip.open(tmp_path / "out" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert {row["id"]: row["text"] for row in map(json.loads, lines)} == {key: text for key, text, _ in rows}


@pytest.mark.parametrize("content", ["", "text,labels\n", "text,labels\n,A\nb,\n", "text,labels\nb,>\n"])
def test_nothing_to_import(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    layout = Layout(text="text", labels=("labels",), path_separator=">") if content else None
    with pytest.raises(InputError):
        brought_in(tmp_path / "a.csv", tmp_path, layout=layout, dev=0, test=0)
    assert not (tmp_path / "out").exists()


def test_the_tables_are_never_replaced(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "train.csv", as_paths())
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        import_tables([path], tmp_path, stratify=False)
    assert caught.value.path == tmp_path
    assert path.read_bytes() == before


def test_a_data_folder_keeps_its_test_split(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "taxonomy.tsv").write_text("Root\tA\tB\nA\tA1\n", encoding="utf-8")
    for split, count in (("train", 40), ("test", 7)):
        rows = [{"text": f"text {split} {n}", "labels": ["A", "A1"] if n % 2 else ["B"]} for n in range(count)]
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with (data / "test.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"text": "TEXT  train 3", "labels": ["B"]}\n')
    result = import_tables([data], tmp_path / "out", stratify=False)
    assert result.shared_texts == 1
    assert set(result.spread) == {"train", "dev"}
    assert result.summary.documents == {"train": 36, "dev": 4, "test": 8}
    assert result.taxonomy == DataFolder(data).taxonomy
    assert check(DataFolder(tmp_path / "out")).bad_rows == 0
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    import_tables([data], tmp_path / "out", stratify=False)  # over the earlier build
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == first


@pytest.mark.slow
def test_benchmark_set(shared_data: Path, tmp_path: Path) -> None:
    """CLINC150 has 150 leaves with 100 documents each in train: each split gets its exact share."""
    clinc = shared_data / "clinc150"
    result = import_tables([clinc / "train.jsonl.gz"], tmp_path / "out", taxonomy=clinc / "taxonomy.tsv", test=0.2)
    assert all(without == 0 and deviation < 0.001 for without, deviation in result.spread.values())


def test_merged_paths_have_the_most_frequent_spelling_of_each_name() -> None:
    paths = {("Law", "Courts"): 5, ("law", "COURTS"): 2, ("law", "Tax"): 1, ("LAW", "courts", "High"): 1, ("Sport",): 1}
    merged = merge_twins(paths)
    assert merged == {
        ("Law", "Courts"): ("Law", "Courts"),
        ("law", "COURTS"): ("Law", "Courts"),
        ("law", "Tax"): ("Law", "Tax"),
        ("LAW", "courts", "High"): ("Law", "Courts", "High"),
        ("Sport",): ("Sport",),
    }
    assert near_twins(dict.fromkeys(merged.values(), 1)) == []
