from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_fscore_support

from hgclr.metrics.scores import MultiLabelScores, by_frequency, frequency_bands, frequency_thirds
from hgclr.taxonomy import Taxonomy

COUNTS = st.lists(st.integers(0, 8), max_size=20)
FAST = settings(max_examples=200, deadline=None, derandomize=True)


@FAST
@given(COUNTS)
def test_groups_by_the_definition(counts: list[int]) -> None:
    seen = [count for count in counts if count]
    expected: dict[str, list[int]] = {"head": [], "middle": [], "tail": [], "unseen": []}
    for label, count in enumerate(counts):
        if not count:
            expected["unseen"].append(label)
            continue
        place = sum(other > count for other in seen) + Fraction(seen.count(count), 2)
        third = Fraction(len(seen), 3)
        expected["head" if place < third else "tail" if place > 2 * third else "middle"].append(label)
    assert {name: labels.tolist() for name, labels in frequency_thirds(counts).items()} == expected


@FAST
@given(COUNTS)
def test_every_label_is_in_one_group_and_equals_stay_together(counts: list[int]) -> None:
    groups = frequency_thirds(counts)
    assert sorted(label for labels in groups.values() for label in labels.tolist()) == list(range(len(counts)))
    frequencies = [{counts[label] for label in labels} for labels in groups.values()]
    assert sum(map(len, frequencies)) == len(set().union(*frequencies))
    in_order = [count for part in frequencies for count in sorted(part, reverse=True)]
    assert in_order == sorted(in_order, reverse=True)


@pytest.mark.parametrize(
    ("size", "sizes"), [(1, (0, 1, 0)), (2, (1, 0, 1)), (3, (1, 1, 1)), (7, (2, 3, 2)), (9, (3, 3, 3))]
)
def test_without_ties_the_groups_are_thirds(size: int, sizes: tuple[int, ...]) -> None:
    counts = np.random.default_rng(0).permutation(size) + 1
    groups = frequency_thirds(counts)
    assert tuple(len(groups[name]) for name in ("head", "middle", "tail")) == sizes


def test_no_label_and_no_difference() -> None:
    assert {name: len(labels) for name, labels in frequency_thirds([]).items()} == dict.fromkeys(
        ("head", "middle", "tail", "unseen"), 0
    )
    assert frequency_thirds([5] * 4)["middle"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("counts", [[[1, 2]], [0.5, 1.0], [3, -1], [True, False]])
def test_what_is_no_count_is_refused(counts: object) -> None:
    scores = MultiLabelScores(Taxonomy(["a", "b"], [-1, -1]))
    for refusing in (frequency_thirds, frequency_bands, lambda counts: by_frequency(scores, counts)):
        with pytest.raises(ValueError, match="expected the number of documents of each label, got"):
            refusing(counts)


@FAST
@given(st.lists(st.integers(0, 40), max_size=30))
def test_bands_by_the_definition(counts: list[int]) -> None:
    bands = {"unseen": range(1), "1-5": range(1, 6), "6-20": range(6, 21), "more than 20": range(21, 41)}
    assert {name: labels.tolist() for name, labels in frequency_bands(counts).items()} == {
        name: [label for label, count in enumerate(counts) if count in band] for name, band in bands.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_groups_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.permutation([0] * 9 + [1, 5, 3, 2, 4, 5] + [6, 20, 9, 9] + [21, 300, 50])
    predicted, gold = random.random((2, 60, len(counts))) < 0.15
    gold[:, random.random(len(counts)) < 0.4] = False  # labels without gold documents in this split
    scores = MultiLabelScores(Taxonomy([str(label) for label in range(len(counts))], [-1] * len(counts)))
    scores.update(predicted, gold)
    found = by_frequency(scores, counts)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["unseen", "1-5", "6-20", "more than 20"]
    assert [(group["fewest"], group["most"]) for group in found.values()] == [(0, 0), (1, 5), (6, 20), (21, 300)]
    for group, (low, high) in zip(found.values(), [(0, 0), (1, 5), (6, 20), (21, 10**6)], strict=True):
        labels = [label for label, count in enumerate(counts) if low <= count <= high]
        present = [label for label in labels if gold[:, label].any()]
        assert (group["labels"], group["labels_with_gold"]) == (len(labels), len(present))
        assert group["gold"] == gold[:, labels].sum()
        for name, average, chosen in (
            ("micro", "micro", labels),
            ("macro", "macro", labels),
            ("macro_gold", "macro", present),
        ):
            expected = precision_recall_fscore_support(gold, predicted, labels=chosen, average=average, zero_division=0)
            assert list(group[name].values()) == pytest.approx(list(expected[:3]))
    every = sum(group["labels"] * group["macro"]["f1"] for group in found.values()) / len(counts)
    assert every == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert every == pytest.approx(scores.macro().f1)


def test_groups_without_labels_and_labels_without_gold() -> None:
    scores = MultiLabelScores(Taxonomy(["a", "b"], [-1, -1]))
    scores.update(np.array([[True, True]]), np.array([[True, False]]))
    found = by_frequency(scores, [7, 0])
    assert list(found) == ["unseen", "6-20"]
    assert found["unseen"]["macro_gold"] is None
    assert found["unseen"]["labels_with_gold"] == 0
    assert found["unseen"]["macro"]["f1"] == 0
    assert found["6-20"]["macro_gold"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert list(by_frequency(scores, [7, 0], frequency_thirds)) == ["middle", "unseen"]
    with pytest.raises(ValueError, match="documents of each of 2 labels, got 3"):
        by_frequency(scores, [7, 0, 1])
