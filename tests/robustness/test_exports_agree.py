"""One model in all its forms gives the same numbers for the same texts, within what is promised for each form."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np

from hgclr.inference import HierarchicalClassifier
from support.toy import TEXTS

TOLERANCES = {"torch": 0.0, "stock": 1e-5, "modules": 1e-5, "onnx": 1e-5, "int8": 0.15}
"""How far a logit may be from the trained model's, as docs/concepts/reliability.md has it; int8 for this model only."""
MANY = [*TEXTS, "", "a", " ".join(TEXTS) * 5, "ünknown wörds", "the " * 200]


def test_all_forms_give_the_same_logits(models: Path) -> None:
    logits = {
        form: np.concatenate(list(HierarchicalClassifier.from_pretrained(models / form).logits(MANY)))
        for form in TOLERANCES
    }
    assert np.abs(logits["torch"]).max() > 0.3  # there is something to be wrong about
    for one, other in combinations(TOLERANCES, 2):
        scale = np.maximum(np.abs(logits[one]), 1)
        apart = (np.abs(logits[one] - logits[other]) / scale).max()
        assert apart <= TOLERANCES[one] + TOLERANCES[other], (one, other)
    assert np.abs(logits["int8"] - logits["torch"]).max() > 1e-5  # it is another graph


def test_all_forms_decide_alike_where_it_is_clear(models: Path) -> None:
    answers = {}
    for form in TOLERANCES:
        classifier = HierarchicalClassifier.from_pretrained(models / form)
        answers[form] = classifier.predict_proba(MANY)
    clear = np.abs(answers["torch"] - 0.5) > TOLERANCES["int8"] / 4  # a logit is worth a quarter of itself there
    for form, probabilities in answers.items():
        assert ((probabilities > 0.5) == (answers["torch"] > 0.5))[clear].all(), form
