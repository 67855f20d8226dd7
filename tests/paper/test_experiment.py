"""Budgets, the settings of each run, and runs: made once, resumed, refused."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.errors import InputError
from hgclr.paper import experiment
from hgclr.paper.experiment import Budget, Experiment
from hgclr.paper.systems import SYSTEMS, TABLES
from hgclr.paper.tables import reproduce
from hgclr.training import RunConfig
from support.crash_points import run_forked
from support.pretended_training import PretendedTraining, metrics
from support.short_runs import die_after_checkpoint_in


@pytest.mark.parametrize("table", ["table2", "table3"])
def test_a_missing_split_is_refused_before_anything_runs(
    table: str, plan: Experiment, tmp_path: Path, toy_data: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("taxonomy.tsv", "train.jsonl.gz"):
        (data / name).write_bytes((toy_data / name).read_bytes())
    with pytest.raises(InputError) as error:
        reproduce(TABLES[table], [1], replace(plan, data=data))
    assert Path(str(error.value.path)) == data


@pytest.mark.parametrize(
    "override",
    ["training.seed=3", "model.architecture=flat", "training.epochs=3", "training.epoch=3", "model.node_widht=3", "x"],
)
def test_settings_that_an_option_decides_or_nobody_knows_are_refused(override: str, plan: Experiment) -> None:
    with pytest.raises(InputError):
        replace(plan, overrides=(override,)).base()


@pytest.mark.parametrize(
    ("key", "epochs", "patience"),
    [("flat", 8, 6), ("hgclr", 8, 6), ("hiagm", 8, 6), ("flat-long", 16, 12), ("textrcnn-hiagm", 40, 30)],
)
def test_every_row_gets_the_same(key: str, epochs: int, patience: int, tmp_path: Path) -> None:
    budget = Budget.parse("documents=150,length=32,epochs=8,test=70")
    run = Experiment(data=tmp_path, encoder="e", output=tmp_path, budget=budget).run(SYSTEMS[key], 3)
    assert (run.data.limit, run.data.dev_limit, run.data.test_limit) == (150, 150, 70)
    assert run.model.overrides["max_length"] == 32
    assert (run.training.epochs, run.training.patience) == (epochs, patience)


def test_without_one_the_recipe_decides(tmp_path: Path) -> None:
    plan = Experiment(data=tmp_path, encoder="e", output=tmp_path)
    for key, patience in (("hgclr", 6), ("textrcnn", 30)):
        run = plan.run(SYSTEMS[key], 3)
        assert (run.data.limit, run.training.epochs, run.training.patience) == (None, None, patience)


def run_row(key: str, seed: int, plan: Experiment) -> Path:
    """Run one row with one seed, and return the folder of its run."""
    table = next(table for table in TABLES.values() if key in (row.system for row in table.rows))
    summary = reproduce(table, [seed], plan, rows=[key])
    assert not any(line.refused for line in summary.lines)
    return plan.folder(SYSTEMS[key], seed)


@pytest.fixture
def plan(toy_data: Path, tmp_path: Path) -> Experiment:
    return Experiment(data=toy_data, encoder="e", output=tmp_path / "out", budget=Budget(documents=8, epochs=4))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendedTraining:
    pretended = PretendedTraining()
    monkeypatch.setattr(experiment, "train", pretended)
    return pretended


def lines(plan: Experiment, table: str) -> dict[str, dict]:
    content = json.loads((plan.output / f"{table}.json").read_text())
    return {row["key"]: row for row in content["rows"]}


@pytest.mark.slow
def test_seeds_are_the_outer_loop_and_tables_share_runs(plan: Experiment, training: PretendedTraining) -> None:
    reproduce(TABLES["table4"], [2, 5], plan)
    rows = ["hgclr", "no-name", "no-spatial", "no-edge"]
    assert training.names == [f"{row}-{seed}" for seed in (2, 5) for row in rows]
    reproduce(TABLES["table5"], [2, 5], plan)
    assert training.names[8:] == [f"{row}-{seed}" for seed in (2, 5) for row in ("dropout", "random", "adversarial")]
    assert [len(row["runs"]) for row in lines(plan, "table5").values()] == [2, 2, 2, 2]


def test_the_table_is_there_after_every_run(
    plan: Experiment, training: PretendedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def score(run: RunConfig) -> tuple[float, float]:
        if (plan.output / "table4.json").exists():
            seen.append({key: len(row["runs"]) for key, row in lines(plan, "table4").items()})
        return 0.8, 0.6

    training.score = score
    reproduce(TABLES["table4"], [1], plan, rows=["hgclr", "no-name", "no-edge"])
    assert seen == [{"hgclr": 1, "no-name": 0, "no-edge": 0}, {"hgclr": 1, "no-name": 1, "no-edge": 0}]


def test_random_masking_runs_what_it_is_measured_on_first(plan: Experiment, training: PretendedTraining) -> None:
    folder = run_row("random", 3, plan)
    assert training.names == ["hgclr-3", "random-3"]
    assert folder == plan.output / "runs" / "random-3"
    assert training.runs[1].model.overrides["keep_fraction"] == 0.3  # the mean of what PretendedTraining says
    run_row("random", 3, plan)
    assert len(training.runs) == 2


def test_models_and_checkpoints_go_unless_they_are_wanted(
    plan: Experiment, training: PretendedTraining, toy_data: Path, tmp_path: Path
) -> None:
    folder = run_row("bert", 1, plan)
    assert {path.name for path in folder.iterdir()} == {"metrics.json", "settings.json"}
    keeping = Experiment(data=toy_data, encoder="e", output=tmp_path / "kept", keep_models=True)
    kept = {path.name for path in run_row("bert", 1, keeping).iterdir()}
    assert kept == {"metrics.json", "settings.json", "model", "training-model"}
    later = Experiment(data=toy_data, encoder="e", output=tmp_path / "kept")
    assert (run_row("bert", 1, later) / "model").is_dir()  # what was kept once is not taken away
    wanting = Experiment(**{**vars(plan), "keep_models": True})
    with pytest.raises(InputError, match=r"bert-1 is finished, and its models were not kept; give another --output"):
        run_row("bert", 1, wanting)


@pytest.mark.parametrize(
    "changed",
    [
        {"budget": Budget(documents=8, epochs=5)},
        {"encoder": "other"},
        {"overrides": ("model.label_layers=3",)},
        {"recipe": "paper"},
    ],
)
def test_other_settings_in_the_same_place_are_refused_before_anything_runs(
    plan: Experiment, training: PretendedTraining, changed: dict
) -> None:
    reproduce(TABLES["table4"], [1], plan, rows=["no-edge"])
    before = (plan.output / "table4.md").read_text()
    with pytest.raises(InputError) as error:
        reproduce(TABLES["table4"], [1], replace(plan, **changed))
    assert error.value.remedy
    assert training.names == ["no-edge-1"]
    assert (plan.output / "table4.md").read_text() == before


def test_another_preset_has_runs_and_a_table_of_its_own(plan: Experiment, training: PretendedTraining) -> None:
    reproduce(TABLES["table3"], [1], plan, rows=["bert", "hgclr"])
    reproduce(TABLES["table3"], [1], Experiment(**{**vars(plan), "preset": "paper"}), rows=["bert", "hgclr"])
    assert [run.output for run in training.runs] == [
        plan.output / folder / f"{row}-1" for folder in ("runs", "runs-paper") for row in ("bert", "hgclr")
    ]
    text = (plan.output / "table3-paper.md").read_text()
    assert "All rows have the preset paper: a head that starts from random weights, pooling cls, classification" in text
    assert "released" not in text
    assert "tuned on dev" not in text  # the paper decides at one half
    assert "| tuned on dev |" in (plan.output / "table3.md").read_text()


def test_a_row_that_cannot_be_run_is_named_and_the_others_go_on(plan: Experiment, training: PretendedTraining) -> None:
    def score(run: RunConfig) -> tuple[float, float]:
        if run.model.architecture == "hgclr" and run.model.overrides.get("positives") is None:
            raise InputError("it needs 11 GB", remedy="lower model.node_width")
        return 0.8, 0.6

    training.score = score
    plan = replace(plan, corpus="wos")
    summary = reproduce(TABLES["table5"], [1], plan)
    reasons = {line.key: line.refused.get(1) for line in summary.lines}
    assert reasons == {
        "hgclr": "it needs 11 GB; lower model.node_width",
        "dropout": None,
        "random": "it needs a run of hgclr, which was refused: it needs 11 GB; lower model.node_width",
        "adversarial": None,
    }
    text = (plan.output / "table5.md").read_text()
    assert "| hierarchy-guided | 87.46 / 81.52 | refused |" in text
    assert "- hierarchy-guided, seed 1, could not be run: it needs 11 GB; lower model.node_width" in text
    training.score = lambda _: (0.8, 0.6)
    assert not any(line.refused for line in reproduce(TABLES["table5"], [1], plan).lines)


def test_a_folder_that_somebody_else_made_is_left_alone(plan: Experiment, training: PretendedTraining) -> None:
    folder = plan.output / "runs" / "bert-1"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics(plan.base(), 0.1, 0.1)))
    with pytest.raises(InputError, match="bert-1 holds a run that hgclr reproduce did not make"):
        run_row("bert", 1, plan)


@pytest.mark.slow
def test_a_killed_command_goes_on_where_it_was(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is killed in its second row; the first is not touched, the second goes on, the third follows."""
    output = tmp_path / "out"
    words = [
        *("reproduce", "table3", "--data", toy_data, "--encoder", make_encoder("bert"), "--output", output),
        *("--seeds", 1, "--rows", "bert,hgclr,no-contrastive", "--budget", "documents=16,length=16,epochs=2"),
        *("--set", "model.label_heads=4", "--set", "training.patience=100", "--set", "training.learning_rate=1e-3"),
    ]
    command = [str(word) for word in words]
    monkeypatch.setenv("COLUMNS", "200")
    killed = output / "runs" / "hgclr-1"

    def reproduce_and_die() -> None:
        die_after_checkpoint_in(killed)
        app(command, prog_name="hgclr")

    assert run_forked(reproduce_and_die, tmp_path / "log") == -signal.SIGKILL, (tmp_path / "log").read_text()
    first = output / "runs" / "bert-1"
    untouched = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert not (killed / "metrics.json").exists()

    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == untouched
    lines = [line.split()[:2] for line in again.stderr.splitlines() if line.startswith(("row ", "epoch "))]
    # The epoch before the kill is not trained again.
    assert [" ".join(words) for words in lines] == ["row 2", "epoch 2", "row 3", "epoch 1", "epoch 2"]
    content = json.loads((output / "table3.json").read_text())
    assert {row["key"]: [run["resumed"] for run in row["runs"]] for row in content["rows"]} == {
        "bert": [False],
        "hgclr": [True],
        "no-contrastive": [False],
    }
    assert [row["runs"][0]["epochs"] for row in content["rows"]] == [2, 2, 2]
    assert content["rows"][1]["seconds"] is None
    assert not list(output.glob("runs/*/checkpoints"))
    assert str(tmp_path) not in (output / "table3.json").read_text() + (output / "table3.md").read_text()
