"""``hgclr data prepare`` and ``hgclr import-published``: options arrive, errors are one line and leave nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hgclr.cli.app import app
from support.published_program import PublishedProgram


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
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


def test_options_of_arxiv_arrive(arxiv: Path, tmp_path: Path) -> None:
    options = ["--since", "2001-06-01", "--until", "2004-06-01", "--per-category", 15, "--primary-only"]
    shares = ["--dev-share", 0.25, "--test-share", 0.5, "--seed", 9]
    result = run("data", "prepare", "arxiv", "--source", arxiv, "--output", tmp_path / "out", *options, *shares)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"wrote {tmp_path / 'out'}: train ")
    assert json.loads((tmp_path / "out" / "corpus.json").read_text())["settings"] == {
        "source": arxiv.name,
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


@pytest.mark.parametrize("corpus", ["wos", "nyt", "rcv1", "arxiv", "neuralclassifier", "fasttext"])
def test_a_missing_source_is_one_line_and_exit_code_2(corpus: str, tmp_path: Path) -> None:
    option = "--train" if corpus in ("neuralclassifier", "fasttext") else "--source"
    result = run("data", "prepare", corpus, option, tmp_path / "absent", "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "line", "separator"),
    [
        ("hiagm", '{"token": ["hello"], "label": ["A", "B"]}', None),
        ("neuralclassifier", '{"doc_token": ["hello"], "doc_label": ["A--B"]}', "--"),
        ("fasttext", "#A/B hello", "/"),
    ],
)
def test_formats_of_the_literature(name: str, line: str, separator: str | None, tmp_path: Path) -> None:
    train, tree = tmp_path / "x_train.json", tmp_path / "x.taxonomy"
    train.write_text(line + "\n")
    options = ["--label-prefix", "#"] if name == "fasttext" else []
    if name == "hiagm":
        tree.write_text("Root\tA\nA\tB\n")
        options += ["--taxonomy", tree]
    result = run("data", "prepare", name, "--train", train, "--output", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {tmp_path / 'out'}: train 1\n"
    labels = json.loads((tmp_path / "out" / "taxonomy.json").read_text())["labels"]
    assert [label["id"] for label in labels] == ["A", "B" if separator is None else f"A{separator}B"]


@pytest.fixture
def imported(make_encoder: Callable[[str], str], tokenizer, tmp_path: Path) -> Callable[..., Result]:
    """Write a checkpoint with the given arguments of the published program and import it."""

    def invoke(**arguments: object) -> Result:
        program = PublishedProgram(tokenizer)
        program.arguments |= arguments
        checkpoint, data = program.write(tmp_path)
        options = ["--data-path", data, "--encoder", make_encoder("bert"), "--output", tmp_path / "out"]
        return run("import-published", checkpoint, *options)

    return invoke


def test_a_checkpoint_that_cannot_be_imported_leaves_nothing(imported: Callable[..., Result], tmp_path: Path) -> None:
    result = imported(multi=False)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
