"""Learning curves: which runs they need, what is drawn of them, what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.paper import curves, experiment
from hgclr.paper.curves import run_curves
from hgclr.paper.experiment import Budget, Experiment
from hgclr.presentation import Plot
from hgclr.training import RunConfig
from support.pretended_training import TUNED, PretendedTraining


def score(run: RunConfig) -> tuple[float, float]:
    """More documents, better scores, and the seed in the third digit."""
    documents = run.data.limit or 60
    return 0.5 + run.training.seed / 1000, documents / 100 + run.training.seed / 1000


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendedTraining:
    pretended = PretendedTraining(score)
    monkeypatch.setattr(experiment, "train", pretended)
    return pretended


@pytest.fixture
def _no_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plot, drawn after every run, takes longer than everything else here."""
    monkeypatch.setattr(curves, "draw_curves", lambda *_: Plot("curves", b"", b"", ""))


@pytest.fixture
def plan(toy_data: Path, tmp_path: Path) -> Experiment:
    return Experiment(data=toy_data, encoder="e", output=tmp_path / "out", budget=Budget(length=16, test=7))


@pytest.mark.usefixtures("_no_plot")
def test_every_size_has_its_sample_and_the_same_test(plan: Experiment, training: PretendedTraining) -> None:
    run_curves([20, 5000, 5001, None], [4, 2], plan, rows=["flat", "default"])
    made = [(run.output.relative_to(plan.output).as_posix(), run.data.limit) for run in training.runs]
    assert made == [
        *((f"20/runs/{row}-{seed}", 20) for seed in (4, 2) for row in ("flat", "default")),
        *((f"5000/runs/{row}-{seed}", 5000) for seed in (4, 2) for row in ("flat", "default")),
        *((f"5001/runs/{row}-4", 5001) for row in ("flat", "default")),
        *((f"all/runs/{row}-4", None) for row in ("flat", "default")),
    ]
    assert {(run.data.dev_limit, run.data.test_limit) for run in training.runs} == {(None, 7)}
    assert (plan.output / "20" / "systems.md").is_file()
    run_curves([20, None], [4, 2], plan, rows=["flat", "default"])
    assert len(training.runs) == len(made)


@pytest.mark.usefixtures("_no_plot")
def test_json_holds_every_point(plan: Experiment, training: PretendedTraining) -> None:
    run_curves([20, None], [1, 3], plan, rows=["flat", "names"], command="hgclr reproduce curves …")
    content = json.loads((plan.output / "curves.json").read_text(encoding="utf-8"))
    assert content["panels"] == {
        "macro": "all labels",
        "level 1": "level 1",
        "level 2": "level 2",
        "1-5": "labels 1 to 5 times in train",
    }
    few, everything = content["points"]["flat"]
    assert (few["size"], few["documents"], few["seeds"]) == ("20", 20, [1, 3])
    assert (everything["size"], everything["documents"], everything["seeds"]) == ("all", 10, [1])
    macro = [20.1, 20.3]
    for decisions, factor in (("half", 1), ("tuned", TUNED)):
        scores = few["scores"][decisions]
        assert scores["macro"]["values"] == pytest.approx([factor * value for value in macro])
        assert scores["micro"]["values"] == pytest.approx([factor * 50.1, factor * 50.3])
        assert scores["level 2"]["mean"] == pytest.approx(factor * 20.2 * 0.8)
        assert scores["1-5"]["mean"] == pytest.approx(factor * 10.1)
        assert "unseen" not in scores
    assert content["missing"] == []
    assert content["command"] == "hgclr reproduce curves …"
    assert str(plan.output.parent) not in json.dumps(content)


@pytest.mark.usefixtures("_no_plot")
def test_what_is_missing_is_named_and_not_drawn(plan: Experiment, training: PretendedTraining) -> None:
    def refusing(run: RunConfig) -> tuple[float, float]:
        if run.output.name == "flat-2" and run.data.limit == 30:
            raise InputError("it needs 11 GB")
        if run.data.limit is None:
            seen.append(json.loads((plan.output / "curves.json").read_text())["missing"])
        return score(run)

    seen: list[list[str]] = []
    training.score = refusing
    made = run_curves([20, 30, None], [1, 2], plan, rows=["flat", "default"])
    assert made.missing == ["flat, 30 documents, seed 2: it needs 11 GB"]
    assert [point.seeds for point in made.points["flat"]] == [[1, 2], [1], [1]]
    assert "- flat, 30 documents, seed 2: it needs 11 GB" in (plan.output / "curves.md").read_text()
    later = [f"{row}, all documents, seed 1: not run yet" for row in ("flat", "default")]
    assert seen[0] == made.missing + later


@pytest.mark.usefixtures("_no_plot")
def test_other_settings_are_refused_before_anything_runs(plan: Experiment, training: PretendedTraining) -> None:
    with pytest.raises(InputError):
        run_curves([20], [1], replace(plan, budget=Budget(documents=5)))
    run_curves([30], [1], plan, rows=["flat"])
    with pytest.raises(InputError):
        run_curves([20, 30], [1], replace(plan, budget=Budget(length=8, test=7)), rows=["flat"])
    assert len(training.runs) == 1  # the first size, where nothing is in the way, was not begun
