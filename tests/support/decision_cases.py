"""Random forests and graphs, probabilities and thresholds, and every decoding rule written out for one document."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

REPEATABLE = settings(max_examples=60, deadline=None, derandomize=True)
DEEPEST = 6


@st.composite
def forests(draw: st.DrawFn) -> Taxonomy:
    """A forest of 1 to 14 labels of up to six levels, sometimes a chain, in shuffled order.

    Every second one is a graph: labels below the top may have up to two parents more, at any depth.
    """
    size, graph = draw(st.integers(1, 14)), draw(st.booleans())
    chain = draw(st.booleans())
    parents, depths = [], []
    for label in range(size):
        possible = [-1, *(above for above in range(label) if depths[above] < DEEPEST)]
        parent = possible[-1] if chain else draw(st.sampled_from(possible))
        parents.append(parent)
        depths.append(1 if parent < 0 else depths[parent] + 1)
    more: list[list[int]] = [[]]
    for label in range(1, size):
        others = sorted({*range(label)} - {parents[label]}) if graph and parents[label] >= 0 else []
        more.append(draw(st.lists(st.sampled_from(others), max_size=2, unique=True)) if others else [])
    place = draw(st.permutations(range(size)))
    shuffled = [-1] * size
    for label, parent in enumerate(parents):
        shuffled[place[label]] = -1 if parent < 0 else place[parent]
    further: list[list[int]] = [[] for _ in more]
    for label, others in enumerate(more):
        further[place[label]] = [place[other] for other in others]
    return Taxonomy([f"label {label}" for label in range(size)], shuffled, more_parents=further)


@dataclass
class Case:
    """A tree, probabilities (N, K) with many 0, 1 and ties, and one threshold or one for each label."""

    taxonomy: Taxonomy
    probabilities: NDArray[np.float32]
    thresholds: float | NDArray[np.float32]

    @property
    def per_label(self) -> list[float]:
        return np.broadcast_to(np.float32(self.thresholds), len(self.taxonomy)).tolist()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    taxonomy = draw(forests())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(0, 8)), len(taxonomy))
    steps = draw(st.sampled_from([1, 4, 1000]))
    probabilities = (random.integers(0, steps + 1, shape) / steps).astype(np.float32)
    if draw(st.booleans()):
        return Case(taxonomy, probabilities, draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])))
    return Case(taxonomy, probabilities, (random.integers(0, 21, len(taxonomy)) / 20).astype(np.float32))


def orphans(taxonomy: Taxonomy, chosen: NDArray[np.bool_]) -> int:
    above = [parents(taxonomy, label) for label in range(len(taxonomy))]
    return sum(
        row[k] and not all(row[parent] for parent in above[k]) for row in chosen.tolist() for k in range(len(row))
    )


def parents(taxonomy: Taxonomy, label: int) -> list[int]:
    return [parent for parent in (int(taxonomy.parents[label]), *taxonomy.more_parents[label]) if parent >= 0]


def paths(taxonomy: Taxonomy, label: int) -> list[list[int]]:
    """Every path of labels from the top down to one."""
    above = [path for parent in parents(taxonomy, label) for path in paths(taxonomy, parent)]
    return [[*path, label] for path in above or [[]]]


def path(taxonomy: Taxonomy, label: int) -> list[int]:
    """The labels on all paths from the top down to one."""
    return sorted({node for each in paths(taxonomy, label) for node in each})


def by_threshold(taxonomy: Taxonomy, row: list[float], thresholds: list[float]) -> set[int]:
    return {label for label in range(len(taxonomy)) if row[label] > thresholds[label]}


def by_closure(taxonomy: Taxonomy, row: list[float], thresholds: list[float]) -> set[int]:
    return {above for label in by_threshold(taxonomy, row, thresholds) for above in path(taxonomy, label)}


def by_dropping(taxonomy: Taxonomy, row: list[float], thresholds: list[float]) -> set[int]:
    above = by_threshold(taxonomy, row, thresholds)
    return {label for label in above if set(path(taxonomy, label)) <= above}


def log_odds(probability: float) -> float:
    inside = min(max(probability, 1e-7), 1 - 1e-7)
    return math.log(inside / (1 - inside))


def path_score(taxonomy: Taxonomy, row: list[float], thresholds: list[float], end: int) -> float:
    """The score of the best path to a label."""
    return max(
        sum(log_odds(row[label]) - log_odds(thresholds[label]) for label in each) for each in paths(taxonomy, end)
    )


def allowed_ends(taxonomy: Taxonomy, allow_inner_nodes: bool, taken: list[int]) -> list[int]:
    """The labels at which a further path may end: it begins none that is taken, and goes on from none."""
    return [
        end
        for end in range(len(taxonomy))
        if (allow_inner_nodes or not any(end in parents(taxonomy, other) for other in range(len(taxonomy))))
        and not any(end in path(taxonomy, other) or other in path(taxonomy, end) for other in taken)
    ]


LITERAL = {
    "threshold": by_threshold,
    "closure": by_closure,
    "drop-orphans": by_dropping,
}
