"""Drift: predictions on new texts compared with predictions on a split of the data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hgclr.errors import InputError
from hgclr.inference.classifier import Prediction
from hgclr.presentation import COLOURS, MUTED, PALE, draw, excerpt, legend_above
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNIFICANT = 0.05
"""Probability that chance alone makes any of the tests significant."""
DRAWN = 20
"""Maximum number of labels in the plot."""
RATES = {"unlabelled": "no label", "abstained": "some label abstained", "truncated": "text longer than the model reads"}


@dataclass
class Observed:
    """Counts over the predictions for some texts.

    Args:
        texts: number of texts.
        labels: number of texts with each label, by id.
        rates: number of texts by the keys of :data:`RATES`.
        confidences: for each text with a label, the mean probability of its predicted labels.
    """

    texts: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    rates: Counter[str] = field(default_factory=Counter)
    confidences: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, predictions: Iterable[Prediction], progress: Callable[[int], None] | None = None) -> Observed:
        """Count predictions; ``progress`` is called with 1 for each."""
        found = cls()
        for each in predictions:
            found.texts += 1
            if progress is not None:
                progress(1)
            found.labels.update(label.id for label in each.labels)
            flags = (not each.labels, bool(each.abstained), each.truncated)
            found.rates.update(name for name, flag in zip(RATES, flags, strict=True) if flag)
            if each.labels:
                found.confidences.append(math.fsum(label.probability for label in each.labels) / len(each.labels))
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """A share, or the mean confidence, before and now.

    ``p_value`` is corrected for the number of tests, see :func:`compare_predictions`. ``path`` is that of a label.
    """

    name: str
    before: float
    now: float
    p_value: float
    path: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        return self.now - self.before

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT


@dataclass(frozen=True)
class Drift:
    """The changes between two sets of predictions.

    Args:
        before, now: numbers of texts.
        labels: the changes of the share of texts with each label, the significant ones first, by size.
        rates: the changes of the shares of :data:`RATES`.
        confidence: the change of the mean confidence.
    """

    before: int
    now: int
    labels: tuple[Change, ...]
    rates: tuple[Change, ...]
    confidence: Change

    @property
    def changed(self) -> tuple[Change, ...]:
        """The labels whose share changed significantly."""
        return tuple(change for change in self.labels if change.significant)

    def to_json(self) -> dict[str, Any]:
        def plain(change: Change) -> dict[str, Any]:
            values = {name: value for name, value in asdict(change).items() if name != "path" or value}
            return values | {"significant": change.significant}

        return {
            "kind": "hgclr drift",
            "version": 1,
            "texts": {"before": self.before, "now": self.now},
            "confidence": plain(self.confidence),
            "rates": [plain(change) for change in self.rates],
            "labels": [plain(change) for change in self.labels],
        }


def compare_predictions(taxonomy: Taxonomy, before: Observed, now: Observed) -> Drift:
    """Return the changes from ``before`` to ``now``.

    Shares are compared by Fisher's exact test, mean confidences by Welch's test in its normal approximation. Labels
    without a prediction on both sides are not tested. P-values are corrected by Holm's method, so that the probability
    of any false alarm is at most :data:`SIGNIFICANT`, however the tests depend on each other.

    Raises:
        InputError: if one side has no text.
    """
    if not before.texts or not now.texts:
        raise InputError("there is no text to compare", remedy="give files with texts")
    paths = {id_: taxonomy.path_names(label) for label, id_ in enumerate(taxonomy.ids)}
    tested = [id_ for id_ in taxonomy.ids if before.labels[id_] or now.labels[id_]]
    pairs = [(before.labels[id_], now.labels[id_]) for id_ in tested]
    pairs += [(before.rates[name], now.rates[name]) for name in RATES]
    *corrected, last = holm([*fisher(pairs, before.texts, now.texts), welch(before.confidences, now.confidences)])
    changes = [
        Change(name, first / before.texts, second / now.texts, p_value, paths.get(name, ()))
        for name, (first, second), p_value in zip([*tested, *RATES], pairs, corrected, strict=True)
    ]
    labels = sorted(changes[: len(tested)], key=lambda each: (not each.significant, -abs(each.difference), each.path))
    means = [math.fsum(side.confidences) / max(1, len(side.confidences)) for side in (before, now)]
    confidence = Change("confidence", means[0], means[1], last)
    return Drift(before.texts, now.texts, tuple(labels), tuple(changes[len(tested) :]), confidence)


def fisher(pairs: Iterable[tuple[int, int]], first: int, second: int) -> list[float]:
    """Return the p-values of Fisher's exact test, two-sided, for pairs of counts of ``first`` and ``second`` texts.

    Given their sum s, the first count is hypergeometric; the p-value is the probability of all counts that are not more
    probable than the given one.
    """
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, first + second + 1)))])  # of factorials

    def choose(n: int, k: Any) -> Any:
        return logs[n] - logs[k] - logs[n - k]

    values = []
    for count, other in pairs:
        total = count + other
        counts = np.arange(max(0, total - second), min(first, total) + 1)
        chances = np.exp(choose(first, counts) + choose(second, total - counts) - choose(first + second, total))
        given = chances[count - counts[0]]
        values.append(min(1.0, float(chances[chances <= given * (1 + 1e-7)].sum())))
    return values


def welch(first: list[float], second: list[float]) -> float:
    """Return the two-sided p-value of a difference of means; 1 if a side has fewer than two values."""
    if min(len(first), len(second)) < 2:
        return 1.0
    error = math.sqrt(sum(float(np.var(side, ddof=1)) / len(side) for side in (first, second)))
    difference = abs(float(np.mean(first) - np.mean(second)))
    if error == 0:
        return float(difference == 0)
    return math.erfc(difference / error / math.sqrt(2))


def holm(p_values: list[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's method."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def drift_plot(drift: Drift) -> bytes:
    """Return a plot of the shares before and now, as SVG: of the changed labels, or else of the largest differences."""
    shown = (drift.changed or drift.labels)[:DRAWN][::-1]

    def fill(figure: Figure) -> str:
        axes = figure.subplots()
        for row, change in enumerate(shown):
            ends = 100 * change.before, 100 * change.now
            axes.plot(ends, (row, row), color=PALE, linewidth=2, zorder=1)
            for value, colour, name in zip(ends, (MUTED, COLOURS[1]), ("before", "now"), strict=True):
                label = name if row == 0 else None
                axes.scatter(value, row, color=colour, s=22, zorder=2, label=label, clip_on=False)
        axes.set_yticks(range(len(shown)), [excerpt(" > ".join(change.path[-2:]), 50) for change in shown])
        axes.set_xlabel("share of texts with the label, %")
        axes.set_xlim(left=0)
        axes.grid(axis="x")
        axes.set_title("Labels that changed significantly" if drift.changed else "No label changed significantly")
        legend_above(axes, 2)
        listed = ", ".join(f"{change.path[-1]} {change.before:.1%} to {change.now:.1%}" for change in shown[::-1][:5])
        return f"Shares of predicted labels before and now: {listed}"

    return draw("drift", fill, (9.3, 1.2 + 0.28 * len(shown))).svg
