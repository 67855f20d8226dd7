"""How often each document is in each resample of a bootstrap, from the document's number alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["PoissonWeights"]

DRAWS = 16
"""16-bit numbers in one step of the Philox generator's counter, which gives 256 bits."""
VALUES = 2**16
"""How many values such a number has."""


def _limits() -> NDArray[np.uint16]:
    """Return for w = 1, 2, … the first number that stands for a weight of at least w: VALUES · P(weight < w)."""
    limits = []
    below = math.exp(-1)
    weight = 1
    while (limit := round(VALUES * below)) < VALUES:
        limits.append(limit)
        below += math.exp(-1) / math.factorial(weight)
        weight += 1
    return np.array(limits, dtype=np.uint16)


class PoissonWeights:
    """Draw the weights of documents in B resamples: independent Poisson numbers with mean 1, to 16 bits.

    A bootstrap draws N documents with replacement, which gives each a Binomial(N, 1/N) weight and needs N beforehand;
    Poisson(1) is its limit and needs no N. The weights of document ``i`` come from its own stretch of a counter-based
    generator: they depend on the seed, on B and on ``i``, and on nothing else, so that two models that are scored on
    the same documents get the same resamples, in whatever batches.

    Args:
        resamples: B.
        seed: chooses the resamples.

    Raises:
        ValueError: if there is no resample or the seed is negative.
    """

    def __init__(self, resamples: int, seed: int) -> None:
        if resamples < 1 or seed < 0:
            raise ValueError(f"expected at least one resample and a seed from 0, got {resamples} and {seed}")
        self.resamples, self.seed = resamples, seed
        self._steps = -(-resamples // DRAWS)
        self._limits = _limits()

    def of(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return the weights of the documents ``first`` to ``first + count - 1``, shape (count, B)."""
        generator = np.random.Philox(self.seed, counter=first * self._steps)
        numbers = generator.random_raw(count * self._steps * 4).astype("<u8", copy=False).view("<u2")
        numbers = numbers.reshape(count, self._steps * DRAWS)[:, : self.resamples]
        weights = np.zeros(numbers.shape, dtype=np.uint8)
        for limit in self._limits:
            weights += numbers >= limit
        return weights
