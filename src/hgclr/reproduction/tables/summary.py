"""What a table holds: rows with mean and standard deviation over the seeds, beside the paper's figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AVERAGES", "Line", "Spread", "Summary"]

AVERAGES = ("micro", "macro")


@dataclass(frozen=True)
class Spread:
    """Values of several runs, their mean and their standard deviation (of a sample: n - 1), which one run has not."""

    values: list[float]
    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Sum up values; None if there are none."""
        if not values:
            return None
        return cls(list(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Line:
    """A row of the table; scores are in percent, by ``micro`` and ``macro``.

    Args:
        key: the row's key.
        title: what the table calls it.
        paper: the paper's F1.
        ours: ours on the split that the table shows, where a label is given from a probability of one half.
        difference: mean of ours minus the paper's.
        paper_gain: the paper's F1 minus that of its base row.
        gain: ours minus that of the base row, seed by seed.
        tuned: ours with decisions tuned on dev (of dev itself, on the halves that were not tuned on).
        tuned_gain: that minus that of the base row, seed by seed.
        seconds: of training; runs that were killed and went on are left out.
        kept: share of tokens in positive samples.
        refused: why it could not be run, by seed.
        runs: each seed's scores on dev and test, seconds, recipe, machine (place in the summary's ``machines``).
        settings: all settings of its first run but the seed.
        documents, labels: sizes.
    """

    key: str
    title: str
    paper: dict[str, float] | None
    ours: dict[str, Spread] | None
    difference: dict[str, float] | None
    paper_gain: dict[str, float] | None
    gain: dict[str, Spread] | None
    tuned: dict[str, Spread] | None
    tuned_gain: dict[str, Spread] | None
    seconds: Spread | None
    kept: Spread | None
    refused: dict[int, str]
    runs: list[dict[str, Any]]
    settings: dict[str, Any] | None
    documents: dict[str, int] | None
    labels: int | None


@dataclass(frozen=True)
class Summary:
    """A table, ready to be written."""

    name: str
    title: str
    setting: str
    split: str
    corpus: str
    base: str
    seeds: list[int]
    lines: list[Line]
    notes: list[str]
    machines: list[dict[str, Any]]
    command: str

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; the lines are called ``rows``, as on the command line."""
        content = asdict(self)
        return {"rows" if name == "lines" else name: value for name, value in content.items()}
