"""Counts of whole numbers: exact means and quantiles of any number of values in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil, floor

__all__ = ["Histogram"]


class Histogram:
    """How often each whole number was seen; memory grows with different numbers, not with values.

    Args:
        values: the first values to count.

    Example:
        >>> Histogram([1, 2, 2, 9]).quantile(0.5)
        2.0
    """

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.counts = Counter(values)

    def add(self, value: int) -> None:
        """Count one value."""
        self.counts[value] += 1

    def update(self, values: Iterable[int]) -> None:
        """Count several values."""
        self.counts.update(values)

    def __add__(self, other: Histogram) -> Histogram:
        total = Histogram()
        total.counts = self.counts + other.counts
        return total

    @property
    def total(self) -> int:
        """How many values were counted."""
        return self.counts.total()

    @property
    def mean(self) -> float:
        """The mean, 0 if nothing was counted."""
        return sum(value * count for value, count in self.counts.items()) / (self.total or 1)

    @property
    def maximum(self) -> int:
        """The largest value, 0 if nothing was counted."""
        return max(self.counts, default=0)

    def quantile(self, share: float) -> float:
        """Return the value below which a share of all values lies; 0 if nothing was counted.

        Between two neighbours in the sorted values it is interpolated, as NumPy does by default:
        the value at place ``share * (total - 1)``, counted from 0.
        """
        if not self.counts:
            return 0.0
        place = share * (self.total - 1)
        low, high = self._at(floor(place)), self._at(ceil(place))
        return low + (high - low) * (place - floor(place))

    def above(self, limit: int) -> int:
        """Return how many values are greater than ``limit``."""
        return sum(count for value, count in self.counts.items() if value > limit)

    def share_above(self, limit: int) -> float:
        """Return which share of the values is greater than ``limit``, 0 if nothing was counted."""
        return self.above(limit) / (self.total or 1)

    def summary(self) -> dict[str, float]:
        """Return mean, median, 95th percentile and maximum."""
        return {"mean": self.mean, "median": self.quantile(0.5), "p95": self.quantile(0.95), "max": self.maximum}

    def to_json(self) -> dict[str, int]:
        """Return the counts by value, in order."""
        return {str(value): self.counts[value] for value in sorted(self.counts)}

    def _at(self, place: int) -> int:
        """Return the value at a place of the sorted values, counted from 0."""
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if seen > place:
                return value
        raise IndexError(f"no place {place} among {seen} values")
