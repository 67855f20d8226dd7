"""``hgclr reproduce``: whole tables of tiny models, figures, errors in one line."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.presentation import Plot
from hgclr.taxonomy import Taxonomy

SMALL = ["--seeds", "1", "--budget", "documents=24,length=16,epochs=1", "--set", "model.label_heads=4"]


def run(*words: object):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)], env={"COLUMNS": "250"})


def test_corpora_are_counted_beside_the_papers_figures(toy_data: Path, tmp_path: Path) -> None:
    rows = {
        split: [
            json.loads(line) for line in gzip.decompress((toy_data / f"{split}.jsonl.gz").read_bytes()).splitlines()
        ]
        for split in ("train", "dev", "test")
    }
    documents = [row for split in rows.values() for row in split]
    average = sum(len(row["labels"]) for row in documents) / len(documents)
    data = shutil.copytree(toy_data, tmp_path / "nyt")
    (data / "corpus.json").write_text(json.dumps({"corpus": "nyt", "settings": {"text": "full"}}))
    result = run("table1", "--wos", toy_data, "--nyt", data, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    note = f"{data}: prepared with --text full; published scores are based on literature"
    assert note in result.stderr.replace("\n", "")
    text = (tmp_path / "out" / "table1.md").read_text()
    sizes = " | ".join(str(len(rows[split])) for split in ("train", "dev", "test"))
    assert "| WOS, paper | 141 | 2 | 2.00 | 30,070 | 7,518 | 9,397 |" in text
    assert f"| WOS, ours | 9 | 3 | {average:.2f} | {sizes} |" in text
    assert "- NYT: prepared with --text full; published scores are based on literature." in text
    assert "RCV1" not in text
    content = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert content["corpora"]["nyt"]["paper"]["labels_per_document"] == 7.6


@pytest.fixture(scope="module")
def all_systems(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``hgclr reproduce systems`` writes with one seed, and its table as it was then."""
    folder = tmp_path_factory.mktemp("systems")
    result = run("systems", "--data", toy_data, "--encoder", make_encoder("bert"), "--output", folder / "out", *SMALL)
    assert result.exit_code == 0, result.output
    shutil.copy(folder / "out" / "systems.json", folder / "one-seed.json")
    return folder


@pytest.mark.slow
def test_a_table_is_made_shown_and_written(make_encoder, toy_data: Path, all_systems: Path) -> None:
    """With a second seed, after the first."""
    out = all_systems / "out"
    for suffix in ("md", "json"):
        (out / f"systems.{suffix}").unlink()
    common = ["--data", toy_data, "--encoder", make_encoder("bert"), "--output", out, *SMALL, "--seeds", "1,2"]
    result = run("systems", *common, "--rows", "tfidf,hiclass,flat,hgclr")
    assert result.exit_code == 0, result.output
    assert "(budget: 24 documents, 16 tokens, 1 epoch)" in result.output
    assert "TF-IDF + hiclass, per parent node could not be run: " in result.output
    assert "row 4 of 4, seed 2: hgclr" in result.output
    for suffix in ("md", "json"):
        assert (out / f"systems.{suffix}").is_file()
        assert f"systems.{suffix}" in result.output
    rows = {row["key"]: row for row in json.loads((out / "systems.json").read_text())["rows"]}
    assert [len(rows[key]["runs"]) for key in ("tfidf", "hiclass", "flat", "hgclr")] == [2, 0, 2, 2]
    assert all(row["settings"]["training"]["precision"] == "fp32" for key, row in rows.items() if key != "hiclass")
    assert list(rows["hiclass"]["refused"]) == ["1", "2"]

    again = run("systems", *common, "--rows", "hgclr")
    assert again.exit_code == 0
    assert "epoch" not in again.stderr
    other = run("systems", *common, "--budget", "documents=24,length=16,epochs=2", "--rows", "flat")
    assert other.exit_code == 2
    assert "holds a run with other settings: training.epochs is 1 there and 2 here" in other.output


@pytest.mark.slow
def test_curves_are_run_drawn_and_gone_on_with(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["--data", toy_data, "--encoder", make_encoder("bert"), "--output", out, "--seeds", "1,2"]
    words += ["--budget", "length=16,epochs=1,test=12", "--sizes", "12,all", "--rows", "tfidf,hiclass,default"]
    words += ["--set", "model.label_heads=4"]
    with monkeypatch.context() as undrawn:  # after every run, which takes longer than the run
        undrawn.setattr("hgclr.paper.curves.draw_curves", lambda *_: Plot("curves", b"", b"", ""))
        result = run("curves", *words)
    assert result.exit_code == 0, result.output
    assert "missing: TF-IDF + hiclass, per parent node, 12 documents, seed 1: " in result.output
    content = json.loads((out / "curves.json").read_text())
    seeds = {key: [point["seeds"] for point in points] for key, points in content["points"].items()}
    assert seeds == {"hiclass": [], **{key: [[1, 2], [1]] for key in ("tfidf", "default")}}
    assert content["points"]["default"][0]["documents"] == 12
    assert content["panels"]["macro"] == "all labels"
    assert "level 2" in content["panels"]
    for point in content["points"]["default"]:
        assert all(0 <= spread["mean"] <= 100 for each in point["scores"].values() for spread in each.values())
    assert str(tmp_path) not in (out / "curves.json").read_text() + (out / "curves.md").read_text()

    again = run("curves", *words)
    assert again.exit_code == 0
    assert "epoch" not in again.stderr
    assert (out / "curves.svg").read_text().count('id="axes_') == len(content["panels"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("table1", []),
        ("systems", ["--seeds", "1,x"]),
        ("systems", ["--seeds", "1,1"]),
        ("systems", ["--rows", "flt"]),
        ("systems", ["--budget", "docs=3"]),
        ("systems", ["--preset", "paper"]),
        ("systems", ["--set", "model.encoder=x"]),
        ("systems", ["--data", "nowhere"]),
        ("curves", ["--sizes", "few"]),
        ("curves", ["--budget", "documents=3"]),
        ("curves", ["--rows", "bert-chen"]),
        ("figure5", ["--flat", "nowhere", "--hgclr", "nowhere"]),
        ("figure3", ["--model", "nowhere", "--data", "nowhere"]),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command: str, words: list[str], toy_data: Path, tmp_path: Path) -> None:
    given = {"--output": str(tmp_path / "out")} | dict(zip(words[::2], words[1::2], strict=True))
    if command in ("systems", "curves"):
        given = {"--data": str(toy_data), "--encoder": "e"} | given
    result = run(command, *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


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
        (row,) = (line for line in result.stdout.splitlines() if f"{name} " in line and " of 8" in line)
        numbers = content["maps"][name]
        assert f"{numbers['silhouette_by_parent']['value']:.3f}" in row
        assert f"{numbers['mean_rank_of_parent']['value']:.1f} of 8" in row
    assert f"written: {out / 'figure5.png'}" in result.stdout
    assert str(models) not in (out / "figure5.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_figure3_of_a_data_folder(models: Path, toy_data: Path, tmp_path: Path) -> None:
    arguments = ["figure3", "--model", models / "hgclr/model", "--data", toy_data, "--documents", 3]
    contents = []
    for more in ([], ["--keep", 0.5]):
        result = run(*arguments, "--output", tmp_path, *more)
        assert result.exit_code == 0, result.output
        assert sorted(file.name for file in tmp_path.iterdir()) == ["figure3.html", "figure3.json"]
        contents.append(json.loads((tmp_path / "figure3.json").read_text(encoding="utf-8")))
    whole, half = contents
    assert whole["model"] == "hgclr/model"
    assert [one["text"] for one in whole["documents"]] == [one["text"] for one in half["documents"]]
    assert len(whole["documents"]) == 3
    for short, chosen in zip(whole["documents"], half["documents"], strict=True):
        assert short["tokens_kept"] == short["tokens"]  # the toy texts are short
        assert chosen["tokens_kept"] == -(-chosen["tokens"] // 2)
        assert short["labels"] == chosen["labels"]
