"""HiMatch's losses against loops, and the labels that are drawn for them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.paper.models.himatch import Drawn, JointProjection, distances, draw_labels, joint_loss, matching_loss

#            0 ─ 1, 2, 3       4 ─ 5       6
PARENTS = torch.tensor([-1, 0, 0, 0, -1, 4, -1])
MARGINS = {"parent": 0.01, "sibling": 0.1, "random": 0.2}


def literal_losses(texts, labels, drawn: Drawn) -> tuple[float, float]:
    """One document at a time, one coordinate at a time."""
    joint = matching = 0.0
    for document, text in enumerate(texts.tolist()):

        def distance(label: int, text=text) -> float:
            return sum((t - x) ** 2 for t, x in zip(text, labels[label].tolist(), strict=True))

        gold, parent, sibling, other = (int(chosen[document]) for chosen in drawn)
        if gold == -1:
            continue
        joint += distance(gold)
        if parent != -1:
            joint += max(0.0, distance(parent) - MARGINS["parent"])
        if sibling != -1:
            matching += max(0.0, MARGINS["sibling"] - (distance(sibling) - distance(gold)))
        if other != -1:
            matching += max(0.0, MARGINS["random"] - (distance(other) - distance(gold)))
    return joint / len(texts), matching / len(texts)


def test_the_losses_by_loops_with_labels_missing() -> None:
    torch.manual_seed(0)
    texts = torch.nn.functional.normalize(torch.randn(6, 4), dim=-1)
    labels = torch.nn.functional.normalize(torch.randn(7, 4), dim=-1)
    drawn = Drawn(
        gold=torch.tensor([1, 0, 5, 2, -1, 6]),
        parent=torch.tensor([0, -1, 4, 0, -1, -1]),
        sibling=torch.tensor([2, 4, -1, 3, -1, 0]),
        other=torch.tensor([6, 5, 0, 1, 3, -1]),
    )
    distance = distances(texts, labels, drawn)
    joint, matching = literal_losses(texts, labels, drawn)
    assert joint_loss(distance, drawn, parent_margin=0.01).item() == pytest.approx(joint, rel=1e-5)
    found = matching_loss(distance, drawn, sibling_margin=0.1, random_margin=0.2)
    assert found.item() == pytest.approx(matching, rel=1e-5)
    assert 0 < matching < joint


def test_distances_are_not_divided_so_that_margins_can_be_met() -> None:
    """On the unit sphere the farthest point is at 4; divided by the size of the space, 200, it would be at 0.02."""
    text = torch.zeros(1, 200)
    text[0, 0] = 1.0
    labels = torch.cat([text, -text])
    drawn = Drawn(*(torch.tensor([label]) for label in (0, 0, 1, 1)))
    distance = distances(text, labels, drawn)
    assert [d.item() for d in distance] == [0.0, 0.0, 4.0, 4.0]
    assert matching_loss(distance, drawn, sibling_margin=0.1, random_margin=0.2).item() == 0.0


@settings(deadline=None, derandomize=True, max_examples=50)
@given(rows=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_each_drawn_label_is_what_it_shall_be(rows: list[list[bool]], seed: int) -> None:
    torch.manual_seed(seed)
    drawn = draw_labels(torch.tensor(rows).float(), PARENTS)
    for row, gold, parent, sibling, other in zip(rows, *(chosen.tolist() for chosen in drawn), strict=True):
        right = {label for label in range(7) if row[label]}
        wrong = set(range(7)) - right
        assert gold in right if right else gold == -1
        assert other in wrong if wrong else other == -1
        assert parent == (PARENTS[gold].item() if right else -1)
        beside = {label for label in wrong if right and PARENTS[label] == PARENTS[gold]}
        assert sibling in beside if beside else sibling == -1


def test_all_candidates_are_drawn_alike() -> None:
    torch.manual_seed(1)
    gold = torch.zeros(4000, 7)
    gold[:, [0, 1]] = 1.0
    drawn = draw_labels(gold, PARENTS)
    counts = [Counter(chosen.tolist()) for chosen in drawn]
    assert set(counts[0]) == {0, 1}
    assert set(counts[3]) == {2, 3, 4, 5, 6}
    assert all(abs(number - 2000) < 200 for number in counts[0].values())
    assert all(abs(number - 800) < 150 for number in counts[3].values())
    for one, siblings in ((0, {4, 6}), (1, {2, 3})):  # top labels are siblings of each other
        assert set(drawn.sibling[drawn.gold == one].tolist()) == siblings


def test_the_joint_space_is_the_unit_sphere() -> None:
    torch.manual_seed(2)
    projection = JointProjection(6, 3, dropout=0.0)
    vectors = torch.randn(5, 6)
    for vector, point in zip(vectors, projection(vectors), strict=True):
        hidden = torch.clamp(projection[0].weight @ vector + projection[0].bias, min=0)
        expected = projection[3].weight @ hidden + projection[3].bias
        torch.testing.assert_close(point, expected / expected.pow(2).sum().sqrt())
    projection.normalised = False
    length = projection(vectors).norm(dim=-1)
    assert not torch.allclose(length, torch.ones_like(length), atol=0.05)
