"""Decisions found on a small dev, held against many other documents: a simulated model that is undertrained below."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Outputs, calibrate
from hgclr.taxonomy import Taxonomy

SIZES = (16, 60, 120, 186)
"""Labels at each of four levels."""
WIDTH = 64


class World:
    """Texts are vectors near those of their labels, which lie near their parents'; frequencies fall as in Zipf's law.

    The model is a linear head after a hundred steps of gradient descent on 1,000 documents, from the labels' base
    rates: sure of the frequent labels at the top, and of few below.

    Args:
        noise: how far texts lie from their labels.
    """

    def __init__(self, noise: float) -> None:
        random = np.random.default_rng(0)
        parents = [-1] * SIZES[0]
        for above, size in itertools.pairwise(SIZES):
            parents += random.integers(len(parents) - above, len(parents), size).tolist()
        self.taxonomy = Taxonomy([f"label {label}" for label in range(len(parents))], parents)
        self.noise = noise
        self.vectors = np.zeros((len(parents), WIDTH))
        for depth, level in enumerate(self.taxonomy.levels):
            own = random.normal(0, 2 * 0.75**depth / WIDTH**0.5, (len(level), WIDTH))
            self.vectors[level] = own + (self.vectors[self.taxonomy.parents[level]] if depth else 0)
        rates = 1 / np.arange(1, len(self.taxonomy.leaves) + 1)
        self.rates = random.permutation(rates / rates.sum())
        texts, gold = self.documents(1000, seed=1)
        base = np.clip(gold.mean(axis=0), 0.0003, None)
        self.weight, self.bias = np.zeros_like(self.vectors), np.log(base / (1 - base))
        for _ in range(100):
            error = (1 / (1 + np.exp(-texts @ self.weight.T - self.bias)) - gold) / len(texts)
            self.weight -= 40 * error.T @ texts
            self.bias -= 2 * error.sum(axis=0)

    def documents(self, number: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Documents with one or two paths, of which some end above a leaf."""
        random = np.random.default_rng(seed)
        gold, texts = np.zeros((number, len(self.taxonomy)), dtype=bool), np.zeros((number, WIDTH))
        for row in range(number):
            leaves = random.choice(self.taxonomy.leaves, 1 + (random.random() < 0.3), p=self.rates, replace=False)
            for leaf in leaves.tolist():
                path = self.taxonomy.path(leaf)
                length = random.integers(1, len(path) + 1) if random.random() < 0.2 else len(path)
                gold[row, path[:length]] = True
                texts[row] += self.vectors[path[length - 1]] / len(leaves) ** 0.5
        return texts + random.normal(0, 2 * self.noise / WIDTH**0.5, texts.shape), gold

    def outputs(self, number: int, seed: int) -> Outputs:
        texts, gold = self.documents(number, seed)
        return Outputs((texts @ self.weight.T + self.bias).astype(np.float32), gold)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_new_documents_are_decided_better_than_at_one_half(noise: float) -> None:
    world = World(noise)
    test = world.outputs(3000, seed=2)

    def scores(predicted: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.array([f1_score(test.gold, predicted, average=kind, zero_division=0) for kind in ("micro", "macro")])

    def on_test(dev: Outputs, **choices) -> NDArray[np.float64]:
        found = calibrate(dev, Decisions(world.taxonomy), **choices).decisions
        return scores(found.decide(found.calibration(test.logits)).predicted)

    before = scores(test.logits > 0)
    devs = [world.outputs(documents, seed) for documents, seed in ((300, 3), (300, 4), (1000, 5))]
    both = [on_test(dev) for dev in devs]
    for after in both:
        assert after.mean() > before.mean() + 0.01
        assert (after > before - 0.01).all()
    # For Macro-F1 alone this world has a price: else it could not tell harm from none.
    paid = on_test(devs[0], metric="macro")
    assert paid[1] > before[1] + 0.02
    assert paid[0] < both[0][0] - 0.01
