"""Random label trees of any size."""

from __future__ import annotations

import numpy as np

from hgclr.taxonomy import Taxonomy

__all__ = ["random_tree"]

WORDS = ["theory", "modern", "applied", "quantum", "systems", "art", "law", "health", "learning", "ocean", "history"]


def random_tree(labels: int) -> Taxonomy:
    """Return a random tree. The parent of a label is an earlier label or none; names have one to three words."""
    random = np.random.default_rng(labels)
    parents = np.floor(random.random(labels) * (np.arange(labels) + 1)).astype(np.int64) - 1
    names = [f"{' '.join(random.choice(WORDS, 1 + label % 3))} {label}" for label in range(labels)]
    return Taxonomy([f"label {label}" for label in range(labels)], parents, names)
