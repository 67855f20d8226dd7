from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", "prepare", "arxiv", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "arxiv-metadata-oai-snapshot.json"
    with path.open("w") as file:
        for number in range(60):
            fields = {
                "id": f"{number:02d}",
                "title": f"Title {number}",
                "categories": "cs.CL cs.LG" if number % 2 else "hep-th",
                "abstract": f"  Abstract {number}.\n" if number else "",
                "versions": [{"version": "v1", "created": f"Fri, 1 Jun {2000 + number // 10} 12:00:00 GMT"}],
            }
            file.write(json.dumps(fields) + "\n")
    return path


def rows(folder: Path, split: str) -> list[dict[str, object]]:
    with gzip.open(folder / f"{split}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_prepare_by_date(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = run("--source", source, "--output", folder, "--dev-from", "2003-01-01", "--test-from", "2005-01-01")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {folder}: train 29, dev 20, test 10\n"
    assert result.stderr == f"left out 1 document: no abstract; see {folder / 'left-out.jsonl'}\n"
    assert rows(folder, "test")[-1] == {
        "id": "59",
        "text": "Title 59. Abstract 59.",
        "labels": ["cs", "cs.CL", "cs.LG"],
    }


def test_options_arrive(source: Path, tmp_path: Path) -> None:
    options = ["--since", "2001-06-01", "--until", "2004-06-01", "--per-category", "15", "--primary-only"]
    shares = ["--dev-share", "0.25", "--test-share", "0.5", "--seed", "9"]
    result = run("--source", source, "--output", tmp_path / "out", *options, *shares)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"] == {
        "source": source.name,
        "since": "2001-06-01",
        "until": "2004-06-01",
        "dev_from": None,
        "test_from": None,
        "per_category": 15,
        "primary_only": True,
        "dev_share": 0.25,
        "test_share": 0.5,
        "seed": 9,
    }
    found = [row for split in ("train", "dev", "test") for row in rows(tmp_path / "out", split)]
    assert (
        sorted(map(str, (row["labels"] for row in found)))
        == ["['cs', 'cs.CL']"] * 15 + ["['grp_physics', 'hep-th']"] * 15
    )
    assert {int(str(row["id"])) // 10 for row in found} == {1, 2, 3, 4}


def test_bad_input_is_one_line_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with source.open("a") as file:
        file.write('{"id": "60", "tit')
    result = run("--source", source, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {source}:61: truncated: the file ends in the middle of a record; get")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source]


def test_bad_options(source: Path, tmp_path: Path) -> None:
    result = run("--source", source, "--output", tmp_path / "out", "--dev-from", "2003-01-01")
    assert result.exit_code == 2
    assert result.stderr == "error: a day on which dev begins, but none for test; give --test-from, too\n"
    for options in (["--since", "June 2003"], ["--per-category", "0"]):
        assert run("--source", source, "--output", tmp_path / "out", *options).exit_code == 2
    assert list(tmp_path.iterdir()) == [source]


def test_an_interruption_leaves_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hgclr.paper.corpora import arxiv

    def interrupted(*arguments: object):
        for count, item in enumerate(records(*arguments)):
            if count == 30:
                raise KeyboardInterrupt
            yield item

    records = arxiv.records
    monkeypatch.setattr(arxiv, "records", interrupted)
    result = run("--source", source, "--output", tmp_path / "out")
    assert result.exit_code not in (0, 2)
    assert list(tmp_path.iterdir()) == [source]


def test_unknown_categories_are_a_warning(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text().replace("cs.LG", "cs.QQ"))
    result = run("--source", source, "--output", tmp_path / "out")
    assert result.exit_code == 0
    assert "'cs.QQ' (30)" in " ".join(result.stderr.split())
