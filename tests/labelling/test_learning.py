"""Learning from answers: the head, its scores, words, agreement and advice, each against another derivation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from hgclr.errors import InputError
from hgclr.labelling import learning
from hgclr.labelling.learning import Encoder, encode_texts, expected_gain, learn, macro_f1, people_agreement
from hgclr.labelling.store import Answer
from hgclr.taxonomy import Taxonomy

WORDS = {"physics": "atom laser quantum", "law": "court judge contract", "tennis": "racket serve net"}


@pytest.fixture(scope="module")
def encoder(make_encoder, taxonomy: Taxonomy) -> Encoder:
    return Encoder.load(taxonomy, make_encoder("bert"))


def examples(encoder: Encoder, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors and gold labels of texts that give their labels away."""
    generator, tree = np.random.default_rng(seed), encoder.taxonomy
    names = sorted(WORDS)
    texts, gold = [], np.zeros((count, len(tree)), dtype=np.bool_)
    for row in range(count):
        name = names[int(generator.integers(len(names)))]
        texts.append(" ".join(generator.choice(WORDS[name].split(), 4)))
        gold[row, tree.closure([tree.resolve(name)])] = True
    return np.concatenate(list(encoder.classifier.vectors(texts))), gold


def test_a_head_learns_from_answers_and_the_slice_trains_none(encoder: Encoder) -> None:
    vectors, gold = examples(encoder, 80)
    other_vectors, other_gold = examples(encoder, 40, seed=1)
    nothing = np.zeros((0, vectors.shape[1]), dtype=np.float32), np.zeros((0, len(encoder.taxonomy)), dtype=np.bool_)
    before = learn(encoder, nothing[0], nothing[1].astype(np.float32), *nothing)
    after = learn(encoder, vectors, gold.astype(np.float32), *nothing)
    right = [((head.logits(other_vectors) > 0) == other_gold).mean() for head in (before, after)]
    assert right[1] > right[0]
    few = learn(encoder, vectors, gold.astype(np.float32), other_vectors[:9], other_gold[:9])
    many = learn(encoder, vectors, gold.astype(np.float32), other_vectors, other_gold)
    np.testing.assert_array_equal(many.weight, after.weight)
    assert few.suggesting.calibration.temperature == 1


def test_the_temperature_makes_the_gold_leaves_most_likely(taxonomy: Taxonomy) -> None:
    generator, leaves = np.random.default_rng(0), taxonomy.leaves
    gold = taxonomy.close(np.eye(len(taxonomy), dtype=np.bool_)[generator.choice(leaves, 60)])
    logits = (2 * gold + generator.normal(scale=3, size=gold.shape)).astype(np.float32)
    sums = np.stack([logits[:, taxonomy.closure([leaf])].sum(1) for leaf in leaves.tolist()], axis=1).astype(float)

    def loss(temperature: float) -> float:
        return -float(log_softmax(sums / temperature, axis=1)[gold[:, leaves]].mean())

    best = minimize_scalar(loss, bounds=(0.25, 8), method="bounded").x
    assert learning.best_temperature(logits, gold, taxonomy) == pytest.approx(best, rel=0.1)


def test_unknown_targets_are_left_out_of_the_loss(encoder: Encoder) -> None:
    """With one label unknown in all texts, its row is learned from the label documents alone."""
    vectors, gold = examples(encoder, 40)
    none = np.zeros((0, len(encoder.taxonomy)), dtype=np.bool_)
    targets = gold.astype(np.float32)
    targets[:, 3] = np.nan
    first = learn(encoder, vectors, targets, vectors[:0], none)
    alone = learn(encoder, vectors[:0], targets[:0], vectors[:0], none)
    known = learn(encoder, vectors, gold.astype(np.float32), vectors[:0], none)
    assert not np.allclose(known.weight[3], first.weight[3], atol=1e-3)
    # Per document, the loss of the label documents is divided by more documents, so only the direction is compared.
    assert np.corrcoef(first.weight[3] - encoder.start[0][3], alone.weight[3] - encoder.start[0][3])[0, 1] > 0.8


def test_macro_f1_of_the_labels_present_and_its_interval() -> None:
    generator = np.random.default_rng(0)
    gold = generator.random((200, 6)) < 0.3
    predicted = gold ^ (generator.random((200, 6)) < 0.2)
    gold[:, 5] = predicted[:, 5] = False

    def by_hand(rows: np.ndarray) -> float:
        scores = []
        for label in range(6):
            p, g = predicted[rows, label], gold[rows, label]
            if p.any() or g.any():
                scores.append(2 * (p & g).sum() / (p.sum() + g.sum()))
        return float(np.mean(scores))

    found = macro_f1(predicted, gold)
    assert found.score == pytest.approx(by_hand(np.arange(200)), abs=1e-6)
    samples = [by_hand(generator.integers(0, 200, 200)) for _ in range(1000)]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])), abs=0.01)


def test_each_half_of_the_slice_is_scored_with_decisions_of_the_other(taxonomy: Taxonomy, monkeypatch) -> None:
    gold = np.zeros((21, len(taxonomy)), dtype=np.bool_)
    gold[:, taxonomy.closure([taxonomy.resolve("law")])] = True
    calls = []

    def tuned(logits, gold, taxonomy, seed):
        calls.append(set(logits[:, 0].tolist()))
        return learning.untuned(taxonomy)

    monkeypatch.setattr(learning, "tuned", tuned)
    logits = np.where(gold, 5.0, -5.0).astype(np.float32)
    logits[:, 0] = np.arange(21) - 50
    assert learning.slice_scores(logits, gold, taxonomy)["macro_f1"] == 1
    assert calls[0] | calls[1] == set(logits[:, 0].tolist())
    assert not calls[0] & calls[1]
    assert learning.slice_scores(logits[:0], gold[:0], taxonomy) == {}


def test_words_are_those_whose_vectors_raise_the_logits_of_the_path(encoder: Encoder) -> None:
    text = "the lens of a court, in judge"
    tree, model = encoder.taxonomy, encoder.classifier.backend.model
    weight = np.random.default_rng(0).normal(size=encoder.start[0].shape).astype(np.float32)
    labels = [tree.resolve("optics"), tree.resolve("law")]
    found = learning.carrying_words(encoder.classifier, weight, text, labels)
    (encoding,) = encoder.classifier.encode([text], offsets=True)
    ids = torch.tensor([encoding.ids])
    with torch.no_grad():
        hidden = model.hidden(torch.ones_like(ids), input_ids=ids)[0].numpy().astype(np.float64)
    for label, words in zip(labels, found, strict=True):
        direction = sum(weight[each] for each in tree.path(label).tolist())
        drops: dict[str, float] = {}
        for place, (start, stop) in enumerate(encoding.offsets):
            if text[start:stop].isalnum():
                without = np.delete(hidden, place, axis=0).mean(0)
                drops[text[start:stop]] = float(direction @ (hidden.mean(0) - without))
        best = sorted((word for word in drops if drops[word] > 0), key=lambda word: -drops[word])
        assert words[0] == best[0]
        assert set(words) <= set(best)
    assert learning.carrying_words(encoder.classifier, weight, " ", labels) == [(), ()]


def kappa(pairs: list[tuple[str, str]]) -> float:
    """Cohen's kappa from its definition."""
    agreed = sum(one == other for one, other in pairs) / len(pairs)
    chance = (
        sum(
            sum(one == each for one, _ in pairs) * sum(other == each for _, other in pairs)
            for each in {category for pair in pairs for category in pair}
        )
        / len(pairs) ** 2
    )
    return (agreed - chance) / (1 - chance)


def test_agreement_of_people_at_each_level(taxonomy: Taxonomy) -> None:
    given_answers = [
        ("physics", "optics"),
        ("law", "law"),
        ("tennis", "rowing"),
        ("tennis", "tennis"),
        ("chemistry", None),
        ("optics", "optics"),
    ]
    answers = [
        Answer(document, user, "none" if label is None else "labels", () if label is None else (label,))
        for document, labels in enumerate(given_answers)
        for user, label in zip(("anna", "bert"), labels, strict=True)
    ]
    answers += [Answer(9, "anna", "labels", ("law",)), Answer(0, "carl", "skip")]
    found = people_agreement(answers, taxonomy)
    assert found is not None
    for depth, value in enumerate(found, 1):

        def at_level(label: str | None, depth: int = depth) -> str:
            path = [] if label is None else taxonomy.path_names(taxonomy.resolve(label))
            return path[depth - 1] if len(path) >= depth else ""

        assert value == pytest.approx(kappa([(at_level(one), at_level(other)) for one, other in given_answers]))
    assert people_agreement(answers[:1], taxonomy) is None
    same = [Answer(0, user, "labels", ("law",)) for user in ("anna", "bert")]
    assert people_agreement(same, taxonomy) == [None, None, None]


@settings(max_examples=30, deadline=None)
@given(a=st.floats(0.5, 0.95), b=st.floats(0.1, 0.6))
def test_the_gain_of_an_exact_power_law_is_found_without_doubt(a: float, b: float) -> None:
    curve = [(n, 1 - a * n**-b, 0.0, 1.0) for n in (25, 50, 75, 100, 150)]
    gain = expected_gain(curve)
    assert gain is not None
    assert gain[0] == pytest.approx(a * 150**-b - a * 250**-b, abs=1e-6)
    assert gain[1] == pytest.approx(0, abs=1e-5)


def test_the_interval_of_the_gain_covers_it_about_as_often_as_it_says() -> None:
    generator, covered = np.random.default_rng(0), 0
    numbers = np.arange(25, 301, 25)
    truth = 0.9 * 300**-0.3 - 0.9 * 400**-0.3
    for _ in range(400):
        errors = 0.9 * numbers**-0.3 * np.exp(generator.normal(scale=0.05, size=len(numbers)))
        gain = expected_gain([(int(n), 1 - e, 0.0, 1.0) for n, e in zip(numbers, errors, strict=True)])
        assert gain is not None
        covered += abs(gain[0] - truth) <= gain[1]
    assert 0.85 < covered / 400 < 0.99
    assert expected_gain([(25, 0.5, 0, 1), (50, 0.6, 0, 1), (75, 0.7, 0, 1)]) is None


def test_vectors_are_computed_once_and_checked(encoder: Encoder, tmp_path: Path) -> None:
    texts, reports = ["the lens", "a court", "the lens of a judge"], []
    file = tmp_path / "vectors.npy"
    first = encode_texts(encoder, texts, file, lambda done, total: reports.append((done, total)))
    np.testing.assert_allclose(first, np.concatenate(list(encoder.classifier.vectors(texts))), atol=1e-6)
    assert reports == [(3, 3)]
    encode_texts(encoder, texts, file, lambda done, total: reports.append((done, total)))
    assert len(reports) == 1
    with pytest.raises(InputError):
        encode_texts(encoder, texts[:2], file)
