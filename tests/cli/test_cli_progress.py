"""Progress of training: stages, steps weighed by tokens, the estimate, and the times in metrics.json."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest
import transformers
from transformers.utils import logging as transformers_logging

from hgclr import HierarchicalClassifier, train
from hgclr.cli import progress as module
from hgclr.cli.console import Console
from hgclr.cli.progress import TrainingProgress, duration, estimate
from hgclr.provenance import Stopwatch
from hgclr.training.fitting import Plan
from hgclr.training.settings import TrainingSettings
from support.short_runs import make_run


def make_plan(**documents: int) -> Plan:
    return Plan(documents, 9, 2, "full", None, "cpu", "fp32", 128, 0.0)


def test_the_estimate_counts_training_scoring_and_what_is_done() -> None:
    # 1,000 documents of 10 tokens, 0.01 s each token: 100 s for an epoch, 1/30 s to encode a document.
    plan = make_plan(train=1000, dev=300, test=600)
    lines = estimate(plan, 10_000, 0.01, 6)
    assert lines == [f"about {duration(600 + (8 * 300 + 600) / 30)} for up to 6 epochs"]
    assert "5 minutes" in estimate(plan, 10_000, 0.01, 6, seen=40_000)[0]


def test_a_long_training_names_the_faster_effort() -> None:
    lines = estimate(make_plan(train=1000, dev=300, test=600), 10_000, 0.1, 6)
    assert lines[0].startswith("about 2.0 hours") or "117 minutes" in lines[0]
    assert "--effort head" in lines[1]
    assert duration((1000 + 600 + 600) / 3) in lines[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 seconds"), (119, "119 seconds"), (120, "2 minutes"), (7199, "120 minutes"), (9000, "2.5 hours")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_every_stage_has_a_name_and_all_its_documents(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    stages: list[list] = []

    def on_stage(name: str, total: int | None) -> None:
        stages.append([name, total, 0])

    def on_documents(count: int) -> None:
        stages[-1][2] += count

    run = make_run(make_encoder("bert"), toy_data, tmp_path / "run")
    run.training = TrainingSettings(effort="head")
    train(run, on_stage=on_stage, on_documents=on_documents)
    names = list(dict.fromkeys(name for name, _, _ in stages))
    assert names[0] == "loading the model"
    assert names[-5:] == ["fitting the head", "tuning decisions", "scoring dev", "scoring test", "saving"]
    for name, total, done in stages:
        assert total is None or done == total, name
    counted = {name: total for name, total, _ in stages if total is not None}
    assert {"fitting the head", "tuning decisions", "scoring dev", "scoring test"} <= set(counted)


def test_training_is_measured_in_tokens(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 6)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))  # each step takes six seconds
    out = io.StringIO()
    shown: list[tuple[float, float]] = []

    class Watched(TrainingProgress):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            super().on_step_end(args, state, control, **kwargs)
            task = self._bar.tasks[0]
            shown.append((task.completed, task.total or 0))

    console = Console(file=out, width=80)
    with Watched(console) as progress:
        run = make_run(make_encoder("bert"), toy_data, tmp_path / "run")
        train(run, callbacks=[progress], on_start=progress.on_start, on_stage=progress.on_stage)
    assert shown[-1][0] == shown[-1][1] > 0
    assert all(first < second for (first, _), (second, _) in itertools.pairwise(shown))
    assert out.getvalue().count("about ") == 1
    assert "for up to" in out.getvalue()


def test_seconds_are_those_of_the_whole_call(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    run = make_run(make_encoder("bert"), toy_data, tmp_path / "run")
    run.training = TrainingSettings(effort="head")
    around = Stopwatch()
    train(run)
    first = around.read()
    stated = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for name, measured in first.items():
        assert 0 < measured - 0.5 <= stated[name] + 0.5 or abs(stated[name] - measured) < 0.5
    earlier = Stopwatch(around.wall - 1000, around.cpu - 500)
    again = train(run.model_copy(update={"output": tmp_path / "again"}), stopwatch=earlier).metrics
    assert again["seconds"] > 1000
    assert again["cpu_seconds"] > 500


def test_foreign_libraries_are_silent_and_keep_their_settings(
    make_encoder, toy_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_info()
    transformers_logging.enable_progress_bar()
    try:
        result = train(make_run(make_encoder("bert"), toy_data, tmp_path / "run"))
        HierarchicalClassifier.load(result.model).predict("atom")
        printed = capfd.readouterr()
        assert (printed.out, printed.err) == ("", "")
        assert transformers.utils.logging.get_verbosity() == transformers_logging.INFO
        assert transformers_logging.is_progress_bar_enabled()
    finally:
        transformers_logging.set_verbosity(level)
        if not bars:
            transformers_logging.disable_progress_bar()
