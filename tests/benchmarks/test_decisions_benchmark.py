"""The benchmark of decisions: what it tunes on dev, it scores on test."""

from __future__ import annotations

import numpy as np
import pytest

import decisions
from hgclr.decisions.tuning import Outputs
from hgclr.taxonomy import Taxonomy


@pytest.fixture
def outputs(taxonomy: Taxonomy) -> Outputs:
    """Logits that tell gold labels apart, but all so low that one half misses most of them."""
    random = np.random.default_rng(3)
    gold = taxonomy.close(random.random((400, len(taxonomy))) < 0.15)
    logits = 4.0 * gold - 5.0 + random.normal(0, 0.7, gold.shape)
    return Outputs(logits.astype(np.float32), gold)


def test_few_documents_of_dev_mend_what_one_half_misses(outputs: Outputs, taxonomy: Taxonomy) -> None:
    dev, test = (Outputs(outputs.logits[part], outputs.gold[part]) for part in (slice(0, 150), slice(150, None)))
    before = test.logits.copy()
    found = decisions.of_dev_sizes(dev, test, taxonomy)
    assert list(found) == ["one half", "10 documents", "30 documents", "100 documents", "150 documents"]
    assert found["one half"]["macro_f1"] < 40
    assert found["30 documents"]["macro_f1"] > 80
    for scores in found.values():
        assert scores["lowest_macro_f1"] <= scores["macro_f1"]
    assert np.array_equal(test.logits, before)


def test_what_calibrate_finds_is_scored_with_its_risks(outputs: Outputs, taxonomy: Taxonomy) -> None:
    found = decisions.of_all(outputs, outputs, taxonomy)
    assert found["thresholds"] in ("global", "level", "label")
    assert found["scores"]["micro_f1"] > 80
    kept = [found["risks"][str(risk)]["kept"] for risk in decisions.RISKS]
    assert kept == sorted(kept, reverse=True)
    assert all(found["risks"][str(risk)]["wrong"] <= 100 * risk + 1e-6 for risk in decisions.RISKS)
