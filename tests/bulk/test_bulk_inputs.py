"""Which files bulk prediction reads and where their results go."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.bulk.inputs import find_inputs, pair_with_targets, target_of
from hgclr.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.jsonl", "c.parquet", "d.tsv.gz", "notes.txt", ".hidden.jsonl", "below/e.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(paths: list[Path], folder: Path) -> list[str]:
    return [str(path.relative_to(folder.resolve())) for path in paths]


def test_a_folder_stands_for_the_files_in_it(folder: Path) -> None:
    assert names(find_inputs([folder]), folder) == ["a.jsonl", "b.csv", "c.parquet", "d.tsv.gz"]


def test_patterns_are_in_order_and_files_come_once(folder: Path) -> None:
    for number in (10, 2, 1):
        (folder / f"part-{number:02}.jsonl").touch()
    found = find_inputs([folder / "part-*.jsonl", folder / "b.csv", folder / "part-01.jsonl"])
    assert names(found, folder) == ["part-01.jsonl", "part-02.jsonl", "part-10.jsonl", "b.csv"]
    assert names(find_inputs([f"{folder}/**/*.jsonl"]), folder) == [
        "a.jsonl", "below/e.jsonl", "part-01.jsonl", "part-02.jsonl", "part-10.jsonl",
    ]  # fmt: skip


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder: Path) -> None:
    (folder / "[ab].csv").touch()
    assert names(find_inputs([folder / "[ab].csv"]), folder) == ["[ab].csv"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.csv", r"missing\.csv: no such file or folder"),
        ("x*.csv", r"no file has a name like '.*x\*\.csv'"),
        ("none", r"none: no files to label; their names must end in \.jsonl"),
    ],
)
def test_nothing_to_label_is_said(name: str, message: str, folder: Path) -> None:
    (folder / "none").mkdir()
    with pytest.raises(InputError, match=message):
        find_inputs([folder / name])


@pytest.mark.parametrize(
    ("name", "wanted", "result"),
    [
        ("a.jsonl", None, "a.jsonl"),
        ("a.TSV.gz", None, "a.TSV.gz"),
        ("a.b.csv", "jsonl", "a.b.jsonl"),
        ("a.csv.gz", "jsonl", "a.jsonl.gz"),
        ("a.csv.gz", "csv", "a.csv.gz"),
        ("a.tsv", "csv", "a.csv"),
        ("a.jsonl.gz", "parquet", "a.parquet"),
        ("a.parquet", "csv", "a.csv"),
    ],
)
def test_a_result_has_the_name_of_its_input(name: str, wanted, result: str) -> None:
    assert target_of(Path("in") / name, Path("out"), wanted) == Path("out") / result


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InputError, match=r"notes\.txt: unknown format; its name must end in \.jsonl"):
        target_of(Path("notes.txt"), Path("out"), None)


def test_two_results_of_one_name_are_refused(folder: Path) -> None:
    (folder / "below" / "a.jsonl").touch()
    (folder / "a.csv").touch()
    for clash, wanted in ((["a.jsonl", "below/a.jsonl"], None), (["a.jsonl", "a.csv"], "parquet")):
        sources = find_inputs([folder / name for name in clash])
        with pytest.raises(InputError, match=r"would both be written to .*; rename one of them"):
            pair_with_targets([], sources, folder / "out", wanted)


def test_input_and_results_do_not_mix(folder: Path) -> None:
    with pytest.raises(InputError, match=r"labelled: lies in the input folder .*give an --output outside"):
        pair_with_targets([folder], find_inputs([folder]), folder / "labelled", None)
    with pytest.raises(InputError, match=r"a\.jsonl: an input lies in the output folder"):
        pair_with_targets([folder / "a.jsonl"], find_inputs([folder / "a.jsonl"]), folder, None)
    pattern = f"{folder}/**/*.jsonl"
    with pytest.raises(InputError, match=r"e\.jsonl: an input lies in the output folder"):
        pair_with_targets([pattern], find_inputs([pattern]), folder / "below", None)
    with pytest.raises(InputError, match=r"b\.csv: not a folder"):
        pair_with_targets([folder / "a.jsonl"], find_inputs([folder / "a.jsonl"]), folder / "b.csv", None)
