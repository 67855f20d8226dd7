"""``figure3`` and ``figure5`` at the command line: what they write, what they say, what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from hgclr.cli import reproduce
from hgclr.cli.app import Commands
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.taxonomy import Taxonomy

app = typer.Typer(cls=Commands)
app.command("figure3")(reproduce.figure3)
app.command("figure5")(reproduce.figure5)


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def models(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    tokenizer = load_tokenizer(make_encoder("bert"))
    level = Taxonomy(["a", "b", "c"], [-1, -1, -1])
    for name, kind, tree in (
        ("flat", FlatForSequenceClassification, taxonomy),
        ("hgclr", HGCLRForSequenceClassification, taxonomy),
        ("level", FlatForSequenceClassification, level),
    ):
        torch.manual_seed(1)
        model = kind.from_encoder(make_encoder("bert"), tree, tokenizer)
        save(model.deployed(), tokenizer, folder / name / "model")
        save(model, tokenizer, folder / name / "training-model")
    return folder


@pytest.mark.slow
def test_figure5_writes_three_files_and_prints_the_numbers(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    result = run("figure5", "--flat", models / "flat/model", "--hgclr", models / "hgclr/model", "--output", out)
    assert result.exit_code == 0, result.output
    assert sorted(file.name for file in out.iterdir()) == ["figure5.json", "figure5.png", "figure5.svg"]
    content = json.loads((out / "figure5.json").read_text(encoding="utf-8"))
    assert content["models"] == {"flat": "flat/model", "HGCLR": "hgclr/model"}
    assert content["machine"]["packages"]["hgclr"]
    for name in ("flat", "HGCLR"):
        (row,) = (line for line in result.stdout.splitlines() if line.startswith(f"│ {name} "))
        numbers = content["maps"][name]
        assert f"{numbers['silhouette_by_parent']['value']:.3f}" in row
        assert f"{numbers['mean_rank_of_father']['value']:.1f} of 8" in row
    assert f"written: {out / 'figure5.png'}" in result.stdout
    assert str(models) not in (out / "figure5.json").read_text(encoding="utf-8")


def test_figure5_refuses_in_one_line_and_writes_nothing(models: Path, tmp_path: Path) -> None:
    flat, hgclr, level = (models / name / "model" for name in ("flat", "hgclr", "level"))
    (tmp_path / "file").write_text("")
    out = tmp_path / "out"
    for first, second, output, message in (
        (flat, level, out, "its label tree is not that of"),
        (level, level, out, "the label tree has one level, so that none of its 3 labels has a father"),
        (flat, models / "nowhere", out, "nowhere: no model here; give the folder 'model' that hgclr train wrote"),
        (flat, hgclr, tmp_path / "file", "file: the output is a file; give a folder"),
    ):
        result = run("figure5", "--flat", first, "--hgclr", second, "--output", output)
        assert result.exit_code == 2
        (line,) = result.stderr.strip().splitlines()
        assert message in line
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_figure3_of_a_data_folder(models: Path, toy_data: Path, tmp_path: Path) -> None:
    arguments = ["figure3", "--model", models / "hgclr/training-model", "--data", toy_data, "--documents", 3]
    result = run(*arguments, "--output", tmp_path, "--draws", 2, "--samples", 10)
    assert result.exit_code == 0, result.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["figure3.html", "figure3.json", "figure3.png"]
    content = json.loads((tmp_path / "figure3.json").read_text(encoding="utf-8"))
    assert (len(content["documents"]), content["draws"], content["draws_shown"]) == (3, 10, 2)
    assert content["model"] == "hgclr/training-model"
    assert "the model keeps the most probable 50% of a text's tokens, at least 16" in result.stdout
    assert result.stdout.count("every draw keeps the whole text") == 3  # the toy texts are short
    assert "--keep-fraction 0.5" in result.stdout
    result = run(*arguments, "--output", tmp_path, "--keep-fraction", 0.5, "--samples", 10)
    assert result.exit_code == 0, result.output
    assert "whole text" not in result.stdout
    shorter = json.loads((tmp_path / "figure3.json").read_text(encoding="utf-8"))
    assert [one["text"] for one in shorter["documents"]] == [one["text"] for one in content["documents"]]
    assert all(0.4 < one["kept_share"] < 0.7 for one in shorter["documents"])


@pytest.mark.slow
def test_figure3_of_texts_under_given_labels(models: Path, taxonomy, toy_data: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("a prism\n\nthe lens of a laser\n", encoding="utf-8")
    expected = {
        taxonomy.ids[index] for index in taxonomy.closure([taxonomy.resolve("optics"), taxonomy.resolve("law")])
    }
    for texts, count in (
        (["--text", "a prism", "--text", "the <lens>"], 2),
        (["--input", source], 2),
        (["--data", toy_data, "--documents", 1], 1),
    ):
        out = tmp_path / "out"
        result = run(
            "figure3", "--model", models / "hgclr/training-model", *texts, "--output", out, "--samples", 2,
            "--labels", "optics; society > law",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        documents = json.loads((out / "figure3.json").read_text(encoding="utf-8"))["documents"]
        assert len(documents) == count
        for one in documents:
            assert set(one["labels"]) == expected
            assert sorted(one["paths"]) == ["science > physics > optics", "society > law"]


def test_figure3_refuses_in_one_line_and_writes_nothing(models: Path, toy_data: Path, tmp_path: Path) -> None:
    training = models / "hgclr/training-model"
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    out = tmp_path / "out"
    text = ["--text", "a prism", "--labels", "optics"]
    for arguments, message in (
        ([models / "hgclr/model", *text], "has no label side; give the folder training-model"),
        ([models / "flat/training-model", *text], "has no label side; give the folder training-model"),
        ([training], "no texts are given; give one of --data, --text and --input"),
        ([training, *text, "--data", toy_data], "--data and --text are given; give one of"),
        ([training, "--text", "a prism"], "the texts of --text have no labels; add --labels"),
        (
            [training, "--text", "a prism", "--labels", "optic"],
            "--labels: unknown label 'optic'; did you mean 'optics'",
        ),
        ([training, "--text", "a prism", "--labels", " ; "], "--labels: no labels"),
        ([training, "--text", "\u200b", "--labels", "optics"], "has no tokens; give a text of some words"),
        (
            [training, "--input", tmp_path / "empty.txt", "--labels", "law"],
            "empty.txt: no text in it; write one text per line",
        ),
        ([training, "--input", tmp_path / "latin.txt", "--labels", "law"], "latin.txt:1: not UTF-8; save the file"),
        ([training, "--input", tmp_path / "none.txt", "--labels", "law"], "none.txt: no such file"),
        ([training, "--data", toy_data, "--split", "deu"], "no split 'deu'; it has: train, dev, test"),
        ([training, *text, "--keep-fraction", 2], "the share of tokens to keep is 2.0; give a share above 0, up to 1"),
    ):
        result = run("figure3", "--model", *arguments, "--output", out)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.strip().splitlines()
        assert message in line
        assert not out.exists()


def test_help_teaches_by_example() -> None:
    for command in ("figure3", "figure5"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"hgclr reproduce {command} --" in " ".join(result.stdout.split())
