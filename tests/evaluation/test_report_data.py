"""The numbers of a report against scikit-learn and loops; independence of batches; bounded memory."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, f1_score, hamming_loss, precision_recall_fscore_support

from hgclr.decisions.decoding import RULES, Decoder
from hgclr.evaluation import report_data
from hgclr.evaluation.report import HEADLINES, worst_labels
from hgclr.evaluation.report_data import GRID, KEPT, RISKS, Confusion, Examples, SiblingConfusions
from hgclr.metrics.scores import score_labels
from hgclr.taxonomy import Taxonomy
from support.scored_documents import Scored, score

FAST = settings(max_examples=40, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def scored(taxonomy) -> Scored:
    return score(taxonomy)


@pytest.fixture(scope="module")
def content(scored: Scored) -> dict[str, Any]:
    counts = np.array([0, 5, 90, 3, 40, 8, 70, 2, 1])
    return scored.content(training_counts=counts)


def test_headlines_are_what_scikit_learn_computes(scored: Scored, content: dict[str, Any]) -> None:
    predicted = scored.probabilities > 0.5
    values = {headline.key: headline.value(content) for headline in HEADLINES}
    assert values["micro_f1"] == pytest.approx(f1_score(scored.gold, predicted, average="micro"))
    assert values["macro_f1"] == pytest.approx(f1_score(scored.gold, predicted, average="macro", zero_division=0))
    assert values["subset_accuracy"] == pytest.approx(accuracy_score(scored.gold, predicted))
    assert values["hamming_loss"] == pytest.approx(hamming_loss(scored.gold, predicted))
    assert values["brier"] == pytest.approx(brier_score_loss(scored.gold.ravel(), scored.probabilities.ravel()))
    closed = scored.taxonomy.close(predicted)
    assert values["hierarchical_f1"] == pytest.approx(f1_score(scored.gold, closed, average="micro"))
    for name in ("micro_f1", "macro_f1", "hierarchical_f1"):
        interval = content["intervals"][name]
        assert interval["score"] == pytest.approx(values[name])
        assert interval["low"] < values[name] < interval["high"]


def test_labels_have_the_scores_of_scikit_learn_and_the_tree(scored: Scored, content: dict[str, Any]) -> None:
    predicted = scored.probabilities > 0.5
    precision, recall, f1, support = precision_recall_fscore_support(scored.gold, predicted, zero_division=0)
    for index, label in enumerate(content["labels"]):
        parent = int(scored.taxonomy.parents[index])
        assert label["id"] == scored.taxonomy.ids[index]
        assert label["parent"] == (None if parent < 0 else scored.taxonomy.ids[parent])
        assert [label[key] for key in ("precision", "recall", "f1")] == pytest.approx(
            [precision[index], recall[index], f1[index]]
        )
        assert label["gold"] == support[index]


def test_frequency_groups_count_the_training_documents(scored: Scored, content: dict[str, Any]) -> None:
    groups = {group["group"]: group for group in content["frequency"]}
    # In order 90 70 40 | 8 5 | 3 2 1, and one label is unseen: r < 8/3, between, > 16/3.
    assert {name: (group["most"], group["fewest"], group["labels"]) for name, group in groups.items()} == {
        "head": (90, 40, 3),
        "middle": (8, 5, 2),
        "tail": (3, 1, 3),
        "unseen": (0, 0, 1),
    }
    labels = [2, 6, 4]
    predicted = scored.probabilities > 0.5
    expected = f1_score(scored.gold[:, labels], predicted[:, labels], average="macro")
    assert groups["head"]["macro"]["f1"] == pytest.approx(expected)
    assert score(scored.taxonomy, 5).content()["frequency"] is None


@pytest.mark.parametrize("rule", ["threshold", "closure", "best-path"])
def test_the_threshold_curve_scores_every_threshold(scored: Scored, rule) -> None:
    curve = scored.content(rule=rule)["threshold_curve"]
    assert [point["threshold"] for point in curve] == list(GRID)
    for point in curve[::6]:
        predicted = Decoder(scored.taxonomy, rule, point["threshold"])(scored.probabilities)
        assert point["micro_f1"] == pytest.approx(f1_score(scored.gold, predicted, average="micro"))
        assert point["macro_f1"] == pytest.approx(f1_score(scored.gold, predicted, average="macro", zero_division=0))


def test_every_rule_is_scored_with_the_models_thresholds(scored: Scored) -> None:
    thresholds = np.linspace(0.3, 0.7, 9, dtype=np.float32)
    rows = scored.content(thresholds=thresholds, paths=2)["rules"]
    assert [row["rule"] for row in rows] == list(RULES)
    for row in rows:
        predicted = Decoder(scored.taxonomy, row["rule"], thresholds, paths=2)(scored.probabilities)
        assert row["micro_f1"] == pytest.approx(f1_score(scored.gold, predicted, average="micro"))
        assert row["subset_accuracy"] == pytest.approx(accuracy_score(scored.gold, predicted))
        assert row["labels_per_document"] == pytest.approx(predicted.sum(axis=1).mean())
        assert (row["inconsistency_rate"] == 0) == (row["rule"] != "threshold")


@pytest.mark.parametrize("abstain_below", [None, 0.7])
def test_risk_and_coverage_are_those_of_labels_cut_by_confidence(scored: Scored, abstain_below: float | None) -> None:
    """The curve includes the labels that --abstain-below withholds."""
    curve = scored.content(rule="drop-orphans", abstain_below=abstain_below)["risk_coverage"]
    given_labels = Decoder(scored.taxonomy, "drop-orphans")(scored.probabilities)
    confidence = np.stack([scored.probabilities[:, scored.taxonomy.path(k)].min(1) for k in range(9)], 1)
    assert curve["labels_given"] == given_labels.sum()
    for point in curve["points"]:
        kept = given_labels & (confidence >= point["abstain_below"])
        assert point["coverage"] == pytest.approx(kept.sum() / given_labels.sum())
        assert point["risk"] == pytest.approx((kept & ~scored.gold).sum() / kept.sum())
    assert curve["points"][-1]["coverage"] == 1
    for chosen, wanted in zip(curve["chosen"], RISKS, strict=True):
        fitting = [point["coverage"] for point in curve["points"] if point["risk"] <= wanted]
        assert chosen["wanted_risk"] == wanted
        assert chosen["coverage"] == max(fitting, default=0)


def brute_force_confusions(taxonomy: Taxonomy, predicted: np.ndarray, gold: np.ndarray) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for row in range(len(gold)):
        for right in range(len(taxonomy)):
            for wrong in range(len(taxonomy)):
                siblings = right != wrong and taxonomy.parents[right] == taxonomy.parents[wrong]
                missed, false = (
                    gold[row, right] and not predicted[row, right],
                    predicted[row, wrong] and not gold[row, wrong],
                )
                counts[right, wrong] += bool(siblings and missed and false)
    return +counts


@FAST
@given(st.integers(1, 10), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_confusions_are_counted_among_siblings(labels: int, documents: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    taxonomy = Taxonomy(
        [f"l{k}" for k in range(labels)], [int(random.integers(-1, k)) if k else -1 for k in range(labels)]
    )
    predicted, gold = random.random((2, documents, labels)) < 0.5
    counted = SiblingConfusions(taxonomy)
    counted.update(predicted[:3], gold[:3])
    counted.update(predicted[3:], gold[3:])
    expected = brute_force_confusions(taxonomy, predicted, gold)
    found = counted.most(1000)
    assert {(each.gold, each.predicted): each.documents for each in found} == expected
    assert [each.documents for each in found] == sorted(expected.values(), reverse=True)
    for pair in [(0, labels - 1), *expected]:
        assert counted.documents(*pair) == expected[pair]


def test_rare_confusions_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_data, "PAIRS", 4)
    taxonomy = Taxonomy([f"l{k}" for k in range(8)], [-1] * 8)
    counted = SiblingConfusions(taxonomy)
    gold, predicted = np.zeros((2, 20, 8), dtype=np.bool_)
    gold[:, 0] = True
    predicted[:, 7] = True
    counted.update(predicted, gold)
    for other in range(1, 7):
        one = np.zeros((1, 8), dtype=np.bool_)
        one[0, other] = True
        counted.update(one, gold[:1])
    assert counted.most(1) == [Confusion(0, 7, 20)]
    assert len(counted.most(100)) <= 4


def test_examples_are_the_first_documents_that_are_wrong(scored: Scored) -> None:
    predicted = scored.probabilities > 0.5
    examples = Examples(scored.taxonomy)
    for start in range(0, len(predicted), 7):
        rows = slice(start, start + 7)
        examples.update(scored.texts[rows], predicted[rows], scored.gold[rows])
    for label in range(len(scored.taxonomy)):
        for found, wrong in (
            (examples.missed[label], scored.gold & ~predicted),
            (examples.false[label], predicted & ~scored.gold),
        ):
            first = np.flatnonzero(wrong[:, label])[:KEPT]
            assert [example.text for example in found] == [scored.texts[row] for row in first]
            for example, row in zip(found, first, strict=True):
                ends = [
                    k
                    for k in np.flatnonzero(scored.gold[row])
                    if not scored.gold[row][scored.taxonomy.parents == k].any()
                ]
                assert list(example.gold) == ends


def test_the_worst_labels_cost_most() -> None:
    gold = np.array([100, 100, 4, 40, 10, 1])
    true = np.array([99, 50, 0, 10, 0, 1])
    scores = score_labels(true, gold.copy(), gold)  # as many predicted as gold: F1 = true / gold
    # F1 .99 .5 (0, too few) .25 0; the mean of the four is .435: .5 is above it. Lost: 40 · .75 and 10 · 1.
    assert worst_labels(scores) == [3, 4]
    assert worst_labels(scores, number=1) == [3]
    few = score_labels(np.array([0, 1]), np.array([1, 1]), np.array([1, 1]))
    assert worst_labels(few) == [0]  # if no label has enough, all count
    perfect = score_labels(gold, gold, gold)
    assert worst_labels(perfect) == []
    nothing = np.zeros(2, dtype=np.int64)
    assert worst_labels(score_labels(nothing, nothing, nothing)) == []


def same(first: Any, second: Any) -> bool:
    """Equal apart from rounding of sums in another order."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return first == (pytest.approx(second, rel=1e-12) if isinstance(second, float) else second)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7])
def test_batches_do_not_change_a_report(scored: Scored, batch: int) -> None:
    whole, pieces = scored.content(rule="closure"), scored.content(rule="closure", batch=batch)
    assert same(whole, pieces)


def test_the_digest_tells_documents_labels_and_order(taxonomy) -> None:
    def digest(texts: list[str], labels: list[list[int]]) -> str:
        gold = np.zeros((len(texts), 9), dtype=np.bool_)
        for row, chosen in zip(gold, labels, strict=True):
            row[chosen] = True
        return Scored(taxonomy, texts, np.zeros(gold.shape, dtype=np.float32), gold).collect(resamples=1).digest()

    base = digest(["ab", "c"], [[0], [1]])
    assert digest(["ab", "c"], [[0], [1]]) == base
    others = [
        digest(["c", "ab"], [[1], [0]]),
        digest(["a", "bc"], [[0], [1]]),
        digest(["ab", "c"], [[1], [0]]),
        digest(["ab", "c"], [[0, 1], []]),
        digest(["ab"], [[0]]),
    ]
    assert len({base, *others}) == 6


def test_a_report_survives_json(content: dict[str, Any]) -> None:
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_documents_without_predictions_and_a_single_label_are_no_trouble() -> None:
    taxonomy = Taxonomy(["only"], [-1])
    gold = np.ones((3, 1), dtype=np.bool_)
    content = Scored(taxonomy, ["a", "b", "c"], np.zeros((3, 1), dtype=np.float32), gold).content()
    assert content["risk_coverage"]["points"] == []
    assert {chosen["abstain_below"] for chosen in content["risk_coverage"]["chosen"]} == {None}
    assert content["confusions"] == []
    assert [worst["id"] for worst in content["worst_labels"]] == ["only"]
