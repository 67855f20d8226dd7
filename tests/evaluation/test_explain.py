"""Explanations: which labels, which words are kept, what the model says of them; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hgclr.decisions.settings import Decisions, Temperatures
from hgclr.errors import InputError
from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, explain
from hgclr.evaluation.relevance import AttentionRelevance, Word
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from hgclr.taxonomy import Taxonomy

TEXT = "Laser of the laser, a prism in a lake"
WORDS = ["Laser", "of", "the", "laser", ",", "a", "prism", "in", "a", "lake"]


def sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(value, dtype=np.float64)))


def changed(classifier: HierarchicalClassifier, rule=None, **options) -> Decisions:
    return classifier.decisions.changed(rule=rule, **options)


def test_the_labels_are_those_that_are_predicted_in_the_same_order(classifier: HierarchicalClassifier) -> None:
    for options in ({}, {"rule": "closure"}, {"threshold": 0.9}, {"rule": "top-k-paths", "paths": 2}):
        expected = classifier.predict([TEXT], **options)[0].labels
        found = explain(classifier, TEXT, method="gradient", decisions=changed(classifier, **options)).labels
        assert [one.label.id for one in found] == [label.id for label in expected]
        assert [one.label.path for one in found] == [label.path for label in expected]
        assert [one.label.probability for one in found] == pytest.approx([label.probability for label in expected])
        assert {one.status for one in found} == {"given"}


def test_abstained_labels_are_explained_and_called_so(classifier: HierarchicalClassifier) -> None:
    prediction = classifier.predict([TEXT], rule="closure", abstain_below=0.97)[0]
    assert prediction.labels
    assert prediction.abstained
    decisions = changed(classifier, rule="closure", abstain_below=0.97)
    status = {one.label.id: one.status for one in explain(classifier, TEXT, decisions=decisions).labels}
    assert status == {label.id: "given" for label in prediction.labels} | {
        label.id: "abstained" for label in prediction.abstained
    }


def test_without_any_label_the_most_probable_is_explained(classifier: HierarchicalClassifier, taxonomy) -> None:
    (label,) = explain(classifier, TEXT, decisions=changed(classifier, threshold=1.0)).labels
    probabilities = classifier.predict_proba([TEXT])[0]
    assert (label.label.id, label.status) == (taxonomy.ids[int(probabilities.argmax())], "not given")


def test_of_many_labels_the_most_probable_are_explained(classifier: HierarchicalClassifier, monkeypatch) -> None:
    monkeypatch.setattr("hgclr.evaluation.explanation.MOST_LABELS", 2)
    labels = classifier.predict([TEXT], threshold=0.0)[0].labels
    assert len(labels) == 9
    explanation = explain(classifier, TEXT, decisions=changed(classifier, threshold=0.0))
    best = sorted(labels, key=lambda label: -label.probability)[:2]
    assert {one.label.id for one in explanation.labels} == {label.id for label in best}
    assert explanation.unexplained == 7
    named = explain(
        classifier, TEXT, decisions=changed(classifier, threshold=0.0), labels=[label.id for label in labels]
    )
    assert (len(named.labels), named.unexplained) == (9, 0)


def test_labels_can_be_asked_for_by_id_name_and_path(classifier: HierarchicalClassifier) -> None:
    found = explain(
        classifier,
        TEXT,
        labels=["society > sports > tennis", "law", "law"],
        decisions=changed(classifier, threshold=1.0),
    ).labels
    assert [one.label.path for one in found] == [("society", "law"), ("society", "sports", "tennis")]
    assert {one.status for one in found} == {"not given"}
    with pytest.raises(InputError, match=r"tenis.*did you mean 'tennis'"):
        explain(classifier, TEXT, labels=["tenis"])
    with pytest.raises(InputError, match="no labels are given to explain"):
        explain(classifier, TEXT, labels=[])


@pytest.mark.parametrize(("keep", "count"), [(0.3, 3), (0.31, 4), (0.01, 1), (1.0, 10)])
def test_kept_words_and_probabilities_are_those_of_the_sum(
    additive: HierarchicalClassifier, taxonomy, keep: float, count: int
) -> None:
    explanation = explain(additive, TEXT, keep=keep, labels=taxonomy.ids)
    tokens = additive.tokenizer.encode(TEXT).ids
    parts = additive.backend.weights[tokens].astype(np.float64)  # (L, K)
    special = parts[0] + parts[-1] - 1
    words = parts[1:-1]
    assert explanation.method == "occlusion"
    assert [explanation.word(index) for index in range(len(explanation.words))] == WORDS
    for one in explanation.labels:
        label = taxonomy.resolve(one.label.id)
        np.testing.assert_allclose(one.relevance, words[:, label], atol=1e-5)
        best = sorted(sorted(range(10), key=lambda word: -words[word, label])[:count])
        assert list(one.kept) == best
        kept, whole = words[best, label].sum(), words[:, label].sum()
        assert one.label.probability == pytest.approx(sigmoid(special[label] + whole), abs=1e-5)
        assert one.only_kept == pytest.approx(sigmoid(special[label] + kept), abs=1e-5)
        assert one.without_kept == pytest.approx(sigmoid(special[label] + whole - kept), abs=1e-5)
        assert one.sufficiency == pytest.approx(one.label.probability - one.only_kept)
        assert one.comprehensiveness == pytest.approx(one.label.probability - one.without_kept)
    best = sorted(sorted(range(10), key=lambda word: -words[word].sum())[:count])
    stability = explanation.stability
    assert list(stability.kept) == best
    before, after = (set(np.flatnonzero(special + words[rows].sum(0) > 0)) for rows in (list(range(10)), best))
    assert {taxonomy.resolve(label.id) for label in stability.lost} == before - after
    assert {taxonomy.resolve(label.id) for label in stability.gained} == after - before
    assert stability.same == (before == after)
    for label in (*stability.lost, *stability.gained):
        index = taxonomy.resolve(label.id)
        assert label.probability == pytest.approx(sigmoid(special[index] + words[best, index].sum()), abs=1e-5)


def test_stability_can_be_lost(additive: HierarchicalClassifier) -> None:
    assert explain(additive, TEXT, keep=1.0).stability.same
    changed = explain(additive, TEXT, keep=0.1).stability
    assert not changed.same
    assert changed.lost or changed.gained


def test_random_words_are_as_many_and_the_same_every_time(additive: HierarchicalClassifier, monkeypatch) -> None:
    seen: list[int] = []
    compute = additive.backend.logits
    monkeypatch.setattr(
        additive.backend, "logits", lambda ids, mask: (seen.extend(mask.sum(1).tolist()), compute(ids, mask))[1]
    )
    one = explain(additive, TEXT, labels=["law"], keep=0.2)
    # The whole text twice (to decide and to compare), without each word, only the two for the label and for all
    # labels, without them, and ten times two random ones; two special tokens in each.
    assert sorted(seen) == sorted([12] * 2 + [11] * 10 + [4] * 2 + [10] + [4] * 10)
    assert one == explain(additive, TEXT, labels=["law"], keep=0.2)
    two = explain(additive, TEXT, labels=["law", "tennis"], keep=0.2)
    assert two.labels[0].only_random == pytest.approx(one.labels[0].only_random)  # the same draws for all
    everything = explain(additive, TEXT, labels=["law"], keep=1.0)
    assert everything.labels[0].only_random == pytest.approx(everything.labels[0].label.probability)


def test_calibrated_probabilities_are_shown(additive: HierarchicalClassifier, taxonomy) -> None:
    calibration = Temperatures(taxonomy, tuple(4.0 for _ in taxonomy.levels))
    calibrated = HierarchicalClassifier(
        additive.backend,
        additive.tokenizer,
        taxonomy,
        pad_token=additive.pad_token,
        max_length=12,
        decisions=Decisions(taxonomy, calibration=calibration),
    )
    for one in explain(calibrated, TEXT).labels:
        index = taxonomy.resolve(one.label.id)
        assert one.label.probability == pytest.approx(float(calibrated.predict_proba([TEXT])[0, index]), abs=1e-6)
        kept = " ".join(WORDS[word] for word in one.kept)
        assert one.only_kept == pytest.approx(float(calibrated.predict_proba([kept])[0, index]), abs=1e-6)


def test_words_that_were_not_read_are_counted(additive: HierarchicalClassifier) -> None:
    text = "laser of the prism in a lake is the goal , match court judge don't"  # 10 tokens are read, 12 with special
    explanation = explain(additive, text)
    assert explanation.word(len(explanation.words) - 1) == "goal"
    assert len(explanation.words) == 10
    assert explanation.unread == 5
    assert explain(additive, "laser").unread == 0


def test_methods_fit_the_model(classifier: HierarchicalClassifier, additive: HierarchicalClassifier, run: Path) -> None:
    attention = AttentionRelevance.from_pretrained(run / "training-model")
    assert explain(classifier, TEXT).method == "integrated"
    assert explain(classifier, TEXT, method="occlusion").method == "occlusion"
    by_attention = explain(classifier, TEXT, method=attention)
    assert (by_attention.method, by_attention.neutral) == ("attention", pytest.approx(1 / 9))
    for method in ("gradient", "integrated"):
        with pytest.raises(InputError, match="an ONNX model has no gradients; choose the method occlusion, or give"):
            explain(additive, TEXT, method=method)
    with pytest.raises(InputError, match=r"unknown method 'attention'; choose one of .* or give an"):
        explain(classifier, TEXT, method="attention")
    by_occlusion = explain(classifier, TEXT, method="occlusion")
    for one, other in zip(by_attention.labels, by_occlusion.labels, strict=True):
        assert one.kept != other.kept
        assert one.only_random == pytest.approx(other.only_random, abs=1e-6)
    attention.taxonomy = Taxonomy(["other"], [-1])
    with pytest.raises(InputError, match="the training model has another label tree than the classifier"):
        explain(classifier, TEXT, method=attention)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "the text '' has no words; give a text with some"),
        (" \n\t", {}, "has no words"),
        (3, {}, "expected a text, got int 3"),
        ("a\ud800", {}, "lone surrogate at character 2"),
        ("a", {"keep": 0.0}, r"the share of words to keep is 0\.0; give a share above 0, up to 1"),
        ("a", {"keep": 1.5}, r"the share of words to keep is 1\.5"),
    ],
)
def test_what_cannot_be_explained_is_refused(classifier, text: object, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain(classifier, text, **options)


def hand_made(relevance: tuple[float, ...], neutral: float = 0.0) -> Explanation:
    label = PredictedLabel("law", ("society", "law"), 0.87654)
    one = ExplainedLabel(label, "given", relevance, (0,), only_kept=0.7, only_random=0.4, without_kept=0.123456)
    words = tuple(Word(2 * place, 2 * place + 1) for place in range(len(relevance)))
    text = " ".join("abcdefgh"[: len(relevance)])
    return Explanation(text, "gradient", neutral, words, 2, (one,), 4, 0.3, Stability((0,), (label,), ()))


def test_shades_go_from_against_over_nothing_to_for() -> None:
    signed = hand_made((8.0, -8.0, 0.9, -0.9, 1.1, -3.1, 0.0))
    assert signed.shades(signed.labels[0], 4) == [4, -4, 0, 0, 1, -2, 0]
    nothing = hand_made((0.0, 0.0))
    assert nothing.shades(nothing.labels[0], 4) == [0, 0]
    near = hand_made((0.105, 0.097), neutral=0.1)
    assert near.shades(near.labels[0], 4) == [0, 0]
    assert near.chance(near.labels[0], 4) == "10%, and no word is far from it"
    far = hand_made((0.95, 0.0, 0.1), neutral=0.1)
    assert far.shades(far.labels[0], 4) == [4, 0, 0]  # 0.1 below chance is less than an eighth of 0.85
    assert far.chance(far.labels[0], 4) == "10%"
    assert signed.chance(signed.labels[0], 4) == ""


def test_the_strongest_words_come_first() -> None:
    explanation = hand_made((0.5, -1.0, 2.0, 0.0, -3.0, 1.0))
    assert explanation.strongest(explanation.labels[0], 2) == ([2, 5], [4, 1])
    assert explanation.strongest(explanation.labels[0], 9) == ([2, 5, 0], [4, 1])
    assert (explanation.number(2.0), explanation.number(-3.006)) == ("+2.00", "-3.01")
    assert hand_made((0.5,), neutral=0.1).number(0.12345) == "12.3%"


def test_json_holds_everything_in_plain_types() -> None:
    explanation = hand_made((0.123456, -1.0))
    assert json.loads(json.dumps(explanation.to_json())) == {
        "text": "a b",
        "method": "gradient",
        "neutral": 0.0,
        "words": [{"word": "a", "start": 0, "stop": 1}, {"word": "b", "start": 2, "stop": 3}],
        "words_not_read": 2,
        "labels": [
            {
                "id": "law",
                "path": ["society", "law"],
                "probability": 0.8765,
                "status": "given",
                "relevance": [0.1235, -1.0],
                "kept": [0],
                "probability_only_kept": 0.7,
                "probability_only_random": 0.4,
                "probability_without_kept": 0.1235,
                "sufficiency": 0.1765,
                "comprehensiveness": 0.7531,
            }
        ],
        "labels_left_out": 4,
        "keep": 0.3,
        "stability": {
            "same_labels": False,
            "kept": [0],
            "lost": [{"id": "law", "path": ["society", "law"], "probability": 0.8765}],
            "gained": [],
        },
    }
