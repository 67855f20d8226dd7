"""A quick estimator on a tiny encoder, and one fitted for each form of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hgclr.estimator import HGCLRClassifier
from support.toy_corpus import Corpus, corpus


@pytest.fixture(scope="session")
def quick(make_encoder) -> Callable[..., HGCLRClassifier]:
    """Return a function that makes an estimator which learns the toy corpus in a second, by its head alone.

    On a random encoder a fit of the head depends little on the seed; training all weights depends on it.
    """

    def make(**parameters: Any) -> HGCLRClassifier:
        defaults = {
            "architecture": "flat",
            "effort": "head",
            "precision": "fp32",
            "random_state": 0,
            "settings": {"pooling": "mean"},  # a random encoder's first token carries little information
        }
        return HGCLRClassifier(make_encoder("bert"), **(defaults | parameters))

    return make


@pytest.fixture(scope="session")
def one_path() -> Corpus:
    return corpus(80)


@pytest.fixture(scope="session")
def several_paths() -> Corpus:
    return corpus(60, several=True)


@pytest.fixture(scope="session")
def on_strings(quick, one_path: Corpus) -> HGCLRClassifier:
    """Fitted to one path for each document."""
    return quick().fit(one_path.texts, one_path.strings)


@pytest.fixture(scope="session")
def on_lists(quick, several_paths: Corpus) -> HGCLRClassifier:
    """Fitted to a list of paths for each document."""
    return quick(validation_fraction=0.2).fit(several_paths.texts, several_paths.paths)


@pytest.fixture(scope="session")
def on_matrix(quick, several_paths: Corpus) -> HGCLRClassifier:
    """Fitted to an indicator matrix."""
    return quick(taxonomy=several_paths.tree).fit(several_paths.texts, several_paths.matrix.astype(np.int8))
