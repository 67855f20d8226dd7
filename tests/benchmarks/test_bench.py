"""The table of goals, the label side's benchmark and the plots."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bench
import label_scaling
import plots

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def label_result(ratio: float, gigabytes: float) -> dict:
    tree = {"labels": 31_000, "ratio": {"median": ratio}, "bytes_beyond_encoder": gigabytes * 1e9}
    return {"trees": [{**tree, "labels": 160}, tree]}


@pytest.mark.parametrize(("ratio", "gigabytes", "good"), [(2.9, 7.9, [True, True]), (3.1, 8.1, [False, False])])
def test_goals_of_the_label_side(ratio: float, gigabytes: float, good: list[bool]) -> None:
    assert [goal.good for goal in bench.labels(label_result(ratio, gigabytes))] == good


@pytest.mark.parametrize(("apart", "good"), [(0.29, True), (-0.31, False)])
def test_int8_may_cost_a_third_of_a_point(apart: float, good: bool) -> None:
    names = ("ours, torch fp32", "ours, onnx fp32", "ours, onnx int8")
    rates = {name: {"median": 20.0} for name in names}
    scores = {names[0]: {"micro_f1": 60.0, "macro_f1": 40.0}, names[2]: {"micro_f1": 60.0, "macro_f1": 40.0 + apart}}
    goals = bench.prediction({"ratio_to_published_style": rates, "ratio_to_best_pipeline": rates, "f1": scores})
    assert [goal.good for goal in goals] == [*[True] * 6, good]


@pytest.mark.parametrize(("seeds", "compact", "good"), [(3, 19.8, True), (3, 19.6, False), (2, 20.0, False)])
def test_compact_positives_need_three_seeds(seeds: int, compact: float, good: bool) -> None:
    rows = [
        {"key": key, "runs": [{"seed": seed, "dev": {"macro": macro + seed}} for seed in range(count)]}
        for key, macro, count in (("hgclr", 20.0, 3), ("hgclr-compact", compact, seeds))
    ]
    assert bench.compact_f1({"rows": rows}).good == good


def test_the_label_side_is_measured_against_the_smallest_tree(make_encoder, toy_data: Path) -> None:
    result = label_scaling.measure(40, "hgclr", toy_data, make_encoder("bert"), rounds=2)
    assert result["labels"] == 40
    assert result["peak_bytes"] > 10**8
    assert 0 < result["ratio"]["lowest"] <= result["ratio"]["highest"]


def test_missing_data_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"there is no data set arxiv in .*: give the folder of both with --data"):
        bench.main()


@pytest.mark.slow
def test_every_result_on_record_can_be_judged_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = {name: judge for name, (_, judge) in bench.plan(tmp_path, None, full=True).items()}
    recorded = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("*.json")}
    assert set(judges) <= set(recorded)
    for name, judge in judges.items():
        assert judge(recorded[name])
    monkeypatch.setattr(sys, "argv", ["plots.py", "--results", str(RESULTS), "--output", str(tmp_path)])
    plots.main()
    assert {file.stem for file in tmp_path.iterdir()} == {*plots.PLOTS, "ladder", "documents"}
