"""The order of the labels of a prediction, and trees too large for a table of paths."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.inference import classifier as predictions
from hgclr.inference.classifier import PredictionMaker, reading_order
from hgclr.taxonomy import Taxonomy

NAMES = ["a", "b", "c", "aa", "Z", "é", *map(str, range(9))]


@st.composite
def taxonomies(draw: st.DrawFn) -> Taxonomy:
    """A forest in shuffled order whose names repeat, though not among siblings."""
    size = draw(st.integers(1, 14))
    above = [draw(st.integers(-1, label - 1)) for label in range(size)]
    place = draw(st.permutations(range(size)))
    parents, names = [-1] * size, [""] * size
    taken: set[tuple[int, str]] = set()
    for label, parent in enumerate(above):
        free = [name for name in NAMES if (parent, name) not in taken]
        name = draw(st.sampled_from(free))
        taken.add((parent, name))
        parents[place[label]], names[place[label]] = -1 if parent < 0 else place[parent], name
    return Taxonomy([f"id {label}" for label in range(size)], parents, names)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(taxonomies(), st.randoms(use_true_random=False))
def test_labels_are_sorted_by_their_paths_of_names(taxonomy: Taxonomy, random) -> None:
    paths = [tuple(taxonomy.names[node] for node in taxonomy.path(label)) for label in range(len(taxonomy))]
    places = reading_order(taxonomy)
    assert sorted(range(len(taxonomy)), key=places.__getitem__) == sorted(range(len(taxonomy)), key=paths.__getitem__)
    given_labels = np.array([random.random() < 0.5 for _ in paths])
    probabilities = np.array([random.random() for _ in paths], dtype=np.float32)
    prediction = PredictionMaker(taxonomy)(probabilities, given_labels, ~given_labels)
    chosen = np.flatnonzero(given_labels)
    expected = sorted((paths[label], taxonomy.ids[label], float(probabilities[label])) for label in chosen)
    assert [(label.path, label.id, label.probability) for label in prediction.labels] == expected
    assert {label.id for label in prediction.abstained} == set(taxonomy.ids) - {label.id for label in prediction.labels}


@pytest.mark.slow
def test_a_deep_tree_needs_no_table_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "NAMES_KEPT", 5000)
    depth, labels = 1000, 10_000
    taxonomy = Taxonomy([f"label {i}" for i in range(labels)], [i - 1 if i % depth else -1 for i in range(labels)])
    given_labels, probabilities = np.zeros(labels, dtype=bool), np.zeros(labels, dtype=np.float32)
    tracemalloc.start()
    make = PredictionMaker(taxonomy)
    for label in range(0, labels, 4):  # their paths have 1.25 million names, 10 MB; those of all labels 40 MB
        given_labels[:] = False
        given_labels[label] = True
        (only,) = make(probabilities, given_labels).labels
        assert only.path[-1] == only.id == taxonomy.ids[label]
        assert len(only.path) == label % depth + 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6


def test_forgotten_paths_are_found_again(taxonomy, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, probabilities = np.ones(len(taxonomy), dtype=bool), np.arange(len(taxonomy), dtype=np.float32)
    expected = PredictionMaker(taxonomy)(probabilities, everything)
    monkeypatch.setattr(predictions, "NAMES_KEPT", 4)  # one path of three names
    assert PredictionMaker(taxonomy)(probabilities, everything) == expected


def test_a_maker_can_be_copied_and_pickled(taxonomy) -> None:
    make = PredictionMaker(taxonomy)
    arguments = np.linspace(0, 1, len(taxonomy), dtype=np.float32), np.ones(len(taxonomy), dtype=bool)
    for other in (copy.deepcopy(make), pickle.loads(pickle.dumps(make))):
        assert other(*arguments) == make(*arguments)
