"""The strongest words of labels against scikit-learn's vectoriser and by hand."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from hgclr.errors import MissingExtraError
from hgclr.paper.models.himatch import label_words


def make_documents(texts: list[list[int]], labels: list[list[int]]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"input_ids": texts, "labels": labels})


def test_words_are_ordered_as_by_scikit_learns_vectoriser() -> None:
    random = np.random.default_rng(0)
    labels = [sorted(random.choice(5, size=2, replace=False).tolist()) for _ in range(60)]
    texts = [[1, *(random.zipf(1.3, 12) % 40 + 10).tolist(), *(100 + label for label in gold), 2] for gold in labels]
    found = label_words(make_documents(texts, labels), labels=6, vocabulary=110, special=[1, 2], most=8)

    belonging = [[text[1:-1] for text, gold in zip(texts, labels, strict=True) if k in gold] for k in range(6)]
    joined = [" ".join(str(token) for text in group for token in text) for group in belonging]
    vectoriser = TfidfVectorizer(token_pattern=r"\d+", norm=None)
    weights = vectoriser.fit_transform(joined).toarray()
    column = {int(word): place for word, place in vectoriser.vocabulary_.items()}
    for k, group in enumerate(belonging):
        allowed = [
            token
            for token in column
            if sum(token in text for text in group) >= 0.1 * len(group) > 0
            and sum(token in text[1:-1] for text in texts) <= 0.8 * len(texts)
        ]
        expected = sorted(allowed, key=lambda token: (-weights[k, column[token]], token))[:8]
        assert found[k].tolist() == expected
    assert all(100 + k in found[k] for k in range(5))  # though all documents of the label have it
    assert len(found[5]) == 0  # no documents


def test_a_label_with_common_words_alone_has_its_most_frequent_ones() -> None:
    """The two words are in all documents, so that none of them counts; label 1 has one of them more often."""
    texts = [[0, 7, 8, 0], [0, 8, 7, 8, 0], [0, 7, 8, 0]]
    found = label_words(make_documents(texts, [[0], [1], [0]]), labels=2, vocabulary=9, special=[0], most=5)
    assert [words.tolist() for words in found] == [[7, 8], [8, 7]]


def test_rare_words_of_a_large_label_do_not_count() -> None:
    texts = [[3]] * 10 + [[3, 4]] + [[5]] * 5
    found = label_words(make_documents(texts, [[0]] * 11 + [[1]] * 5), labels=2, vocabulary=6, special=[], most=5)
    assert [words.tolist() for words in found] == [[3], [5]]  # 4 is in one of eleven


def test_no_words_for_texts_of_special_tokens_and_for_no_room() -> None:
    documents = make_documents([[1, 2], [1, 5, 2]], [[0], [1]])
    for most, expected in ((5, [[], [5]]), (0, [[], []])):
        found = label_words(documents, labels=2, vocabulary=6, special=[1, 2], most=most)
        assert [words.tolist() for words in found] == expected


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[paper\]'"):
        label_words(make_documents([[1]], [[0]]), labels=1, vocabulary=2, special=[], most=1)
