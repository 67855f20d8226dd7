"""Texts that give their labels away, with labels in every form that the estimator takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WORDS = {
    "science > physics": "atom laser quantum",
    "science > physics > optics": "lens mirror prism",
    "science > chemistry": "acid salt molecule",
    "society > law": "court judge contract",
    "society > sports > tennis": "racket serve net",
}
LABELS = sorted({" > ".join(path.split(" > ")[:depth]) for path in WORDS for depth in (1, 2, 3)})
"""All labels on these paths. No name sorts before the separator, so that this is the order of their names too."""
TREE = {"science": {"chemistry": {}, "physics": {"optics": {}}}, "society": {"law": {}, "sports": {"tennis": {}}}}


class Corpus(NamedTuple):
    """Texts and, for each, its paths."""

    texts: list[str]
    paths: list[list[str]]

    @property
    def strings(self) -> list[str]:
        return [path for (path,) in self.paths]

    @property
    def tuples(self) -> list[tuple[str, ...]]:
        return [tuple(path.split(" > ")) for path in self.strings]

    @property
    def matrix(self) -> np.ndarray:
        """A column for each of LABELS: the paths and all that they begin with."""
        return np.array(
            [
                [any(f"{path} > ".startswith(f"{label} > ") for path in paths) for label in LABELS]
                for paths in self.paths
            ]
        )

    @property
    def tree(self) -> dict[str, object]:
        return TREE

    def first(self, count: int) -> Corpus:
        return Corpus(self.texts[:count], self.paths[:count])


def corpus(count: int, *, several: bool = False, seed: int = 3) -> Corpus:
    """Return texts with one path each, or with one and two by turns."""
    random = np.random.default_rng(seed)
    made = Corpus([], [])
    for number in range(count):
        chosen = random.choice(len(WORDS), size=2 if several and number % 2 else 1, replace=False)
        paths = [sorted(WORDS)[topic] for topic in sorted(chosen)]
        made.texts.append(" ".join(word for path in paths for word in random.choice(WORDS[path].split(), 4)))
        made.paths.append(paths)
    return made
