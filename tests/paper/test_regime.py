"""The experiment in the paper's regime: its sample, the order of its runs, intervals over seeds, the verdict."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.data.folder import DataFolder
from hgclr.errors import InputError
from hgclr.metrics.intervals import BootstrapScores, Resampled, poisson_weights
from hgclr.metrics.scores import MultiLabelScores
from hgclr.paper import experiment, regime
from hgclr.paper.experiment import Budget, Experiment, read_bits, write_bits
from hgclr.paper.regime import Difference, difference_over_seeds, judge, run_regime, shared_sample
from hgclr.paper.systems import SYSTEMS, TABLES
from hgclr.presentation import Plot
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig
from support.pretended_training import PretendedTraining

ARMS = [row.system for row in TABLES["regime"].rows]
OTHERS = ARMS[2:]


@pytest.fixture
def plan(toy_data: Path, tmp_path: Path) -> Experiment:
    return Experiment(data=toy_data, encoder="e", output=tmp_path / "out", preset="paper", budget=Budget(dev=7, test=9))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendedTraining:
    """Nothing is trained or drawn; flat predicts nothing on test, and every other arm the gold labels."""

    def predict(run: RunConfig, folder: Path) -> None:
        documents = list(DataFolder(run.data.path).usable("test"))
        predicted = np.zeros((len(documents), 9), dtype=np.bool_)
        for row, document in enumerate(documents):
            predicted[row, list(document.labels)] = run.model.architecture == "hgclr"
        write_bits(folder / "predictions.npz", half=predicted, tuned=predicted)

    pretended = PretendedTraining()
    monkeypatch.setattr(experiment, "train", pretended)
    monkeypatch.setattr(experiment, "write_predictions", predict)
    monkeypatch.setattr(regime, "draw_regime", lambda *_: Plot("regime", b"", b"", ""))
    return pretended


def leaf_of(labels: list[str], tree: Taxonomy) -> str:
    """The label with the longest path."""
    return max(labels, key=lambda label: len(tree.path(tree.ids.index(label))))


def rows_of(folder: Path, split: str) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress((folder / f"{split}.jsonl.gz").read_bytes()).splitlines()]


def test_the_sample_has_so_many_documents_of_each_leaf(toy_data: Path, plan: Experiment) -> None:
    made = shared_sample(plan, per_leaf=5)
    assert made.data == plan.output / "data" / toy_data.name
    tree, everything = DataFolder(toy_data).taxonomy, rows_of(toy_data, "train")
    ids = dict(zip(tree.names, tree.ids, strict=True)) | dict(zip(tree.ids, tree.ids, strict=True))
    there = Counter(leaf_of([ids[label] for label in row["labels"]], tree) for row in everything)
    drawn = rows_of(made.data, "train")
    assert Counter(leaf_of(row["labels"], tree) for row in drawn) == {
        leaf: min(5, count) for leaf, count in there.items()
    }
    texts = [row["text"] for row in everything]
    places = [texts.index(row["text"]) for row in drawn]
    assert places == sorted(places)
    assert [len(rows_of(made.data, split)) for split in ("dev", "test")] == [7, 9]
    before = {file.name: file.read_bytes() for file in made.data.iterdir()}
    assert shared_sample(plan, per_leaf=5) == made
    shutil.rmtree(made.data)
    shared_sample(plan, per_leaf=5)
    assert {file.name: file.read_bytes() for file in made.data.iterdir()} == before


def test_without_a_number_per_leaf_the_budget_or_nothing_bounds_train(plan: Experiment, tmp_path: Path) -> None:
    assert len(rows_of(shared_sample(plan).data, "train")) == 96
    small = replace(plan, output=tmp_path / "small", budget=Budget(documents=30))
    made = shared_sample(small)
    assert [len(rows_of(made.data, split)) for split in ("train", "dev", "test")] == [30, 24, 24]
    with pytest.raises(InputError):
        shared_sample(replace(small, output=tmp_path / "both"), per_leaf=5)
    assert not (tmp_path / "both").exists()


def test_another_sample_in_the_same_place_is_refused(plan: Experiment) -> None:
    shared_sample(plan, per_leaf=5)
    for other, per_leaf in ((plan, 6), (replace(plan, budget=Budget(dev=7, test=8)), 5)):
        with pytest.raises(InputError) as error:
            shared_sample(other, per_leaf)
        assert error.value.remedy


def test_columns_are_read_once(toy_data: Path, plan: Experiment, tmp_path: Path) -> None:
    data = tmp_path / "columns"
    data.mkdir()
    shutil.copy(toy_data / "taxonomy.tsv", data)
    for split in ("train", "dev", "test"):
        lines = [json.dumps({"text": row["text"], "primary": row["labels"]}) for row in rows_of(toy_data, split)]
        (data / f"{split}.jsonl").write_text("\n".join(lines))
    overrides = ("data.label_column=primary", "data.label_documents=true", "model.label_heads=4")
    made = shared_sample(replace(plan, data=data, overrides=overrides), per_leaf=2)
    run = made.run(SYSTEMS["hgclr"], 1)
    assert (run.data.label_column, run.data.label_documents) == (None, True)
    assert run.model.overrides["label_heads"] == 4
    assert DataFolder(made.data).form.label_column == "labels"


@pytest.mark.parametrize("recipe", [None, "paper"])
def test_all_arms_are_trained_as_in_the_paper(plan: Experiment, training: PretendedTraining, recipe: str) -> None:
    run_regime([1], replace(plan, recipe=recipe))
    for run in training.runs:
        settings = experiment.record(SYSTEMS["bert"], run)
        assert (settings["model"]["pooling"], settings["model"]["classifier_start"]) == ("cls", "random")
        chosen = run.resolved_training
        assert (chosen.batch_size, chosen.patience, chosen.patience_metrics) == (12, 6, ["macro_f1"])
        assert (chosen.recipe, chosen.epochs) == ((recipe, None) if recipe else ("default", 30))
        assert (chosen.calibrate, chosen.refit_head, chosen.batching) == (True, False, "uniform")
        assert (run.data.limit, run.data.dev_limit, run.data.test_limit) == (None, None, None)
        assert not run.uses_label_documents
    arms = {run.output.name[:-2]: experiment.record(SYSTEMS["bert"], run)["model"] for run in training.runs}
    loss = {key: (arm["positives"], arm["contrastive_weight"], arm["classification_loss"]) for key, arm in arms.items()}
    assert arms.pop("bert")["architecture"] == "flat"
    assert {arm["architecture"] for arm in arms.values()} == {"hgclr"}
    assert {key: loss[key] for key in arms} == {
        "hgclr": ("hierarchy", 0.1, "sum"),
        "two-passes": ("dropout", 0.0, "sum"),
        "random": ("random", 0.1, "sum"),
        "no-contrastive": ("hierarchy", 0.0, "sum"),
        "hgclr-published": ("hierarchy", 0.05, "mean"),
    }
    assert arms["hgclr"]["keep_threshold"] == 0.02
    assert arms["random"]["keep_fraction"] == 0.3  # the mean of what PretendedTraining says


def test_on_top_of_the_default_the_arms_have_its_settings(plan: Experiment, training: PretendedTraining) -> None:
    made = run_regime([1, 2], replace(plan, preset="default"), rows=["bert", "hgclr"])
    usual = RunConfig(data={"path": plan.data}, output=plan.output)
    own = {"data.path", "model.architecture", "model.encoder", "training.epochs", "training.precision", "training.seed"}
    for run in training.runs:
        settings, expected = (experiment.record(SYSTEMS["bert"], each) for each in (run, usual))
        differing = {
            f"{section}.{name}"
            for section, values in expected.items()
            for name, value in values.items()
            if settings[section][name] != value
        }
        assert differing <= own
        assert run.training.epochs == 30
    assert [run.model.architecture for run in training.runs] == ["flat", "hgclr"] * 2
    assert made.answer is not None
    assert made.answer.verdict == "a useful gain"
    files = [plan.output / f"regime-default.{suffix}" for suffix in ("md", "json", "svg")]
    assert all(file.exists() for file in files)
    assert "(regime-default.svg)" in files[0].read_text()
    assert not (plan.output / "regime.md").exists()


def test_flat_and_hgclr_come_first_and_runs_are_made_once(plan: Experiment, training: PretendedTraining) -> None:
    expected = [f"{arm}-{seed}" for some in (ARMS[:2], OTHERS) for seed in (4, 2) for arm in some]
    made = run_regime([4, 2], plan)
    assert training.names == expected
    assert run_regime([4, 2], plan) == made
    assert training.names == expected
    run_regime([4, 2, 3], plan, rows=["bert", "hgclr"])
    assert training.names == [*expected, "bert-3", "hgclr-3"]
    content = json.loads((plan.output / "regime.json").read_text())
    assert [row["key"] for row in content["rows"]] == ARMS
    assert content["dev_macro_f1"]["hgclr"] == {seed: [20.0, 30.0] for seed in "423"}
    answer = content["differences"][0]
    assert [answer[name] for name in ("arm", "base", "score", "decisions")] == ["hgclr", "bert", "macro_f1", "half"]
    assert answer["seeds"] == [4, 2, 3]
    pairs = {(each["arm"], each["base"]) for each in content["differences"]}
    others = {("hgclr", arm) for arm in OTHERS} | {("no-contrastive", "two-passes")}
    assert pairs == {(arm, "bert") for arm in ARMS[1:]} | others
    gold = [set(row["labels"]) for row in rows_of(plan.output / "data" / plan.data.name, "test")]
    in_test = len(set.union(*gold))
    assert answer["values"] == pytest.approx([100 * in_test / 9] * 3)  # F1 of 1 on every label of test, from 0
    assert answer["verdict"] == "confirms the paper"
    assert not (plan.folder(SYSTEMS["bert"], 4) / "model").exists()


def test_a_run_killed_before_its_predictions_is_completed(
    plan: Experiment, training: PretendedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(run: RunConfig, folder: Path) -> None:
        if run.output.name == "random-1":
            raise Killed
        predict(run, folder)

    predict = experiment.write_predictions
    monkeypatch.setattr(experiment, "write_predictions", kill)
    with pytest.raises(Killed):
        run_regime([1], plan)
    monkeypatch.setattr(experiment, "write_predictions", predict)
    made = run_regime([1], plan)
    assert training.names == [f"{arm}-1" for arm in ARMS]
    assert {each.arm for each in made.differences} == set(ARMS[1:])


def test_random_masking_waits_for_hgclr_of_its_seed(plan: Experiment, training: PretendedTraining) -> None:
    def refuse(run: RunConfig) -> tuple[float, float]:
        if run.output.name == "hgclr-1":
            raise InputError("it needs 11 GB")
        return 0.8, 0.6

    training.score = refuse
    made = run_regime([1, 2], plan, rows=["bert", "random"])
    assert {line.key: list(line.refused) for line in made.summary.lines if line.refused} == {
        "hgclr": [1],
        "random": [1],
    }
    assert [each.seeds for each in made.differences if each.arm == "random"] == [[2]] * 4


TREE = Taxonomy(["A", "A1", "A2", "B"], [-1, 0, 0, -1])
Matrix = NDArray[np.bool_]


def macro_f1(predicted: Matrix, gold: Matrix) -> float:
    """The mean over labels, in percent, counted label by label."""
    scores = []
    for ours, true in zip(predicted.T.tolist(), gold.T.tolist(), strict=True):
        right = sum(one and other for one, other in zip(ours, true, strict=True))
        scores.append(2 * right / max(sum(ours) + sum(true), 1))
    return 100 * sum(scores) / len(scores)


def test_interval_is_that_of_all_draws_of_seeds_on_repeated_documents() -> None:
    seeds, documents, resamples = 3, 30, 1500
    random = np.random.default_rng(3)
    gold = random.random((documents, len(TREE))) < [0.7, 0.4, 0.3, 0.5]
    errors = [[0.15, 0.2, 0.1], [0.3, 0.25, 0.4]]
    arms = [[gold ^ (random.random(gold.shape) < share) for share in arm] for arm in errors]

    def resampled(predicted: Matrix) -> Resampled:
        scores = BootstrapScores(TREE, resamples)
        scores.update(predicted, gold)
        return scores.resampled()

    found = difference_over_seeds(*([resampled(each) for each in arm] for arm in arms), "macro_f1")
    values = [macro_f1(one, gold) - macro_f1(other, gold) for one, other in zip(*arms, strict=True)]
    assert found["values"] == pytest.approx(values)
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["sd"] == pytest.approx(np.std(values, ddof=1))

    every = []  # each resample of the documents with each of the 27 draws of seeds
    weights = poisson_weights(resamples, 0, 0, documents)
    means = []
    for column in weights.T:
        places = np.repeat(np.arange(documents), column)
        by_seed = [
            macro_f1(one[places], gold[places]) - macro_f1(other[places], gold[places])
            for one, other in zip(*arms, strict=True)
        ]
        centre = sum(by_seed) / seeds
        means.append(centre)
        draws = itertools.product(by_seed, repeat=seeds)
        every += [centre + math.sqrt(seeds / (seeds - 1)) * (sum(draw) / seeds - centre) for draw in draws]
    assert found["document_sd"] == pytest.approx(np.std(means, ddof=1))
    moved = np.array(every) - np.mean(every) + np.mean(values)
    low, high = np.quantile(moved, [0.025, 0.975])
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.1 * moved.std())


def constant(value: float, resamples: int) -> Resampled:
    """A run with one score in every resample: documents play no part."""
    return Resampled(1, 0, "", {"macro_f1": value}, {"macro_f1": np.full(resamples, value)})


def test_spread_over_seeds_is_that_of_a_mean_of_so_many() -> None:
    random = np.random.default_rng(1)
    values = random.normal(0.02, 0.01, 5)
    first, second = ([constant(value, 50_000) for value in each] for each in (values, np.zeros(5)))
    found = difference_over_seeds(first, second, "macro_f1")
    draws = np.array([np.mean(draw) for draw in itertools.product(100 * values, repeat=5)])
    widened = draws.mean() + (draws - draws.mean()) * found["sd"] / math.sqrt(5) / draws.std()
    assert (found["low"], found["high"]) == pytest.approx(np.quantile(widened, [0.025, 0.975]), abs=0.02)
    assert found["document_sd"] == pytest.approx(0, abs=1e-9)
    alone = difference_over_seeds(first[:1], second[:1], "macro_f1")
    assert alone["sd"] is None
    assert (alone["low"], alone["high"]) == pytest.approx((alone["mean"], alone["mean"]))


def difference(mean: float, half_width: float, sd: float | None = 1.0, document_sd: float = 0.2) -> Difference:
    return Difference(
        "hgclr",
        "bert",
        "macro_f1",
        "half",
        [1, 2],
        [mean] * 2,
        mean,
        mean - half_width,
        mean + half_width,
        sd,
        document_sd,
    )


@pytest.mark.parametrize(
    ("mean", "half_width", "verdict"),
    [
        (2.0, 1.9, "confirms the paper"),
        (2.0, 2.0, "undecided"),
        (1.9, 0.1, "undecided"),
        (0.5, 0.5, "no useful effect at this size"),
        (-0.5, 0.5, "no useful effect at this size"),
        (0.5, 0.6, "undecided"),
        (-2.5, 0.1, "undecided"),
    ],
)
def test_verdict_follows_the_rule(mean: float, half_width: float, verdict: str) -> None:
    assert judge(difference(mean, half_width)).verdict == verdict
    assert judge(difference(mean, half_width, sd=None)).verdict is None


@pytest.mark.parametrize(("mean", "sd", "document_sd"), [(3.0, 4.0, 0.5), (0.2, 1.5, 0.3), (-0.6, 1.0, 0.1)])
def test_so_many_seeds_are_just_enough(mean: float, sd: float, document_sd: float) -> None:
    needed = judge(difference(mean, 9.0, sd, document_sd)).seeds_needed
    wanted = mean if mean >= 2 else 1 - abs(mean)

    def half_width(seeds: int) -> float:
        return 1.959964 * math.hypot(sd / math.sqrt(seeds), document_sd)

    assert needed is not None
    assert half_width(needed) <= wanted < half_width(needed - 1)


@pytest.mark.parametrize(("mean", "document_sd"), [(1.5, 0.0), (-1.2, 0.0), (0.9, 0.1), (2.5, 1.5)])
def test_no_number_of_seeds_helps(mean: float, document_sd: float) -> None:
    assert judge(difference(mean, 9.0, 1.0, document_sd)).seeds_needed is None


def test_a_clear_loss_or_gain_is_reported_as_one() -> None:
    assert "a gain" in regime.in_words(judge(difference(1.5, 1.4)))
    assert "a gain" not in regime.in_words(judge(difference(1.5, 1.6)))
    assert "a loss" in regime.in_words(judge(difference(-2.5, 2.4)))
    assert "a loss" not in regime.in_words(judge(difference(-2.5, 2.6)))


def test_the_command_trains_resumes_and_reports(
    make_encoder, toy_data: Path, taxonomy: Taxonomy, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "regime", "--data", toy_data, "--encoder", make_encoder("bert"), "--output", out]
    words += ["--per-leaf", 6, "--budget", "length=16,epochs=2,test=12", "--set", "model.label_heads=4"]
    words += ["--rows", "bert,hgclr"]

    def run(*more: object):
        return CliRunner().invoke(app, [str(word) for word in (*words, *more)], env={"COLUMNS": "250"})

    result = run("--seeds", "1-2")
    assert result.exit_code == 0, result.output
    assert result.stderr.index("Estimated time") < result.stderr.index("epoch  1")
    content = json.loads((out / "regime.json").read_text())
    assert [len(row["runs"]) for row in content["rows"]] == [2, 2]
    assert (out / "regime.svg").read_text().count("<svg") == 1
    assert str(tmp_path) not in (out / "regime.json").read_text() + (out / "regime.md").read_text()

    gold = read_bits(out / "gold.npz")["gold"]
    drawn = DataFolder(out / "data" / toy_data.name).usable("test")
    assert [tuple(np.flatnonzero(labels).tolist()) for labels in gold] == [document.labels for document in drawn]
    for row in content["rows"]:
        for made in row["runs"]:
            kept = read_bits(out / "runs-paper" / f"{row['key']}-{made['seed']}" / "predictions.npz")
            for decisions, scores in (("half", made["test"]), ("tuned", made["tuned"]["test"])):
                counted = MultiLabelScores(taxonomy)
                counted.update(kept[decisions], gold)
                found = {"micro": 100 * counted.micro().f1, "macro": 100 * counted.macro().f1}
                assert found == pytest.approx(scores, abs=1e-4)

    again = run("--seeds", "1,2")
    assert again.exit_code == 0
    assert "epoch" not in again.stderr
    assert "Estimated" not in again.stderr
    assert run("--seeds", "1", "--per-leaf", 7).exit_code == 2
    assert run("--seeds", "2-1").exit_code == 2
