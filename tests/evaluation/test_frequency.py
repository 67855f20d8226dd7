from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.evaluation.frequency import frequency_thirds

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
    with pytest.raises(ValueError, match="expected the number of documents of each label, got"):
        frequency_thirds(counts)
