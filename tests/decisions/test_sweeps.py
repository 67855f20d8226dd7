"""What is counted for a whole grid of thresholds is what decoding with each of them gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgclr.decisions.decoding import Decoder, Rule
from hgclr.decisions.thresholds import STEPS, BestPathSweep, DecodedSweep, RuleSweep
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, forests

RULES: list[Rule] = ["threshold", "closure", "drop-orphans", "min-parent"]


def problem(taxonomy: Taxonomy, seed: int, fineness: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, many of them on the grid itself, closed gold labels, and thresholds one for each level."""
    random = np.random.default_rng(seed)
    gold = taxonomy.close(random.random((7, len(taxonomy))) < 0.3)
    probabilities = (random.integers(0, fineness + 1, gold.shape) / fineness).astype(np.float32)
    of_level = random.integers(1, STEPS, taxonomy.depth) / STEPS
    return probabilities, gold, of_level[taxonomy.depths - 1].astype(np.float32)


def by_decoding(sweep, taxonomy, rule, probabilities, gold, thresholds, labels, **choices) -> list[list[float]]:
    """The counts of every fifth step."""
    rows = []
    for step in sweep.steps[::5]:
        changed = thresholds.copy()
        changed[labels] = step / STEPS
        predicted = Decoder(taxonomy, rule, changed, **choices)(probabilities)
        scores = [
            2 * (predicted[:, k] & gold[:, k]).sum() / max(1, predicted[:, k].sum() + gold[:, k].sum())
            for k in range(len(taxonomy))
        ]
        rows.append([(predicted & gold).sum(), predicted.sum(), sum(scores)])
    return rows


@pytest.mark.slow
@REPEATABLE
@given(forests(), st.integers(0, 2**32 - 1), st.sampled_from([4, 128, 1000]), st.sampled_from(RULES))
def test_rules(taxonomy: Taxonomy, seed: int, fineness: int, rule: Rule) -> None:
    probabilities, gold, thresholds = problem(taxonomy, seed, fineness)
    sweep = RuleSweep(taxonomy, rule, probabilities, gold)
    for labels in (np.arange(len(taxonomy)), *taxonomy.levels, np.array([seed % len(taxonomy)])):
        expected = by_decoding(sweep, taxonomy, rule, probabilities, gold, thresholds, labels)
        np.testing.assert_allclose(np.transpose(sweep(thresholds, labels))[::5], expected)


@pytest.mark.slow
@REPEATABLE
@given(forests(), st.integers(0, 2**32 - 1), st.booleans())
def test_best_path(taxonomy: Taxonomy, seed: int, allow_inner_nodes: bool) -> None:
    """Random numbers, so that no two paths are equally good but for the rounding of a sum."""
    _, gold, thresholds = problem(taxonomy, seed, 1)
    probabilities = np.random.default_rng(seed).random(gold.shape, dtype=np.float32)
    sweep = BestPathSweep(taxonomy, probabilities, gold, allow_inner_nodes)
    for labels in (np.arange(len(taxonomy)), *taxonomy.levels):
        expected = by_decoding(
            sweep, taxonomy, "best-path", probabilities, gold, thresholds, labels, allow_inner_nodes=allow_inner_nodes
        )
        np.testing.assert_allclose(np.transpose(sweep(thresholds, labels))[::5], expected)


@pytest.mark.parametrize("paths", [1, 2])
def test_decoding(paths: int) -> None:
    taxonomy = Taxonomy(["a", "b", "a1", "a2"], [-1, -1, 0, 0])
    probabilities, gold, thresholds = problem(taxonomy, 5, 1000)

    def decoder(values: np.ndarray) -> Decoder:
        return Decoder(taxonomy, "top-k-paths", values, paths=paths)

    sweep = DecodedSweep(decoder, probabilities, gold)
    expected = by_decoding(
        sweep, taxonomy, "top-k-paths", probabilities, gold, thresholds, taxonomy.levels[1], paths=paths
    )
    np.testing.assert_allclose(np.transpose(sweep(thresholds, taxonomy.levels[1]))[::5], expected)
