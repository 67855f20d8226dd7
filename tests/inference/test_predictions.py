"""Predictions made from given probabilities: order, paths, decisions for each text, blank texts, NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.classifier import BLANK, TokenisedText
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


class Given:
    """A backend that knows the probabilities: row r for a text whose first token is r + 1."""

    batch_tokens = 1024

    def __init__(self, probabilities: np.ndarray) -> None:
        self.values = np.log(probabilities / (1 - probabilities)).astype(np.float32)

    def logits(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        return self.values[input_ids[:, 0] - 1]


def given_classifier(taxonomy: Taxonomy, probabilities: np.ndarray) -> HierarchicalClassifier:
    words = {"[PAD]": 0} | {f"t{row}": row + 1 for row in range(len(probabilities))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return HierarchicalClassifier(Given(probabilities), tokenizer, taxonomy, pad_token=0, max_length=4)


def tokens(row: int, *, truncated: bool = False, blank: bool = False) -> TokenisedText:
    return TokenisedText([row + 1], truncated, BLANK.note if blank else None)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(taxonomies(), st.randoms(use_true_random=False))
def test_labels_are_sorted_by_their_paths_of_names(taxonomy: Taxonomy, random) -> None:
    paths = [tuple(taxonomy.names[node] for node in taxonomy.path(label)) for label in range(len(taxonomy))]
    probabilities = np.array([[random.uniform(0.01, 0.99) for _ in paths]])
    ((prediction,), seen) = given_classifier(taxonomy, probabilities).predict_batch([tokens(0)])
    np.testing.assert_allclose(seen, probabilities, atol=1e-6)
    chosen = np.flatnonzero(seen[0] > 0.5)
    expected = sorted((paths[label], taxonomy.ids[label], float(seen[0, label])) for label in chosen)
    assert [(label.path, label.id, label.probability) for label in prediction.labels] == expected


def test_every_text_of_a_batch_has_its_own_decisions(taxonomy) -> None:
    generator = np.random.default_rng(3)
    classifier = given_classifier(taxonomy, generator.uniform(0.01, 0.99, size=(6, len(taxonomy))))
    strict, closed = Decisions(taxonomy, thresholds=0.9, abstain_below=0.95), Decisions(taxonomy, "closure")
    each = [strict, closed, strict, closed, closed, strict]
    batch = [tokens(row, truncated=row == 1) for row in range(6)]
    batch[4] = tokens(4, blank=True)
    together, probabilities = classifier.predict_batch(batch, each)
    alone = [classifier.predict_batch([text], decisions) for text, decisions in zip(batch, each, strict=True)]
    assert together == [prediction for (prediction,), _ in alone]
    np.testing.assert_array_equal(probabilities, np.concatenate([values for _, values in alone]))
    assert together[4] is BLANK
    assert not probabilities[4].any()
    assert [prediction.truncated for prediction in together] == [False, True, False, False, False, False]
    fields = together[1].to_json()
    assert list(fields) == ["labels", "abstained", "truncated"]
    assert list(BLANK.to_json()) == ["labels", "abstained", "truncated", "note"]


def test_truncated_texts_are_marked(taxonomy) -> None:
    classifier = given_classifier(taxonomy, np.full((2, len(taxonomy)), 0.6))
    texts = ["t0", "t1 t0 t0 t0", "t1 t0 t0 t0 t0", " "]
    assert [text.truncated for text in classifier.tokenise(texts)] == [False, False, True, False]
    assert [prediction.truncated for prediction in classifier.predict(texts)] == [False, False, True, False]


def test_nan_is_refused(taxonomy) -> None:
    values = np.full((2, len(taxonomy)), 0.6)
    values[1, 0] = np.nan
    classifier = given_classifier(taxonomy, values)
    assert classifier.predict("t0").labels
    with pytest.raises(InputError, match="NaN") as caught:
        classifier.predict(["t0", "t1"])
    assert caught.value.remedy
