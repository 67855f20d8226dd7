"""Draw the plots of docs/images from benchmark results and from results of ``hgclr reproduce curves``.

python benchmarks/plots.py --results benchmarks/results --output docs/images
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes

from hgclr.paper.regime import draw_epochs
from measuring import arguments_of

OURS, BASELINE, LIGHT = "#00796b", "#757575", "#b8b8b8"
"""Colours: hgclr, other systems, and fills and limits."""

STYLE = {
    "svg.hashsalt": "hgclr",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "errorbar.capsize": 2,
}


def bars(axes: Axes, rates: dict[str, dict[str, float]], ratios: dict[str, float], title: str, unit: str) -> None:
    """Draw a bar for each contender, with its range and its ratio to the first contender."""
    names = list(rates)
    for place, name in enumerate(names):
        rate = rates[name]
        sides = [[rate["median"] - rate["lowest"]], [rate["highest"] - rate["median"]]]
        axes.barh(place, rate["median"], xerr=sides, color=OURS if name.startswith("ours") else LIGHT, ecolor="#444444")
        text = f"{rate['median']:.3g}" + (f"  ({ratios[name]:.1f} x)" if place else "")
        axes.text(rate["highest"] * 1.01, place, " " + text, va="center", fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(rate["highest"] for rate in rates.values()) * 1.3)
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left")


def version(result: dict[str, Any]) -> str:
    """Return the version of hgclr that a result was measured with."""
    return str(result["machine"]["packages"]["hgclr"]).removesuffix(".dev0")


def training(result: dict[str, Any]) -> pyplot.Figure:
    """Draw training speed, in documents per CPU second."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    rates, ratios = result["documents_per_cpu_second"], result["ratio_to_published_style"]
    bars(axes, rates, ratios, f"Training on abstracts, batch 12, hgclr {version(result)}", "documents per CPU second")
    return figure


def prediction(result: dict[str, Any]) -> pyplot.Figure:
    """Draw prediction speed, in documents per second. The pipeline is shown at its best batch size."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    wanted = {
        name: rate
        for name, rate in result["documents_per_second"].items()
        if not name.startswith("pipeline") or name == result["best_pipeline"]
    }
    ratios = {name: ratio["median"] for name, ratio in result["ratio_to_published_style"].items()}
    bars(axes, wanted, ratios, f"Prediction of abstracts, hgclr {version(result)}", "documents per second")
    return figure


def label_side(result: dict[str, Any]) -> pyplot.Figure:
    """Draw the time and memory of a training step against the number of labels."""
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(9, 3.2))
    trees = result["trees"]
    labels = [tree["labels"] for tree in trees]
    time.plot(labels, [tree["ratio"]["median"] for tree in trees], "o-", color=OURS)
    time.axhline(3, color=LIGHT, linestyle="--")
    time.text(labels[0], 3.1, "goal at 31,000 labels: 3 x", va="bottom", fontsize=9, color=BASELINE)
    time.set(title="time, relative to 160 labels", yscale="log", yticks=[1, 2, 3, 5, 10])
    time.yaxis.set_major_formatter("{x:.0f}")
    time.yaxis.set_minor_formatter("")
    memory.plot(labels, [tree["bytes_beyond_encoder"] / 1e9 for tree in trees], "o-", color=OURS)
    memory.axhline(8, color=LIGHT, linestyle="--")
    memory.text(labels[0], 7.8, "goal at 31,000 labels: 8 GB", va="top", fontsize=9, color=BASELINE)
    memory.set(title="memory beyond the encoder, GB", ylim=(0, 8.5))
    for axes in (time, memory):
        axes.set(xscale="log", xlabel="labels")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.minorticks_off()
    figure.suptitle(f"Training step of HGCLR, hgclr {version(result)}", weight="bold")
    figure.tight_layout()
    return figure


def bulk(result: dict[str, Any]) -> pyplot.Figure:
    """Draw the memory of a process that labels a stream of short texts."""
    figure, axes = pyplot.subplots(figsize=(7, 2.6))
    for name, colour in (("torch fp32", BASELINE), ("onnx int8", OURS)):
        done, held = zip(*result[name]["bytes"]["by_texts"], strict=True)
        axes.plot(done, [value / 1e6 for value in held], color=colour, label=name)
    axes.set(xlabel="texts labelled", ylim=(0, None))
    axes.set_title(f"Memory while predicting, MB, hgclr {version(result)}", loc="left")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False)
    return figure


EFFORTS = {"names": "names", "head": "head", "default": "full"}
"""Row of a result, and the effort that it shows."""
BASELINES = {
    "tfidf": ("TF-IDF + logistic regression", "s", "full"),
    "flat": ("flat, the encoder's pooling", "D", "full"),
    "flat-cls": ("flat, first token", "o", "full"),
    "flat-cls-long": ("flat, first token, twice the epochs", "o", "none"),
}
"""Row of a result: name, marker and fill of its point."""
ACROSS = 2
"""Panels per row."""


def grid(count: int, height: float) -> tuple[pyplot.Figure, list[Axes]]:
    """Return a figure with ``count`` panels, each ``height`` inches high."""
    rows = -(-count // ACROSS)
    figure, panels = pyplot.subplots(rows, ACROSS, figsize=(4.8 * ACROSS, height * rows), squeeze=False)
    for axes in panels.flat[count:]:
        axes.remove()
    return figure, list(panels.flat[:count])


def add_legend(figure: pyplot.Figure, axes: Axes, columns: int) -> None:
    """Put one legend above all panels."""
    handles, titles = axes.get_legend_handles_labels()
    lines = -(-len(titles) // columns)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.035 * lines), h_pad=1.5, w_pad=2)
    figure.legend(handles, titles, loc="upper center", ncols=columns, frameon=False)


def fit_range(axes: Axes, lows: list[float], highs: list[float]) -> None:
    """Let the vertical axis begin and end near the data, at multiples of five."""
    margin = 0.06 * (max(highs) - min(lows))
    bottom = max(0.0, 5 * math.floor((min(lows) - margin) / 5))
    axes.set_ylim(bottom, min(102.0, 5 * math.ceil((max(highs) + 2 * margin) / 5)))


def effort(curves: dict[str, dict[str, Any]]) -> pyplot.Figure:
    """Draw test Macro-F1 against training time at the smallest size of every data set; a line joins the efforts.

    Time is CPU time where all systems of a data set have it, and wall-clock time elsewhere, of the fastest seed.
    """
    figure, panels = grid(len(curves), height=3.4)
    for axes, (name, result) in zip(panels, curves.items(), strict=True):
        smallest = {key: points[0] for key, points in result["points"].items() if points}
        timed = [point for point in smallest.values() if point["seconds"] is not None]
        time = "cpu_seconds" if all(point.get("cpu_seconds") is not None for point in timed) else "seconds"
        found = {
            key: (min(point[time]["values"]), scores["mean"], scores["sd"] or 0.0)
            for key, point in smallest.items()
            if (scores := point["scores"]["tuned"].get("macro")) is not None and point[time] is not None
        }
        ours = [found[key] for key in EFFORTS if key in found]
        seconds, means, spreads = zip(*ours, strict=True)
        axes.errorbar(
            seconds, means, yerr=spreads, fmt="o-", color=OURS, markersize=7, label="effort names, head, full"
        )
        for (key, title), point in zip(EFFORTS.items(), ours, strict=True):
            side = {"names": (8, -5), "head": (-6, 9), "default": (-4, 9)}[key]
            axes.annotate(title, point[:2], xytext=side, textcoords="offset points", color=OURS, weight="bold")
        for key, (title, marker, fill) in BASELINES.items():
            if key in found:
                axes.errorbar(
                    *found[key][:2],
                    yerr=found[key][2],
                    fmt=marker,
                    fillstyle=fill,
                    color=BASELINE,
                    markersize=7,
                    label=title,
                )
        shown = [found[key] for key in (*EFFORTS, *BASELINES) if key in found]
        fit_range(axes, [mean - sd for _, mean, sd in shown], [mean + sd for _, mean, sd in shown])
        documents = next(point["documents"] for point in smallest.values())
        axes.set_title(f"{name}, {documents:,} documents", loc="left")
        kind = "CPU seconds" if time == "cpu_seconds" else "seconds on the clock"
        axes.set(xscale="log", xlabel=f"training time, {kind}", ylabel="test Macro-F1")
        axes.set_xticks([1, 3, 10, 30, 100, 300, 1000], ["1", "3", "10", "30", "100", "300", "1,000"])
        axes.minorticks_off()
        axes.set_xlim(0.7 * min(second for second, _, _ in shown), 1.6 * max(second for second, _, _ in shown))
    add_legend(figure, panels[0], columns=3)
    return figure


DATA_SETS = {"clinc150": "CLINC150", "icd10cm": "ICD-10-CM", "arxiv": "arXiv", "job-titles": "job titles"}
"""Folders of results with few documents, and the names of their data sets."""
GROWING = {
    "CLINC150": ("clinc150", "full/clinc150", "full/clinc150-larger-batches"),
    "ICD-10-CM": ("icd10cm", "full/icd10cm", "full/icd10cm-larger-batches"),
    "arXiv": ("arxiv", "arxiv-10000", "arxiv-all"),
    "job titles": ("job-titles", "full/job-titles", "full/job-titles-batches-of-16"),
}
"""Data sets with results at several sizes, and their folders. If two folders have a row at a size, the last counts."""
LINES = {
    "default": ("default", OURS, "o-"),
    "head": ("effort head", OURS, "^:"),
    "flat-cls": ("flat, first token", BASELINE, "o-"),
    "tfidf": ("TF-IDF + logistic regression", BASELINE, "s:"),
}
"""Row of a result: name, colour, marker and line of its curve."""


def documents(results: dict[str, list[dict[str, Any]]]) -> pyplot.Figure:
    """Draw test Macro-F1 against the number of training documents, and print the gain of the default at each size."""
    figure, panels = grid(len(results), height=3.4)
    for axes, (name, parts) in zip(panels, results.items(), strict=True):
        curves = {
            key: {
                point["documents"]: point["scores"]["tuned"]["macro"]
                for part in parts
                for point in part["points"].get(key, ())
            }
            for key in LINES
        }
        for key, (title, colour, style) in LINES.items():
            sizes = sorted(curves[key])
            means = [curves[key][size]["mean"] for size in sizes]
            spread = [curves[key][size]["sd"] or 0.0 for size in sizes]
            axes.errorbar(sizes, means, yerr=spread, fmt=style, color=colour, markersize=6, label=title)
        for size, score in curves["default"].items():
            if size in curves["flat-cls"]:
                gain = score["mean"] - curves["flat-cls"][size]["mean"]
                place = (size, max(curve[size]["mean"] + (curve[size]["sd"] or 0.0) for curve in curves.values()))
                axes.annotate(
                    f"{gain:+.1f}",
                    place,
                    xytext=(0, 6),
                    textcoords="offset points",
                    ha="center",
                    color=OURS,
                    weight="bold",
                )
        shown = [score for curve in curves.values() for score in curve.values()]
        fit_range(
            axes,
            [score["mean"] - (score["sd"] or 0.0) for score in shown],
            [score["mean"] + (score["sd"] or 0.0) for score in shown],
        )
        axes.set(xscale="log", xlabel="training documents", ylabel="test Macro-F1")
        axes.set_title(name, loc="left")
        sizes = sorted({size for curve in curves.values() for size in curve})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xlim(0.6 * sizes[0], 1.6 * sizes[-1])
        axes.minorticks_off()
    add_legend(figure, panels[0], columns=len(LINES))
    return figure


POOLS = {"CLINC150": ("clinc150", (0, 300)), "arXiv": ("arxiv", (0, 300))}
"""Data sets with runs on unlabelled texts: their folder of learning curves, and numbers of labelled documents."""


def unlabelled(folder: Path, growing: dict[str, list[dict[str, Any]]]) -> pyplot.Figure | None:
    """Draw test Macro-F1 against labelled documents, without and with unlabelled texts; no label is at the left."""
    found = {
        name: {size: read(file) for size in sizes if (file := folder / f"{stem}-{size}.json").is_file()}
        for name, (stem, sizes) in POOLS.items()
    }
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        return None
    figure, panels = grid(len(found), height=3.4)
    none = 60  # place of 0 on the logarithmic axis
    for axes, (name, runs) in zip(panels, found.items(), strict=True):
        curve = {
            point["documents"]: point["scores"]["tuned"]["macro"]["mean"]
            for part in growing[name]
            for point in part["points"].get("default", ())
        }
        curve |= {size or none: run["summary"]["macro, without the pool"]["mean"] for size, run in runs.items()}
        sizes = sorted(curve)
        axes.plot(sizes, [curve[size] for size in sizes], "o-", color=BASELINE, label="labelled documents only")
        points = {size or none: run["summary"]["macro, with the pool"] for size, run in runs.items()}
        axes.errorbar(
            list(points),
            [score["mean"] for score in points.values()],
            yerr=[score["sd"] for score in points.values()],
            fmt="D",
            color=OURS,
            markersize=8,
            label="with unlabelled texts",
        )
        for place, score in points.items():
            text = f"{score['mean'] - curve[place]:+.1f}"
            axes.annotate(
                text, (place, score["mean"]), xytext=(0, 10), textcoords="offset points", ha="center", color=OURS
            )
        values = [*curve.values(), *(score["mean"] for score in points.values())]
        fit_range(axes, values, values)
        axes.set(xscale="log", xlabel="labelled documents", ylabel="test Macro-F1")
        axes.set_xticks(sizes, ["none" if size == none else f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_title(name, loc="left")
    add_legend(figure, panels[0], columns=2)
    return figure


REGIMES = {"arXiv, 1,192 documents": "arxiv", "arXiv mini, 998 documents": "arxiv_mini"}
"""Titles and folders of results of ``hgclr reproduce regime``."""


def regime(results: dict[str, dict[str, Any]]) -> pyplot.Figure:
    """Draw dev Macro-F1 against epochs for the arms of ``hgclr reproduce regime``."""
    figure, panels = grid(len(results), height=3.8)
    for axes, (name, result) in zip(panels, results.items(), strict=True):
        epochs = result["dev_macro_f1"]
        titles = {row["key"]: row["title"] for row in result["rows"]}
        draw_epochs(axes, epochs, {arm: f"{titles[arm]} (seeds: {len(runs)})" for arm, runs in epochs.items()})
        axes.set_ylabel("dev Macro-F1 at 0.5")
        axes.set_title(name, loc="left")
        axes.legend(loc="lower right", fontsize=9, frameon=False)
    figure.tight_layout()
    return figure


PLOTS = {
    "training-speed": training,
    "prediction-speed": prediction,
    "label-scaling": label_side,
    "bulk-prediction": bulk,
}


def main() -> None:
    """Draw a plot for every result in the folder."""
    parser = arguments_of(__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder with results")
    parser.add_argument("--output", type=Path, required=True, help="folder for the SVG files")
    arguments = parser.parse_args()
    mpl.use("agg")
    mpl.rcParams.update(STYLE)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        file = arguments.results / f"{name}.json"
        if not file.is_file():
            print(f"skipped: {file} does not exist")
            continue
        save(draw(read(file)), arguments.output / f"{name}.svg")
    curves = {title: arguments.results / name / "curves.json" for name, title in DATA_SETS.items()}
    if there := {title: read(file) for title, file in curves.items() if file.is_file()}:
        save(effort(there), arguments.output / "effort.svg")
    sizes = {
        title: [read(file) for name in names if (file := arguments.results / name / "curves.json").is_file()]
        for title, names in GROWING.items()
    }
    if there := {title: parts for title, parts in sizes.items() if parts}:
        save(documents(there), arguments.output / "documents.svg")
    arms = {title: arguments.results / "regime" / name / "regime.json" for title, name in REGIMES.items()}
    if there := {title: read(file) for title, file in arms.items() if file.is_file()}:
        save(regime(there), arguments.output / "regime.svg")
    if (figure := unlabelled(arguments.results / "unlabelled", sizes)) is not None:
        save(figure, arguments.output / "unlabelled.svg")


def read(file: Path) -> dict[str, Any]:
    """Return a result file."""
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def save(figure: pyplot.Figure, file: Path) -> None:
    """Write a plot. The same result gives the same file."""
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
