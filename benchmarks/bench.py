"""Run all speed benchmarks and print one table: goals, and the numbers of this machine.

    make bench                                                            # about five minutes
    python benchmarks/bench.py --full --output benchmarks/results         # the numbers of docs/benchmarks/speed.md

The short form measures fewer documents and rounds. The systems of a comparison take turns in one run. With --output,
each benchmark writes a JSON file, which ``plots.py`` draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import bulk_prediction
import evaluation_speed
import label_scaling
import prediction_speed
import startup
import training_speed
from measuring import arguments_of, show, write

RESULTS = Path(__file__).parent / "results"
GB = 1e9


class Goal(NamedTuple):
    """A row of the table: what is measured, the goal, the number, and whether the goal is reached."""

    what: str
    must: str
    reached: str
    good: bool


def training(result: dict[str, Any]) -> list[Goal]:
    """Compare training speed with its goals."""
    ratios, share = result["ratio_to_published_style"], result["share_of_matrix_product"]["median"]
    exact = ratios[training_speed.OURS]  # the same documents as the published style
    return [
        Goal("training, same documents", ">= 8 x published style", f"{exact:.1f} x", exact >= 8),
        Goal("  work on real tokens, share of a matrix product", ">= 60 %", f"{share:.0%}", share >= 0.6),
    ]


def prediction(result: dict[str, Any]) -> list[Goal]:
    """Compare prediction speed with its goals, and the F1 of int8 if the model is trained."""
    goals = []
    for name, contender, published, pipelined in (
        ("prediction, fp32, torch", prediction_speed.TORCH, 3, 1.5),
        ("prediction, fp32, onnx", prediction_speed.ONNX, 3, 1.5),
        ("prediction, int8, onnx", prediction_speed.INT8, 8, 5),
    ):
        one = result["ratio_to_published_style"][contender]["median"]
        other = result["ratio_to_best_pipeline"][contender]["median"]
        goals.append(Goal(name, f">= {published} x published style", f"{one:.1f} x", one >= published))
        goals.append(Goal("", f">= {pipelined} x pipeline", f"{other:.2f} x", other >= pipelined))
    if result["f1"]:
        exact, small = result["f1"][prediction_speed.TORCH], result["f1"][prediction_speed.INT8]
        apart = [f"{small[name] - exact[name]:+.2f}" for name in exact]
        goals.append(
            Goal("", "Micro, Macro-F1 within 0.3", ", ".join(apart), all(abs(float(value)) <= 0.3 for value in apart))
        )
    return goals


def bulk(result: dict[str, Any]) -> list[Goal]:
    """Compare bulk prediction with its goals."""
    goals = []
    for name in (bulk_prediction.TORCH, bulk_prediction.INT8):
        share = result[name]["share_of_the_backends_own_rate"]["median"]
        peak = result[name]["bytes"]["peak"]
        what = f"bulk, {result[name]['texts']:,} texts, {name}"
        goals.append(Goal(what, ">= 90 % of the backend", f"{share:.0%}", share >= 0.9))
        goals.append(Goal("", "< 1.5 GB", f"{peak / GB:.2f} GB", peak < 1.5 * GB))
    return goals


def evaluation(result: dict[str, Any]) -> list[Goal]:
    """Compare the speed of the metrics with its goal."""
    seconds, setting = result["seconds"]["median"], result["setting"]
    what = f"evaluation, {setting['documents']:,} x {setting['labels']}"
    return [Goal(what, "< 10 s", f"{seconds:.1f} s", seconds < 10)]


def labels(result: dict[str, Any]) -> list[Goal]:
    """Compare time and memory with many labels with their goals."""
    goals = []
    for tree in result["trees"]:
        what, ratio = f"training step, {tree['labels']:,} labels", tree["ratio"]["median"]
        if tree["labels"] == 31_000:
            memory = tree["bytes_beyond_encoder"] / GB
            goals.append(Goal(what, "<= 3 x that of 160 labels", f"{ratio:.1f} x", ratio <= 3))
            goals.append(Goal("", "<= 8 GB beyond the encoder", f"{memory:.1f} GB", memory <= 8))
        elif tree["labels"] > 31_000:
            goals.append(Goal(what, "trains", f"{tree['step_seconds']['median']:.0f} s per step", True))
    return goals


def start(result: dict[str, Any]) -> list[Goal]:
    """Compare start-up time with its goals."""
    help_, first = (result["seconds"][name]["median"] for name in (startup.HELP, startup.PREDICT))
    light = "torch" not in result["imports"][startup.PREDICT]
    return [
        Goal("start-up, hgclr --help", "< 0.5 s", f"{help_:.2f} s", help_ < 0.5),
        Goal("  first prediction, onnxruntime", "< 3 s", f"{first:.2f} s", first < 3),
        Goal("", "torch not imported", "not imported" if light else "imported", light),
    ]


def plan(data: Path, model: Path | None, *, full: bool) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return each benchmark by the name of its result: the function that runs it and the one that compares goals."""
    arxiv, clinc = data / "arxiv", data / "clinc150"
    sizes = label_scaling.LABELS if full else (31_000,)
    return {
        "startup": (partial(startup.run, clinc, rounds=5 if full else 3), start),
        "evaluation-speed": (partial(evaluation_speed.run, rounds=3 if full else 1), evaluation),
        "prediction-speed": (
            partial(
                prediction_speed.run,
                arxiv,
                model=model,
                documents=120 if full else 36,
                scored=3000,
                rounds=3 if full else 1,
                pipeline_batches=prediction_speed.PIPELINE_BATCHES if full else (1, 4),
            ),
            prediction,
        ),
        "bulk-prediction": (partial(bulk_prediction.run, clinc, texts=1_000_000 if full else 10_000), bulk),
        "label-scaling": (partial(label_scaling.run, arxiv, labels=sizes, rounds=3 if full else 1), labels),
        "training-speed": (partial(training_speed.run, arxiv, rounds=4 if full else 1), training),
    }


def main() -> None:
    """Run the benchmarks and print the table of goals."""
    parser = arguments_of(__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="folder that holds the data folders arxiv and clinc150",
    )
    parser.add_argument(
        "--model", type=Path, help="model trained on arxiv, to compare F1; default: a random head, without F1"
    )
    parser.add_argument("--full", action="store_true", help="all documents, sizes and rounds: one to two hours")
    parser.add_argument("--only", nargs="+", help="run only these benchmarks, such as startup training-speed")
    parser.add_argument("--output", type=Path, help="folder for the JSON files")
    arguments = parser.parse_args()
    for name in ("arxiv", "clinc150"):
        if not (arguments.data / name).is_dir():
            sys.exit(f"error: {arguments.data} has no data folder {name}; give --data a folder with arxiv and clinc150")
    goals: list[Goal] = []
    for name, (run, judge) in plan(arguments.data, arguments.model, full=arguments.full).items():
        if arguments.only and name not in arguments.only:
            continue
        print(f"{name} …", flush=True)
        result = run()
        if arguments.output:
            write(result, arguments.output / f"{name}.json")
        goals += judge(result)
    rows = [(goal.what, goal.must, goal.reached, "yes" if goal.good else "NO") for goal in goals]
    show("Goals", ("what", "goal", "measured", "reached"), rows)


if __name__ == "__main__":
    main()
