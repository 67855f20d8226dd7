"""``hgclr reproduce``: help that teaches, whole tables of tiny models, errors in one line."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.paper.systems import TABLES

SMALL = ["--seeds", "1", "--budget", "documents=24,length=16,epochs=1", "--set", "model.label_heads=4"]


def run(*words: object):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)], env={"COLUMNS": "250"})


def test_help_shows_an_example_and_the_rows() -> None:
    shown = run("--help").output
    assert "hgclr reproduce table2 --data my-data" in shown
    for name in ("table1", "table2", "table3", "table4", "table5", "systems", "curves"):
        assert name in shown
    assert "bert-chen" not in run("table2", "--help").output  # it is only printed
    shown = " ".join(run("curves", "--help").output.replace("│", " ").split())
    assert "Seeds of sizes up to 5,000; larger ones are run with the first alone." in shown
    shown = run("table4", "--help").output
    assert "Rows: hgclr, no-name, no-spatial, no-edge. Only with --rows: layers-2." in shown


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
    assert f"{data}: prepared with --text full; published figures are of literature" in result.stderr.replace("\n", "")
    text = (tmp_path / "out" / "table1.md").read_text()
    sizes = " | ".join(str(len(rows[split])) for split in ("train", "dev", "test"))
    assert "| WOS, paper | 141 | 2 | 2.00 | 30,070 | 7,518 | 9,397 |" in text
    assert f"| WOS, ours | 9 | 3 | {average:.2f} | {sizes} |" in text
    assert "- NYT: prepared with --text full; published figures are of literature." in text
    assert "RCV1" not in text
    content = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert content["corpora"]["nyt"]["paper"]["labels_per_document"] == 7.6
    with (tmp_path / "out" / "table1.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["corpus"], row["whose"], row["labels"]) for row in csv.DictReader(file)] == [
            ("wos", "paper", "141"),
            ("wos", "ours", "9"),
            ("nyt", "paper", "166"),
            ("nyt", "ours", "9"),
        ]


def test_table1_needs_a_folder(tmp_path: Path) -> None:
    result = run("table1", "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "no data folder is given; give --wos, --nyt or --rcv1" in result.output
    assert not (tmp_path / "out").exists()


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
    for suffix in ("md", "csv", "json"):
        (out / f"systems.{suffix}").unlink()
    common = ["--data", toy_data, "--encoder", make_encoder("bert"), "--output", out, *SMALL, "--seeds", "1,2"]
    result = run("systems", *common, "--rows", "tfidf,hiclass,flat,hgclr")
    assert result.exit_code == 0, result.output
    assert "(budget: 24 documents, 16 tokens, 1 epoch)" in result.output
    assert "TF-IDF + hiclass, per parent node could not be run: hiclass gives a text one path" in result.output
    assert "row 4 of 4, seed 2: hgclr" in result.output
    for suffix in ("md", "csv", "json"):
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
def test_every_row_of_systems_has_both_columns(all_systems: Path) -> None:
    content = json.loads((all_systems / "one-seed.json").read_text())
    rows = {row["key"]: row for row in content["rows"] if row["key"] != "hiclass"}
    assert list(rows) == [row.system for row in TABLES["systems"].rows if not row.extra and row.system != "hiclass"]
    for key, row in rows.items():
        assert row["ours"] is not None, (key, row["refused"])
        assert row["tuned"] is not None, key
        with_tree = key in ("names", "head", "default", "hgclr")
        assert (row["runs"][0]["label_documents"] > 0) == with_tree, key
    assert [row["runs"][0]["epochs"] for key, row in rows.items() if key.endswith("-long")] == [2, 2, 2]
    assert content["base"] == "flat, first token"


@pytest.mark.slow
def test_curves_are_run_drawn_and_gone_on_with(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["--data", toy_data, "--encoder", make_encoder("bert"), "--output", out, "--seeds", "1,2"]
    words += ["--budget", "length=16,epochs=1,test=12", "--sizes", "12,all", "--rows", "tfidf,hiclass,default"]
    words += ["--set", "model.label_heads=4"]
    with monkeypatch.context() as undrawn:  # after every run, which takes longer than the run
        undrawn.setattr("hgclr.paper.curves.draw_curves", lambda *_: b"")
        result = run("curves", *words)
    assert result.exit_code == 0, result.output
    assert "missing: TF-IDF + hiclass, per parent node, 12 documents, seed 1: hiclass gives a text one" in result.output
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


@pytest.mark.slow
def test_no_row_with_a_figure_is_a_failure(toy_data: Path, tmp_path: Path) -> None:
    result = run(
        *("systems", "--data", toy_data, "--encoder", "e", "--output", tmp_path / "out", "--rows", "hiclass"),
        *("--seeds", "1"),
    )
    assert result.exit_code == 1
    assert "could not be run: hiclass gives a text one path" in result.output
    assert "refused" in (tmp_path / "out" / "systems.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "few"], "--sizes: 'few' is no size; give whole numbers or all, as in 300,1000,all"),
        (["--budget", "documents=3"], "--budget has documents, which --sizes decides; leave them out of --budget"),
        (["--rows", "bert-chen"], "systems has no row 'bert-chen'; did you mean 'bert'?"),
    ],
)
def test_mistakes_of_curves_are_said_in_one_line(
    words: list[str], message: str, toy_data: Path, tmp_path: Path
) -> None:
    given = ["--data", toy_data, "--encoder", "e", "--output", tmp_path / "out", *words]
    result = run("curves", *given)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1,x"], "--seeds '1,x' is no list of whole numbers; write for example --seeds 1,2"),
        (["--seeds", "1,1"], "the seeds are 1, 1; give each seed once"),
        (["--rows", "flt"], "systems has no row 'flt'; did you mean 'flat'?"),
        (["--budget", "docs=3"], "--budget has no 'docs'"),
        (["--preset", "paper"], "the rows of systems have presets of their own; use --rows hgclr-paper"),
        (["--set", "model.encoder=x"], "model.encoder is decided by --encoder; use that option"),
        (["--data", "nowhere"], "nowhere: no such data folder"),
    ],
)
def test_mistakes_are_said_in_one_line(words: list[str], message: str, toy_data: Path, tmp_path: Path) -> None:
    given = {"--data": str(toy_data), "--encoder": "e", "--output": str(tmp_path / "out")}
    given |= dict(zip(words[::2], words[1::2], strict=True))
    result = run("systems", *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()
