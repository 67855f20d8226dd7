"""The plots of a report: reliability, risk and coverage, thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgclr.presentation import COLOURS, INK, MUTED, PALE, legend_above, render
from hgclr.presentation import PLOT_STYLE as STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIZE = (9.3, 3.8)
"""Inches: as wide as the page."""
FEW = 10
"""Pairs in a bin below which its frequency says little."""
Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture: the name of its files without the ending, their content, and what it shows, in words."""

    name: str
    png: bytes
    svg: bytes
    alt: str

    def files(self) -> dict[str, bytes]:
        return {f"{self.name}.png": self.png, f"{self.name}.svg": self.svg}


def draw_plots(content: Content) -> list[Plot]:
    """Draw every plot of a report; the same content gives the same bytes."""
    return [
        draw("reliability", lambda figure: _reliability(figure, content), (9.3, 4.8)),
        draw("risk-coverage", lambda figure: _risk_coverage(figure.subplots(), content)),
        draw("threshold-curve", lambda figure: _thresholds(figure.subplots(), content)),
    ]


def draw(name: str, fill: Callable[[Figure], str], size: tuple[float, float] = SIZE) -> Plot:
    """Return a plot that ``fill`` draws into an empty figure; ``fill`` returns a description of it in words."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        alt = fill(figure)
        return Plot(name, render(figure, "png"), render(figure, "svg"), alt)


def _reliability(figure: Figure, content: Content) -> str:
    """Draw how often labels are right by how probable they were said to be, and how many there are."""
    from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle=(0, (4, 4)), label="perfect")
    calibration = content["calibration"]
    levels = calibration["levels"]
    if 1 < len(levels) <= len(COLOURS):
        for level, colour in zip(levels, COLOURS, strict=False):
            name = f"level {level['depth']}"
            above.plot(*_points(level["bins"]), color=colour, linewidth=1.2, marker="o", markersize=3, label=name)
    above.plot(*_points(calibration["bins"]), color=INK, linewidth=2, marker="o", markersize=4.5, label="all labels")
    above.set(title="Do probabilities come true?", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    above.grid()
    legend_above(above, 8)
    bins = calibration["bins"]
    below.bar(
        [(part["lower"] + part["upper"]) / 2 for part in bins],
        [part["count"] for part in bins],
        width=0.92 / len(bins),
        color=PALE,
    )
    below.set(yscale="log", ylabel="pairs", xlabel="probability that the model gives a label")
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    below.yaxis.set_minor_locator(NullLocator())
    below.grid(axis="y")
    for axes in (above, below):
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    above.yaxis.set_major_formatter(PercentFormatter(1))
    figure.align_ylabels()
    points = ", ".join(f"{said:.0%}: {right:.0%}" for said, right in zip(*_points(bins), strict=True))
    return f"Line of the share of labels that are right over the probability that the model gave them. {points}"


def _points(bins: Sequence[Content]) -> tuple[list[float], list[float]]:
    """Return mean probability and frequency of the bins that have enough pairs."""
    filled = [part for part in bins if part["count"] >= FEW]
    return [part["mean_probability"] for part in filled], [part["frequency"] for part in filled]


def _risk_coverage(axes: Axes, content: Content) -> str:
    """Draw the share of wrong labels over the share of labels that are given, from the surest ones to all."""
    from matplotlib.ticker import PercentFormatter

    curve = content["risk_coverage"]
    coverage = [point["coverage"] for point in curve["points"]]
    risk = [point["risk"] for point in curve["points"]]
    axes.plot(coverage, risk, color=COLOURS[0], linewidth=2)
    axes.fill_between(coverage, risk, color=COLOURS[0], alpha=0.12, linewidth=0)
    top = max([*risk, 0.01]) * 1.15
    for chosen in curve["chosen"]:
        if chosen["abstain_below"] and chosen["coverage"] < 1 and chosen["risk"] <= top:
            place, text = (chosen["coverage"], chosen["risk"]), f"{chosen['abstain_below']:.0%} sure"
            axes.plot(*place, marker="o", markersize=5, color=COLOURS[1])
            axes.annotate(text, place, (-6, 6), textcoords="offset points", ha="right", fontsize=8)
    axes.set(
        title="What leaving out the unsure labels gains",
        xlabel="labels still given, of all that the decoding rule gives",
        ylabel="wrong ones among them",
        xlim=(0, 1),
        ylim=(0, top),
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None if top > 0.05 else 1))
    axes.grid()
    steps = "; ".join(
        f"at most {chosen['wanted_risk']:.0%} wrong with {chosen['coverage']:.0%} of the labels given"
        for chosen in curve["chosen"]
    )
    return f"Line of the share of wrong labels over the share of labels that are still given: {steps}"


def _thresholds(axes: Axes, content: Content) -> str:
    """Draw Micro- and Macro-F1 over one threshold for all labels, and what the model's own thresholds give."""
    curve, scores, own = content["threshold_curve"], content["scores"], content["decisions"]["thresholds"]
    thresholds = [point["threshold"] for point in curve]
    for key, name, value, colour in (
        ("micro_f1", "Micro-F1", scores["micro"]["f1"], COLOURS[0]),
        ("macro_f1", "Macro-F1", scores["macro"]["f1"], COLOURS[1]),
    ):
        values = [100 * point[key] for point in curve]
        axes.plot(thresholds, values, color=colour, linewidth=2, marker="o", markersize=3.5, label=name)
        if isinstance(own, float | int):
            axes.plot(own, 100 * value, color=colour, marker="D", markersize=7, markeredgecolor="white")
        else:
            axes.axhline(100 * value, color=colour, linewidth=1, linestyle=(0, (4, 3)))
    mark: Any = {"marker": "D", "linestyle": ""} if isinstance(own, float | int) else {"linestyle": (0, (4, 3))}
    axes.plot([], [], color=MUTED, label="as the model decides", **mark)
    axes.set(title="One threshold for all labels", xlabel="threshold", ylabel="F1", xlim=(0, 1))
    axes.margins(y=0.12)
    axes.grid()
    legend_above(axes, 3)
    best = {key: max(curve, key=lambda point: point[key]) for key in ("micro_f1", "macro_f1")}
    return (
        f"Lines of F1 over the threshold. Micro-F1 is best, {100 * best['micro_f1']['micro_f1']:.1f}, at"
        f" {best['micro_f1']['threshold']:.2f}, Macro-F1, {100 * best['macro_f1']['macro_f1']:.1f}, at"
        f" {best['macro_f1']['threshold']:.2f}"
    )
