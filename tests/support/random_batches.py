"""Random label trees and random decisions about them; label sets by loops, to compare with."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy
from support.decision_cases import forests, path

Matrix = NDArray[np.bool_]
FAST = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Taxonomy, Matrix, Matrix]:
    taxonomy = draw(forests())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(0, 9)), len(taxonomy))
    # A rate per label, often 0, leaves labels without any gold or any prediction.
    rates = random.choice([0.0, 0.2, 0.6, 1.0], size=(2, shape[1]))
    return taxonomy, random.random(shape) < rates[0], random.random(shape) < rates[1]


def sets(matrix: Matrix) -> list[set[int]]:
    return [{label for label, present in enumerate(row) if present} for row in matrix.tolist()]


def with_ancestors(taxonomy: Taxonomy, labels: set[int]) -> set[int]:
    return {above for label in labels for above in path(taxonomy, label)}


def closed_matrix(taxonomy: Taxonomy, matrix: Matrix) -> Matrix:
    closed = np.zeros_like(matrix)
    for row, labels in enumerate(sets(matrix)):
        closed[row, list(with_ancestors(taxonomy, labels))] = True
    return closed


@st.composite
def probability_batches(draw: st.DrawFn) -> tuple[Taxonomy, NDArray[np.float32], Matrix]:
    """Probabilities that are often equal, of up to 9 documents, some of which have no gold label."""
    taxonomy, _, gold = draw(batches())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = draw(st.sampled_from([1, 3, 1000]))
    return taxonomy, (random.integers(0, steps + 1, gold.shape) / steps).astype(np.float32), gold


def lowered(taxonomy: Taxonomy, probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """No label more probable than the least probable of its ancestors."""
    columns = [probabilities[:, path(taxonomy, label)].min(axis=1) for label in range(len(taxonomy))]
    return np.stack(columns, axis=1)
