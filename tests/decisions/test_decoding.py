"""Decoding rules: no orphans, equal to plain Python for one document at a time, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgclr.decisions.decoding import RULES, Decoder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy import order as walks
from hgclr.taxonomy.order import monotone
from support.decision_cases import (
    LITERAL,
    REPEATABLE,
    Case,
    allowed_ends,
    cases,
    forests,
    orphans,
    path,
    path_score,
)

KEEPING = [rule for rule in RULES if rule != "threshold"]


def decode(case: Case, rule: str, **choices) -> np.ndarray:
    return Decoder(case.taxonomy, rule, case.thresholds, **choices)(case.probabilities)


def label_sets(chosen: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in chosen]


@pytest.mark.parametrize("rule", KEEPING)
@REPEATABLE
@given(
    case=cases(),
    paths=st.integers(1, 4),
    allow_inner_nodes=st.booleans(),
    abstain_below=st.sampled_from([None, 0.0, 0.5, 0.9, 1]),
)
def test_no_rule_but_threshold_leaves_an_orphan(
    rule: str, case: Case, paths: int, allow_inner_nodes: bool, abstain_below: float | None
) -> None:
    decisions = Decisions(
        case.taxonomy,
        rule,
        case.thresholds,
        paths=paths,
        allow_inner_nodes=allow_inner_nodes,
        abstain_below=abstain_below,
    )
    decided = decisions.decide(case.probabilities)
    assert orphans(case.taxonomy, decided.predicted) == 0
    assert orphans(case.taxonomy, decided.predicted | decided.abstained) == 0
    assert not (decided.predicted & decided.abstained).any()
    np.testing.assert_array_equal(
        decided.predicted | decided.abstained, decode(case, rule, paths=paths, allow_inner_nodes=allow_inner_nodes)
    )


@pytest.mark.parametrize("rule", list(LITERAL))
@REPEATABLE
@given(case=cases())
def test_rules_equal_a_literal_reading(rule: str, case: Case) -> None:
    expected = [LITERAL[rule](case.taxonomy, row, case.per_label) for row in case.probabilities.tolist()]
    assert label_sets(decode(case, rule)) == expected


@REPEATABLE
@given(cases(), st.integers(1, 5), st.booleans())
def test_paths_are_the_best_of_all_that_are_allowed(case: Case, paths: int, allow_inner_nodes: bool) -> None:
    """Increase k by one: the addition is the path to one label, and no allowed label has a better path."""
    taken: list[list[int]] = [[] for _ in case.probabilities]
    before = np.zeros(case.probabilities.shape, dtype=bool)
    for number in range(1, paths + 1):
        chosen = decode(case, "top-k-paths", paths=number, allow_inner_nodes=allow_inner_nodes)
        for row, ends, old, new in zip(case.probabilities.tolist(), taken, before, chosen, strict=True):
            if not any(row):
                assert not new.any()
                continue
            allowed = allowed_ends(case.taxonomy, allow_inner_nodes, ends)
            scores = {end: path_score(case.taxonomy, row, case.per_label, end) for end in allowed}
            if not allowed:
                assert (new == old).all()
                continue
            new_set, old_set = (set(np.flatnonzero(chosen).tolist()) for chosen in (new, old))
            fitting = [end for end in allowed if old_set | set(path(case.taxonomy, end)) == new_set]
            assert fitting
            best = max(fitting, key=scores.__getitem__)
            assert scores[best] >= max(scores.values()) - 1e-3
            ends.append(best)
        if number == 1:
            np.testing.assert_array_equal(decode(case, "best-path", allow_inner_nodes=allow_inner_nodes), chosen)
        before = chosen


def test_of_equally_good_paths_the_shortest_is_taken() -> None:
    chain = Taxonomy(["c", "b", "a"], [1, 2, -1])
    assert label_sets(Decoder(chain, "best-path")(np.array([[0.5, 0.5, 0.5]], dtype=np.float32))) == [{2}]


def test_a_text_gets_no_more_paths_than_the_tree_has() -> None:
    tree = Taxonomy(["a", "a1", "a2", "b"], [-1, 0, 0, -1])
    probabilities = np.array([[0.9, 0.8, 0.7, 0.1], [0.9, 0.1, 0.2, 0.3]], dtype=np.float32)
    ends = {1: [{0, 1}, {0}], 2: [{0, 1, 2}, {0, 3}], 3: [{0, 1, 2, 3}, {0, 3}], 9: [{0, 1, 2, 3}, {0, 3}]}
    for paths, expected in ends.items():
        assert label_sets(Decoder(tree, "top-k-paths", paths=paths)(probabilities)) == expected


@pytest.mark.parametrize("rule", RULES)
@REPEATABLE
@given(case=cases(), data=st.data())
def test_documents_do_not_touch_each_other(rule: str, case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.probabilities))))
    whole = decode(case, rule, paths=2)
    untouched = case.probabilities.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walks, "BLOCK", data.draw(st.integers(1, 3 * len(case.taxonomy))))
        decoder = Decoder(case.taxonomy, rule, case.thresholds, paths=2)
        np.testing.assert_array_equal(decoder(case.probabilities[order]), whole[order])
        lowered = monotone(case.probabilities, case.taxonomy)
        shown = decoder.shown(case.probabilities)
    np.testing.assert_array_equal(lowered, monotone(case.probabilities, case.taxonomy))
    np.testing.assert_array_equal(shown, decoder.shown(case.probabilities))
    np.testing.assert_array_equal(case.probabilities, untouched)


@REPEATABLE
@given(cases())
def test_shown_probabilities_fit_the_tree(case: Case) -> None:
    paths = [path(case.taxonomy, label) for label in range(len(case.taxonomy))]
    for rule in RULES:
        shown = Decoder(case.taxonomy, rule, case.thresholds).shown(case.probabilities)
        assert shown.dtype == np.float32
        for row, values in zip(shown.tolist(), case.probabilities.tolist(), strict=True):
            if rule != "closure":
                assert row == values
                continue
            highest = [max(values[k] for k in range(len(row)) if label in paths[k]) for label in range(len(row))]
            lowest = [min(values[k] for k in paths[label]) for label in range(len(row))]
            assert row == pytest.approx([(high + low) / 2 for high, low in zip(highest, lowest, strict=True)])
            assert all(row[above] >= value for label, value in enumerate(row) for above in paths[label])


def test_a_stray_leaf_does_not_lend_its_parents_its_own_probability() -> None:
    chain = Taxonomy(["a", "b", "c", "d"], [-1, 0, 1, -1])
    decoder = Decoder(chain, "closure")
    values = np.array([[0.1, 0.2, 0.7, 0.3], [0.9, 0.8, 0.6, 0.3]], dtype=np.float32)
    assert label_sets(decoder(values)) == [{0, 1, 2}, {0, 1, 2}]
    shown = decoder.shown(values)
    np.testing.assert_allclose(shown[0], [0.4, 0.4, 0.4, 0.3], rtol=1e-6)
    np.testing.assert_allclose(shown[1], values[1], rtol=1e-6)  # these contradict nothing


@REPEATABLE
@given(forests())
def test_no_documents_give_no_rows(taxonomy: Taxonomy) -> None:
    nothing = np.zeros((0, len(taxonomy)), dtype=np.float32)
    for rule in RULES:
        chosen = Decoder(taxonomy, rule, paths=3)(nothing)
        assert (chosen.shape, chosen.dtype) == (nothing.shape, bool)
    assert monotone(nothing, taxonomy).shape == nothing.shape


@pytest.mark.parametrize(
    "choices",
    [{"rule": "magic"}, {"thresholds": 1.5}, {"thresholds": float("nan")}, {"thresholds": [0.5]}, {"paths": 0}],
)
def test_unfit_choices_are_refused(taxonomy: Taxonomy, choices: dict) -> None:
    with pytest.raises(InputError):
        Decoder(taxonomy, **choices)
    with pytest.raises(ValueError, match="got"):
        Decoder(taxonomy)(np.zeros((2, 3), dtype=np.float32))
