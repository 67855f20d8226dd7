"""Draw the plots of the docs from the results of the benchmarks and of ``hgclr reproduce curves``.

python benchmarks/plots.py --results benchmarks/results --output docs/images
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes

from measuring import arguments_of

OURS, THEIRS = "#1f6f8b", "#b8b8b8"


def bars(axes: Axes, rates: dict[str, dict[str, float]], ratios: dict[str, float], title: str, unit: str) -> None:
    """Draw a bar per contender with its spread, ours in colour, and how many times the first it is, as was measured."""
    names = list(rates)
    for place, name in enumerate(names):
        rate = rates[name]
        sides = [[rate["median"] - rate["lowest"]], [rate["highest"] - rate["median"]]]
        axes.barh(
            place, rate["median"], xerr=sides, color=OURS if name.startswith("ours") else THEIRS, ecolor="#444444"
        )
        text = f"{rate['median']:.3g}" + (f"  ({ratios[name]:.1f} x)" if place else "")
        axes.text(rate["highest"] * 1.01, place, " " + text, va="center", fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(rate["highest"] for rate in rates.values()) * 1.3)
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left")


def training(result: dict[str, Any]) -> pyplot.Figure:
    """Draw documents a CPU second in training."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    rates, ratios = result["documents_per_cpu_second"], result["ratio_to_published_style"]
    bars(axes, rates, ratios, "Training, abstracts, batch 12", "documents a CPU second")
    return figure


def prediction(result: dict[str, Any]) -> pyplot.Figure:
    """Draw documents a second in prediction, of the pipeline at its best batch size only."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    wanted = {
        name: rate
        for name, rate in result["documents_per_second"].items()
        if not name.startswith("pipeline") or name == result["best_pipeline"]
    }
    ratios = {name: ratio["median"] for name, ratio in result["ratio_to_published_style"].items()}
    bars(axes, wanted, ratios, "Prediction, abstracts", "documents a second")
    return figure


def label_side(result: dict[str, Any]) -> pyplot.Figure:
    """Draw time and memory of a training step against the number of labels."""
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(9, 3.2))
    trees = result["trees"]
    labels = [tree["labels"] for tree in trees]
    time.plot(labels, [tree["ratio"]["median"] for tree in trees], "o-", color=OURS)
    time.axhline(3, color=THEIRS, linestyle="--")
    time.text(labels[0], 3, "3 x, allowed at 31,000", va="bottom", fontsize=8, color="#666666")
    time.set(title="Time of a step, x that of 160 labels", yscale="log", yticks=[1, 2, 3, 5, 10])
    time.yaxis.set_major_formatter("{x:.0f}")
    time.yaxis.set_minor_formatter("")
    memory.plot(labels, [tree["bytes_beyond_encoder"] / 1e9 for tree in trees], "o-", color=OURS)
    memory.axhline(8, color=THEIRS, linestyle="--")
    memory.text(labels[0], 8, "8 GB, allowed at 31,000", va="top", fontsize=8, color="#666666")
    memory.set(title="Memory beyond the encoder, GB", ylim=(0, 8.5))
    for axes in (time, memory):
        axes.set(xscale="log", xlabel="labels")
        axes.title.set_horizontalalignment("center")
    return figure


def bulk(result: dict[str, Any]) -> pyplot.Figure:
    """Draw the memory of a stream of short texts from its start to its end."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    for name, colour in (("torch fp32", THEIRS), ("onnx int8", OURS)):
        done, held = zip(*result[name]["bytes"]["by_texts"], strict=True)
        axes.plot(done, [value / 1e6 for value in held], color=colour, label=name)
    axes.set(xlabel="texts labelled", ylim=(0, None))
    axes.set_title("Memory of hgclr predict, MB", loc="left")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False)
    return figure


LADDER = {"names": "names", "head": "head", "default": "full"}
"""The rungs of effort, from the label tree alone to full training, by their rows."""
OTHERS = {"tfidf": "TF-IDF", "flat": "flat", "flat-cls": "first token", "flat-cls-long": "first token, 2 x epochs"}
"""What stands beside them."""
ACROSS = 2
"""Panels side by side."""
PLACES = {"names": (7, -8), "flat": (-22, -9), "tfidf": (7, -3), "flat-cls": (0, -20), "flat-cls-long": (9, -3)}
"""Where a name stands from its point, if not above it."""


def grid(count: int, height: float) -> tuple[pyplot.Figure, list[Axes]]:
    """Return a figure with that many panels, each ``height`` inches high."""
    rows = -(-count // ACROSS)
    figure, panels = pyplot.subplots(rows, ACROSS, figsize=(4.6 * ACROSS, height * rows), squeeze=False)
    for axes in panels.flat[count:]:
        axes.remove()
    return figure, list(panels.flat[:count])


def ladder(curves: dict[str, dict[str, Any]]) -> pyplot.Figure:
    """Draw test Macro-F1 against the time of training at the smallest size of every data set, the rungs joined.

    It is CPU time where all systems of a data set have it.
    """
    figure, panels = grid(len(curves), height=3.6)
    for axes, (name, result) in zip(panels, curves.items(), strict=True):
        found = {}
        smallest = {key: points[0] for key, points in result["points"].items() if points}
        timed = [point for point in smallest.values() if point["seconds"] is not None]
        time = "cpu_seconds" if all(point.get("cpu_seconds") is not None for point in timed) else "seconds"
        for key, point in smallest.items():
            scores = point["scores"]["tuned"].get("macro")
            if scores is not None and point[time] is not None:
                found[key] = (min(point[time]["values"]), scores["mean"], scores["sd"] or 0.0)
        rungs = [found[key] for key in LADDER if key in found]
        axes.plot([rung[0] for rung in rungs], [rung[1] for rung in rungs], color=OURS, zorder=1)
        for key, title in (LADDER | OTHERS).items():
            if key not in found:
                continue
            seconds, mean, spread = found[key]
            colour = OURS if key in LADDER else "#8a8a8a"
            axes.errorbar(seconds, mean, yerr=spread, fmt="o", color=colour, ecolor=colour, zorder=2)
            place = PLACES.get(key, (0, 8))
            side = "left" if place[0] else "center"
            axes.annotate(
                title, (seconds, mean), xytext=place, textcoords="offset points", ha=side, fontsize=9, color=colour
            )
        documents = next(point["documents"] for point in smallest.values())
        axes.set_title(f"{name}, {documents:,} documents", loc="left")
        seconds_of = "CPU seconds of training" if time == "cpu_seconds" else "seconds of training, one core"
        axes.set(xscale="log", xlabel=f"{seconds_of}, fastest seed", ylabel="test Macro-F1, decisions tuned")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.set(xlim=(1, 3000), ylim=(0, axes.get_ylim()[1] * 1.1))
    figure.tight_layout()
    return figure


DATA_SETS = {"clinc150": "CLINC150", "icd10cm": "ICD-10-CM", "arxiv": "arXiv", "job-titles": "job titles"}
"""Folders of the ladder's results, and what the plots call their data."""
GROWING = {
    "CLINC150": ("clinc150", "full/clinc150", "full/clinc150-larger-batches"),
    "ICD-10-CM": ("icd10cm", "full/icd10cm", "full/icd10cm-larger-batches"),
    "arXiv": ("arxiv", "arxiv-10000", "arxiv-all"),
    "job titles": ("job-titles", "full/job-titles", "full/job-titles-batches-of-16"),
}
"""Data sets with results at several sizes, and their folders: of two that have a row at a size, the last one counts."""
LINES = {
    "default": ("default", OURS, "o-"),
    "head": ("head on the encoder as it comes", OURS, "^:"),
    "flat-cls": ("flat, first token", "#8a8a8a", "o-"),
    "tfidf": ("TF-IDF + logistic regression", "#8a8a8a", "s:"),
}
"""Systems in the plot of sizes: name, colour, marker and line."""


def growth(results: dict[str, list[dict[str, Any]]]) -> pyplot.Figure:
    """Draw test Macro-F1, tuned, against the number of training documents; each size with its own length and epochs."""
    figure, panels = grid(len(results), height=3.2)
    for axes, (name, parts) in zip(panels, results.items(), strict=True):
        sizes = set()
        for key, (title, colour, look) in LINES.items():
            points = {
                point["documents"]: point["scores"]["tuned"]["macro"]
                for part in parts
                for point in part["points"].get(key, ())
            }
            documents = sorted(points)
            sizes.update(documents)
            means = [points[number]["mean"] for number in documents]
            spread = [points[number]["sd"] or 0.0 for number in documents]
            axes.errorbar(documents, means, yerr=spread, fmt=look, color=colour, markersize=5, label=title)
        axes.set(xscale="log", ylim=(0, 100), xlabel="training documents", ylabel="test Macro-F1, decisions tuned")
        axes.set_title(name, loc="left")
        axes.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)])
        axes.minorticks_off()
    handles, titles = panels[0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.legend(handles, titles, loc="upper center", ncols=len(LINES), frameon=False)
    return figure


PLOTS = {
    "training-speed": training,
    "prediction-speed": prediction,
    "label-scaling": label_side,
    "bulk-prediction": bulk,
}


def main() -> None:
    """Draw a plot for every result that is there."""
    parser = arguments_of(__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder that bench.py wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder for the pictures")
    arguments = parser.parse_args()
    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "hgclr", "axes.spines.top": False, "axes.spines.right": False})
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        file = arguments.results / f"{name}.json"
        if not file.is_file():
            print(f"{file} is not there: no plot of it")
            continue
        save(draw(read(file)), arguments.output / f"{name}.svg")
    curves = {title: arguments.results / name / "curves.json" for name, title in DATA_SETS.items()}
    if there := {title: read(file) for title, file in curves.items() if file.is_file()}:
        save(ladder(there), arguments.output / "ladder.svg")
    sizes = {
        title: [read(file) for name in names if (file := arguments.results / name / "curves.json").is_file()]
        for title, names in GROWING.items()
    }
    if there := {title: parts for title, parts in sizes.items() if parts}:
        save(growth(there), arguments.output / "documents.svg")


def read(file: Path) -> dict[str, Any]:
    """Return a result."""
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def save(figure: pyplot.Figure, file: Path) -> None:
    """Write a plot; the same result gives the same file."""
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
