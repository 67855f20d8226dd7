"""Drawn splits: shares, determinism, equal texts in one split, every label in train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data.folder import SPLITS
from hgclr.data.split import (
    TextSurvey,
    checked_shares,
    deal,
    deal_evenly,
    give_train_every_label,
    hold_out,
    label_spread,
)
from hgclr.errors import InputError, MissingExtraError

pytest.importorskip("iterstrat")
HERE, SHARES = Path("mine.jsonl"), np.array([0.8, 0.1, 0.1])


def survey_of(count: int, *, texts: int | None = None) -> TextSurvey:
    """Rows with labels of very different frequency; rows share texts if there are fewer texts than rows."""
    random = np.random.default_rng(0)
    survey = TextSurvey()
    for number in range(count):
        labels = random.choice(5, size=1 + number % 2, replace=False, p=[0.6, 0.2, 0.1, 0.07, 0.03])
        survey.add(number % (texts or count), sorted(labels.tolist()))
    return survey


def test_hold_out() -> None:
    kept, held_out = hold_out(95, 0.1, 3)
    assert len(held_out) == 10
    assert sorted([*kept, *held_out]) == list(range(95))
    assert np.array_equal(held_out, hold_out(95, 0.1, 3)[1])
    assert not np.array_equal(held_out, hold_out(95, 0.1, 4)[1])
    assert len(hold_out(5, 0.1, 0, least=2)[1]) == 2
    with pytest.raises(InputError):
        hold_out(2, 0.1, 0, least=2)


def test_hold_out_agrees_with_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    numbers = datasets.Dataset.from_dict({"number": range(57)})
    parts = numbers.train_test_split(test_size=0.2, seed=5)
    kept, held_out = hold_out(57, 0.2, 5)
    assert (list(parts["train"]["number"]), list(parts["test"]["number"])) == (kept.tolist(), held_out.tolist())


def test_spread_of_labels() -> None:
    survey, dealt = survey_of(100), np.arange(100) % 3
    rows = [
        set(survey.flat[end - count : end]) for end, count in zip(np.cumsum(survey.counts), survey.counts, strict=True)
    ]
    for place, (without, deviation) in enumerate(label_spread(survey, dealt).values()):
        inside = rows[place::3]
        gaps = [
            sum(label in labels for labels in inside) / len(inside) - sum(label in labels for labels in rows) / 100
            for label in range(5)
        ]
        assert deviation == pytest.approx(np.abs(gaps).mean())
        assert without == sum(not any(label in labels for labels in inside) for label in range(5))


def test_stratified_shares_are_closer_than_random_ones() -> None:
    survey = survey_of(1000)
    total = {(stratify, place): 0.0 for stratify in (True, False) for place in (1, 2)}
    for seed in range(5):
        for stratify in (True, False):
            dealt = deal(survey, SHARES, seed=seed, stratify=stratify, path=HERE)
            for place in (1, 2):
                total[stratify, place] += label_spread(survey, dealt)[SPLITS[place]][1]
    for place in (1, 2):
        assert total[True, place] < total[False, place] / 2


@pytest.mark.parametrize("stratify", [True, False])
def test_the_seed_decides_and_equal_texts_stay_together(stratify: bool) -> None:
    survey = survey_of(400, texts=150)
    dealt = deal(survey, SHARES, seed=3, stratify=stratify, path=HERE)
    assert np.array_equal(dealt, deal(survey, SHARES, seed=3, stratify=stratify, path=HERE))
    assert not np.array_equal(dealt, deal(survey, SHARES, seed=4, stratify=stratify, path=HERE))
    for text in range(150):
        assert len(set(dealt[survey.texts == text].tolist())) == 1


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sets=st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=30),
    dev=st.sampled_from([0.0, 0.1, 0.45]),
    test=st.sampled_from([0.1, 0.5]),
    seed=st.integers(0, 3),
)
def test_no_label_is_without_training_text(sets: list[set[int]], dev: float, test: float, seed: int) -> None:
    used = sorted(set().union(*sets))
    text = np.array([number for number, labels in enumerate(sets) for _ in labels])
    label = np.array([used.index(label) for labels in sets for label in sorted(labels)])
    shares = np.array([1 - dev - test, dev, test])
    random = np.random.default_rng(seed)
    for dealt in (
        deal_evenly(len(sets), len(used), (text, label), shares, seed=seed),
        random.choice(3, size=len(sets), p=shares),
    ):
        before = dealt.copy()
        give_train_every_label((text, label), dealt)
        trained = set().union(*(labels for labels, place in zip(sets, dealt, strict=True) if place == 0))
        assert trained == set(used)
        assert all(place == 0 for place in dealt[dealt != before])
        missing = set(used) - set().union(*(labels for labels, place in zip(sets, before, strict=True) if place == 0))
        assert np.count_nonzero(dealt != before) <= len(missing)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    for dev, test in ((0.5, 0.5), (-0.1, 0.1), (0.0, 0.0)):
        with pytest.raises(InputError):
            checked_shares(dev, test)
    nothing = np.zeros(0, dtype=np.int64)
    with pytest.raises(InputError) as caught:
        deal_evenly(2_000_000, 5_000, (nothing, nothing), SHARES, seed=0)
    assert "--no-stratify" in str(caught.value.remedy)
    with pytest.raises(InputError) as caught:
        deal(survey_of(2), SHARES, seed=0, stratify=False, path=HERE)
    assert caught.value.path == HERE
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError):
        deal(survey_of(20), SHARES, seed=0, stratify=True, path=HERE)
