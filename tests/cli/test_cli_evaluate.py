"""``hgclr evaluate``, ``compare``, ``audit`` and ``calibrate``: files, fields, refusals."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.data import DataFolder
from hgclr.decisions.settings import FILE, Decisions
from hgclr.decisions.thresholds import ThresholdTuner
from hgclr.decisions.tuning import Outputs
from hgclr.evaluation.folds import deal
from hgclr.evaluation.report import json_file, report_content
from hgclr.evaluation.report_data import Collector
from hgclr.files import write_files
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge"]
PLANTED = (2, 9, 16)


def run(*arguments: object, columns: int = 200):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [str(argument) for argument in arguments])


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def plain(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture
def model(plain: Path, tmp_path: Path) -> Path:
    """A copy, which may be changed."""
    return shutil.copytree(plain, tmp_path / "model")


def test_evaluate_repeats_the_scores_of_the_run(trained_run, toy_data: Path, tmp_path: Path) -> None:
    """With and without the tuned decisions; without them, the threshold is 0.5."""
    folder, report = trained_run("flat"), tmp_path / "scores.json"
    metrics, model = read(folder / "metrics.json"), shutil.copytree(folder / "model", tmp_path / "copy")
    for name, rule in (("test", metrics["tuned"]["rule"]), ("test_at_0.5", "threshold")):
        result = run("evaluate", model, toy_data, "--json", report)
        assert result.exit_code == 0, result.output
        expected = {key: value for key, value in metrics[name].items() if key != "by_frequency"}
        assert read(report)["scores"] == expected
        assert (read(report)["split"], read(report)["decisions"]["rule"]) == ("test", rule)
        assert f"{100 * metrics[name]['micro']['f1']:.2f}" in result.stdout
        (model / FILE).unlink(missing_ok=True)


@pytest.mark.slow
def test_a_report_is_written_and_the_table_stays(plain: Path, toy_data: Path, tmp_path: Path) -> None:
    arguments, report = ("evaluate", plain, toy_data, "--rule", "closure", "--json"), tmp_path / "report"
    without = run(*arguments, tmp_path / "plain.json")
    result = run(*arguments, tmp_path / "with.json", "--output", report)
    assert without.exit_code == result.exit_code == 0, result.output
    assert result.stdout.startswith(without.stdout)
    assert read(tmp_path / "with.json") == read(tmp_path / "plain.json")
    content = read(report / "report.json")
    assert content["scores"] == read(tmp_path / "plain.json")["scores"]
    assert (content["model"], content["split"], content["documents"]) == (str(plain), "test", 24)
    assert content["decisions"]["rule"] == "closure"
    assert sum(group["labels"] for group in content["frequency"]) == 9
    assert (report / "report.html").is_file()


def test_only_a_report_needs_matplotlib(
    plain: Path, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find_spec(name, *rest)
    )
    assert run("evaluate", plain, toy_data, "--split", "dev").exit_code == 0
    result = run("evaluate", plain, toy_data, "--output", tmp_path / "report")
    assert result.exit_code == 2
    assert "[report]" in result.stderr
    assert not (tmp_path / "report").exists()


def test_a_limit_scores_the_same_sample_each_time(plain: Path, toy_data: Path, tmp_path: Path) -> None:
    scores = []
    for number in range(2):
        result = run("evaluate", plain, toy_data, "--limit", 5, "--json", tmp_path / f"{number}.json")
        assert result.exit_code == 0, result.output
        scores.append(read(tmp_path / f"{number}.json")["scores"])
    assert scores[0] == scores[1]
    assert scores[0]["documents"] == 5


# compare


def write(folder: Path, taxonomy: Taxonomy, flipped: float, documents: int = 200) -> Path:
    """Write the report of a model that takes some decisions the wrong way round."""
    random = np.random.default_rng(3)
    gold = taxonomy.close(random.random((documents, len(taxonomy))) < 0.2)
    wrong = random.random(gold.shape) < flipped
    collected = Collector(Decisions(taxonomy), resamples=100)
    collected.update([f"text {row}" for row in range(documents)], (gold ^ wrong).astype(np.float32), gold)
    content = report_content(collected, model=folder.name, data="data", split="test", command="", training_counts=None)
    write_files(folder, {"report.json": json_file(content)})
    return folder


@pytest.fixture(scope="module")
def reports(taxonomy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return write(folder / "worse", taxonomy, 0.2), write(folder / "better", taxonomy, 0.02)


def test_reports_are_compared(reports: tuple[Path, Path], tmp_path: Path) -> None:
    result = run("compare", *reports, "--output", tmp_path / "out", "--json", tmp_path / "result.json")
    assert result.exit_code == 0, result.output
    worse, better = (100 * read(place / "report.json")["scores"]["micro"]["f1"] for place in reports)
    cells = [f"{worse:.2f}", f"{better:.2f}", f"+{better - worse:.2f}", f"{2 / 101:.3f}"]
    assert next(line.split()[1:] for line in result.stdout.splitlines() if line.startswith("Micro-F1")) == cells
    assert read(tmp_path / "out" / "comparison.json") == read(tmp_path / "result.json")
    assert (tmp_path / "out" / "comparison.html").is_file()


def test_what_cannot_be_compared_is_refused(reports: tuple[Path, Path], taxonomy, tmp_path: Path) -> None:
    fewer = write(tmp_path / "fewer", taxonomy, 0.1, documents=50)
    pruned = write(tmp_path / "pruned", Taxonomy(["science"], [-1]), 0.1)
    for arguments in (reports[:1], (reports[0], fewer), (reports[0], pruned), (reports[0], tmp_path)):
        result = run("compare", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert result.stdout == ""


# audit


@pytest.fixture(scope="module")
def flipped(toy_data: Path, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy data, of whose 24 dev documents three have the labels of another topic."""
    folder = shutil.copytree(toy_data, tmp_path_factory.mktemp("flipped") / "data")
    with gzip.open(folder / "dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    random = np.random.default_rng(0)
    for row in PLANTED:
        free = [label for label in taxonomy.leaves.tolist() if taxonomy.ids[label] not in rows[row - 1]["labels"]]
        rows[row - 1]["labels"] = [taxonomy.ids[label] for label in taxonomy.path(int(random.choice(free)))]
    (folder / "dev.jsonl.gz").unlink()
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_planted_errors_are_found(trained_run, toy_data: Path, flipped: Path, tmp_path: Path) -> None:
    """The planted errors are among the first findings, together with the model's own errors on clean data."""
    model, out = trained_run("flat") / "model", tmp_path / "out"
    clean = run("audit", model, toy_data, "--split", "dev", "--json", tmp_path / "clean.json")
    assert clean.exit_code == 0, clean.output
    own = read(tmp_path / "clean.json")["contradicted"]
    assert own < 8  # of 24; else the next says nothing
    result = run("audit", model, flipped, "--split", "dev", "--top", 3 + own, "--output", out, columns=80)
    assert result.exit_code == 0, result.output
    found = read(out / "audit.json")
    assert set(PLANTED) <= {finding["row"] for finding in found["findings"]}
    assert 3 <= found["contradicted"] <= 3 + own
    with (out / "audit.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [int(row["row"]) for row in csv.DictReader(file)] == [one["row"] for one in found["findings"]]
    assert (out / "audit.html").is_file()
    table = result.stdout.splitlines()[:-1]  # the last names a file
    assert max(map(len, table)) <= 80
    assert re.search(r" − s.* \+ s", " ".join(table))  # science or society


@pytest.mark.slow
def test_folds_audit_train(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    output, config = tmp_path / "out", tmp_path / "toy.yaml"
    model = f"model:\n  encoder: {make_encoder('bert')}\n"
    config.write_text(f"data:\n  path: {toy_data}\n{model}training:\n  epochs: 1\n")
    arguments = ("audit", config, "--folds", 2, "--effort", "full", "--output", output)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert read(output / "audit.json")["documents"] == 96
    assert {path.name for path in output.iterdir()} == {"audit.csv", "audit.html", "audit.json", "folds"}
    times = {path: path.stat().st_mtime_ns for path in output.glob("folds/*/metrics.json")}
    assert len(times) == 2
    again = run(*arguments)
    assert again.stdout == result.stdout
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_texts_with_different_labels_are_counted(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    (data / "contradictions.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    (tmp_path / "config.yaml").write_text(f"data:\n  path: {data}\nmodel:\n  encoder: {make_encoder('bert')}\n")
    result = run("audit", tmp_path / "config.yaml")
    assert result.exit_code == 0, result.output
    assert "texts to which people gave different labels: 2, in" in result.stdout


def test_train_is_audited_by_heads(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    """By default, with the settings beside the model, and nothing is written but what is asked for."""
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "config.yaml").write_text(
        f"data:\n  path: elsewhere\nmodel:\n  encoder: {make_encoder('bert')}\n  preset: hgclr\n"
    )
    result = run("audit", run_folder / "model", toy_data, "--json", tmp_path / "audit.json", columns=80)
    assert result.exit_code == 0, result.output
    found = read(tmp_path / "audit.json")
    assert (found["split"], found["documents"]) == ("train", 96)
    assert len(found["findings"]) == min(20, found["contradicted"])
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith("judged by")) <= 80
    everything = run("audit", run_folder / "model", toy_data, "--all", "--json", "-")
    assert len(json.loads(everything.stdout)["findings"]) == found["contradicted"]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "audit.json"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["model", "data", "more"],
        ["model", "data"],
        ["data"],
        ["data", "--split", "dev"],
        ["model", "data", "--split", "dev", "--set", "training.seed=1"],
        ["model", "data", "--split", "dev", "--folds", "2"],
        ["model", "data", "--split", "dev", "--effort", "full"],
        ["x.yaml", "--folds", "2"],
        ["x.yaml", "--set", "training.effort=full"],
        ["nowhere", "data", "--split", "test"],
        ["model", "data", "--output", "file"],
    ],
)
def test_audit_refuses_options(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = run("audit", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


def test_bad_rows_are_refused_or_left_out(plain: Path, toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    with gzip.open(data / "dev.jsonl.gz", "at", encoding="utf-8") as file:
        file.write('{"text": "atom", "labels": ["nonsense"]}\n')
    result = run("audit", plain, data, "--split", "dev")
    assert result.exit_code == 2
    assert "dev.jsonl.gz:25: " in result.stderr
    result = run("audit", plain, data, "--split", "dev", "--skip-bad-rows", "--json", tmp_path / "audit.json")
    assert result.exit_code == 0, result.output
    assert read(tmp_path / "audit.json")["documents"] == 24


# watch


def test_new_texts_are_compared_with_dev(plain: Path, toy_data: Path, tmp_path: Path) -> None:
    texts = [document.text for document in DataFolder(toy_data).documents("train")]
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text in texts[:40]), encoding="utf-8")
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["body"], *([text] for text in texts[:40])])
    found = []
    for name, more in (("lines.txt", []), ("table.csv", ["--text-column", "body"])):
        out = tmp_path / f"{name}-out"
        arguments = ("--input", tmp_path / name, "--output", out, *more)
        result = run("watch", plain, toy_data, *arguments, columns=80)
        assert result.exit_code == 0, result.output
        assert max(map(len, result.stdout.splitlines()[:-2])) <= 80  # the last two name files
        assert (out / "drift.svg").read_bytes().startswith(b"<?xml")
        found.append(read(out / "drift.json"))
    assert found[0]["labels"] == found[1]["labels"]
    assert found[0]["texts"] == {"before": 24, "now": 40}


@pytest.mark.parametrize("arguments", [["--input", "nothing.csv"], ["--input", "x.csv"], ["--split", "fourth"]])
def test_watch_refuses(arguments: list[str], plain: Path, toy_data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("other\nhello\n")
    (tmp_path / "good.txt").write_text("atom\n")
    result = run("watch", plain, toy_data, "--input", "good.txt", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


# calibrate


def test_what_is_found_is_shown_written_and_used(model: Path, toy_data: Path, taxonomy, tmp_path: Path) -> None:
    result = run("calibrate", model, toy_data, "--metric", "micro", "--risk", "0.3")
    assert result.exit_code == 0, result.output
    fields = read(model / FILE)
    assert fields["abstain_below"] is not None
    assert fields["rule"] in result.stdout
    for name in ("micro_f1", "macro_f1", "precision", "recall", "exact"):
        before, after = (100 * fields["provenance"][f"held_out_{name}"][way] for way in ("before", "after"))
        assert f"{before:.2f}" in result.stdout
        assert f"{after:.2f}" in result.stdout

    report = tmp_path / "scores.json"
    result = run("evaluate", model, toy_data, "--json", report)
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(model)
    expected = classifier.evaluate(toy_data, "test").to_json()
    written = read(report)
    assert written["decisions"] == fields
    assert written["scores"] == json.loads(json.dumps(expected))

    result = run("predict", model, *TEXTS)
    assert result.exit_code == 0, result.output
    for line, prediction in zip(result.stdout.splitlines(), classifier.predict(TEXTS), strict=True):
        assert json.loads(line)["prediction"] == prediction.to_json()


def test_decisions_stay_where_nothing_is_better(model: Path, toy_data: Path, taxonomy) -> None:
    """A threshold of 0.5 is not better than the best thresholds for dev itself."""
    classifier = HierarchicalClassifier.load(model)
    dev = classifier.outputs(DataFolder(toy_data, taxonomy=taxonomy).documents("dev"))
    tuner = ThresholdTuner(taxonomy, "threshold", "macro", shrinkage=0)
    best = tuner.tune(["label"], (1 / (1 + np.exp(-dev.logits))).astype(np.float32), dev.gold)["label"]
    Decisions(taxonomy, "threshold", best).write(model)
    before = read(model / FILE)
    result = run("calibrate", model, toy_data, "--metric", "macro", "--thresholds", "none", "--method", "none")
    assert result.exit_code == 0, result.output
    after = read(model / FILE)
    assert after.pop("provenance")["thresholds"] == "as before"
    assert after == {name: value for name, value in before.items() if name != "provenance"}


@pytest.mark.slow
def test_folds_add_what_models_say_of_train_that_have_not_seen_it(
    make_encoder, model: Path, toy_data: Path, taxonomy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """96 documents of train by two models, and dev by the model itself; a second time nothing is trained."""
    (tmp_path / "config.yaml").write_text(
        f"data:\n  path: elsewhere\nmodel:\n  encoder: {make_encoder('bert')}\n  architecture: flat\n"
        "training:\n  epochs: 1\n  learning_rate: 3.0e-3\n  precision: fp32\n"
    )
    seen: list[Outputs] = []
    calibrate = HierarchicalClassifier.calibrate

    def watched(classifier: HierarchicalClassifier, outputs: Outputs, **choices):
        seen.append(outputs)
        return calibrate(classifier, outputs, **choices)

    monkeypatch.setattr(HierarchicalClassifier, "calibrate", watched)
    arguments = ("calibrate", model, toy_data, "--folds", 2, "--max-loss", 5)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "fold 2 of 2" in result.stderr
    assert read(model / FILE)["provenance"]["documents"] == 120
    places = [tmp_path / "calibration" / "folds" / name / "model" for name in "12"]
    texts = [document.text for document in DataFolder(toy_data).documents("train")]
    scores = [np.concatenate(list(HierarchicalClassifier.load(place).logits(texts))) for place in places]
    dev = HierarchicalClassifier.load(model).outputs(DataFolder(toy_data, taxonomy=taxonomy).documents("dev"))
    np.testing.assert_allclose(seen[0].logits[96:], dev.logits, atol=1e-4)
    np.testing.assert_array_equal(seen[0].gold[96:], dev.gold)
    folds = deal(DataFolder(toy_data, taxonomy=taxonomy), "train", 2, seed=0).folds
    expected = np.concatenate([scores[fold][folds == fold] for fold in range(2)])
    np.testing.assert_allclose(seen[0].logits[:96], expected, atol=1e-4)

    again = run(*arguments)
    assert again.exit_code == 0, again.output
    assert "fold 1 of 2" not in again.stderr
    np.testing.assert_array_equal(seen[0].logits, seen[1].logits)


@pytest.mark.parametrize(
    "options",
    [["--folds", "2"], ["--folds", "2", "--split", "train"], ["--output", "out"], ["--split", "test"]],
    ids=str,
)
def test_options_of_calibrate_that_do_not_fit(model: Path, toy_data: Path, options: list[object]) -> None:
    result = run("calibrate", model, toy_data, *options)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert not (model / FILE).exists()


def test_options_overrule_what_was_found(model: Path, toy_data: Path, taxonomy, tmp_path: Path) -> None:
    run("calibrate", model, toy_data, "--thresholds", "none", "--rule", "closure", "--method", "none")
    report = tmp_path / "scores.json"
    options = ["--rule", "top-k-paths", "--paths", 2, "--abstain-below", 0.5, "--threshold", 0.3]
    result = run("evaluate", model, toy_data, *options, "--json", report)
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(model)
    decisions = classifier.decisions.changed(rule="top-k-paths", paths=2, abstain_below=0.5, threshold=0.3)
    expected = classifier.evaluate(toy_data, "test", decisions=decisions)
    written = read(report)
    assert written["scores"] == json.loads(json.dumps(expected.to_json()))
    assert (written["decisions"]["rule"], written["decisions"]["paths"]) == ("top-k-paths", 2)


@pytest.mark.parametrize("name", ["nowhere/model", "some-name"])
def test_a_model_that_is_no_folder_is_refused(name: str, toy_data: Path) -> None:
    result = run("calibrate", name, toy_data)
    assert result.exit_code == 2
    assert name in result.stderr


@pytest.mark.parametrize("content", ["{", '{"rule": "magic"}'])
def test_a_broken_file_stops_every_command_and_says_what_to_do(model: Path, toy_data: Path, content: str) -> None:
    (model / FILE).write_text(content)
    for command in (["evaluate", model, toy_data], ["predict", model, "atom"], ["calibrate", model, toy_data]):
        result = run(*command)
        assert result.exit_code == 2
        assert f"{model / FILE}: " in result.stderr
