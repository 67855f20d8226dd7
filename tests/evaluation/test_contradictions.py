"""Scores of contradictions against plain loops on random trees; planted errors rank first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hgclr.decisions.decoding import Decoder
from hgclr.evaluation.audit import Audit, audit
from hgclr.taxonomy import Taxonomy
from support.audit_cases import (
    KnownClassifier,
    closed,
    kind_by_hand,
    path_to,
    score_by_hand,
    usual_agreement,
    write_folder,
)
from support.toy import random_tree


def random_case(seed: int) -> tuple[Taxonomy, np.ndarray, list[set[int]]]:
    random = np.random.default_rng(seed)
    taxonomy = random_tree(int(random.integers(2, 14)), seed, deep=seed % 5 == 0)
    probabilities = random.beta(0.4, 0.4, (30, len(taxonomy))).astype(np.float32)
    probabilities[random.random(probabilities.shape) < 0.1] = 0.0  # the formula must work with probabilities of 0
    probabilities[random.random(probabilities.shape) < 0.1] = 1.0
    gold = [closed(taxonomy, random.choice(len(taxonomy), random.integers(1, 4)).tolist()) for _ in range(30)]
    return taxonomy, probabilities, gold


def test_scores_kinds_and_order_are_those_of_plain_loops(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(8):
        kinds |= check_case(seed, tmp_path / str(seed))
    assert kinds == {"other path", "missing label", "extra label", "too shallow", "too deep"}


def check_case(seed: int, path: Path) -> set[str]:
    taxonomy, probabilities, gold = random_case(seed)
    texts = [f"text {number}" for number in range(len(gold))]
    folder = write_folder(path, taxonomy, list(zip(texts, gold, strict=True)))
    classifier = KnownClassifier(taxonomy, dict(zip(texts, probabilities, strict=True)), rule="drop-orphans")
    found = audit(classifier, folder, "dev", top=1000)

    chosen = Decoder(taxonomy, "drop-orphans")(probabilities)
    usual = usual_agreement(taxonomy, probabilities, gold)
    expected = []
    for number, own in enumerate(gold):
        other = set(np.flatnonzero(chosen[number]).tolist())
        if own != other:
            score = score_by_hand(taxonomy, probabilities[number].astype(float), own, other, usual)
            expected.append((number + 1, score, kind_by_hand(taxonomy, own, other)))
    expected.sort(key=lambda one: (-one[1], one[0]))
    assert found.documents == 30
    assert found.contradicted == len(expected) > 0
    scores = [finding.score for finding in found.findings]
    assert scores == pytest.approx([score for _, score, _ in expected], abs=1e-6)
    assert scores == sorted(scores, reverse=True)
    by_row = {row: (score, kind) for row, score, kind in expected}
    for finding in found.findings:
        score, kind = by_row.pop(finding.row)
        assert (finding.score, finding.kind) == (pytest.approx(score, abs=1e-6), kind)
        assert finding.text == f"text {finding.row - 1}"
    assert not by_row
    return {kind for _, _, kind in expected}


@pytest.mark.parametrize("window", [1, 4])
def test_batches_do_not_change_results(window: int, tmp_path: Path) -> None:
    taxonomy, probabilities, gold = random_case(3)
    texts = [f"text {number}" for number in range(len(gold))]
    folder = write_folder(tmp_path / "data", taxonomy, list(zip(texts, gold, strict=True)))
    answers = dict(zip(texts, probabilities, strict=True))
    whole, parts = (
        audit(KnownClassifier(taxonomy, answers, size, rule="closure"), folder, top=9).to_json()
        for size in (30, window)
    )
    assert parts == whole
    assert len(whole["findings"]) == 9 < whole["contradicted"]


def single_path_tree() -> Taxonomy:
    """Four top labels with five leaves each."""
    ids = [f"top {top}" for top in range(4)] + [f"leaf {leaf}" for leaf in range(20)]
    return Taxonomy(ids, [-1] * 4 + [leaf // 5 for leaf in range(20)])


def planted(tmp_path: Path, *, errors: int, mistaken: int, unsure: int) -> tuple[Audit, set[int]]:
    """400 documents; ``errors`` are annotated wrongly, of ``mistaken`` the model is sure of something wrong.

    Of what is right the model is sure, between 0.8 and 0.99; of all else it thinks 0.005 to 0.02. About ``unsure``
    others it cannot decide: it gives 0.45 to what they are given and 0.5 to another leaf of the same top label.
    """
    random, taxonomy = np.random.default_rng(8), single_path_tree()
    documents, answers = [], {}
    wrong = set(range(errors))
    for number in range(400):
        right = int(random.integers(4, 24))
        others = [leaf for leaf in range(4, 24) if leaf != right]
        given = int(random.choice(others)) if number in wrong else right
        seen = right
        if errors <= number < errors + mistaken:
            seen = int(random.choice(others))
        row = random.uniform(0.005, 0.02, 24)
        row[path_to(taxonomy, seen)] = random.uniform(0.8, 0.99, 2)
        if errors + mistaken <= number < errors + mistaken + unsure:
            sibling = next(leaf for leaf in others if taxonomy.parents[leaf] == taxonomy.parents[right])
            row[right], row[sibling] = 0.45, 0.5
        documents.append((f"text {number}", set(path_to(taxonomy, given))))
        answers[f"text {number}"] = row
    folder = write_folder(tmp_path / "data", taxonomy, documents)
    found = audit(KnownClassifier(taxonomy, answers, window=64), folder, top=errors)
    return found, {number + 1 for number in wrong}


def test_planted_errors_come_before_documents_about_which_the_model_is_unsure(tmp_path: Path) -> None:
    """Errors and unsure documents cannot mix.

    An error has an extra label at no more than 0.02, whose mean is at least 0.6 (nine in ten are right, at 0.8 or
    more): the weight of a leaf, 5/6, times log10(0.6 / 0.02) is 1.2. An unsure one has an extra label at 0.45 and a
    missing one at 0.5: at most 5/6 (log10(1 / 0.45) + log10(1 / 0.5)) = 0.54.
    """
    found, wrong = planted(tmp_path, errors=40, mistaken=0, unsure=60)
    assert {finding.row for finding in found.findings} == wrong
    assert found.contradicted == 100
    assert all(finding.score > 1.2 for finding in found.findings)


def test_a_label_of_which_the_model_is_never_sure_does_not_fill_the_list(tmp_path: Path) -> None:
    """It has not learned "c": 30 documents at 0.01; one document with "b" at 0.02 is the only real surprise."""
    taxonomy = Taxonomy(["a", "b", "c"], [-1, -1, -1])
    documents = (
        [(f"a{n}", {0}) for n in range(60)] + [(f"b{n}", {1}) for n in range(60)] + [(f"c{n}", {2}) for n in range(30)]
    )
    answers = {text: np.array([0.6, 0.3, 0.01]) for text, _ in documents}
    answers |= {f"b{n}": np.array([0.1, 0.8, 0.01]) for n in range(60)}
    answers["b7"] = np.array([0.6, 0.02, 0.01])
    folder = write_folder(tmp_path / "data", taxonomy, documents)
    found = audit(KnownClassifier(taxonomy, answers), folder, top=31)
    assert found.contradicted == 31
    assert found.findings[0].text == "b7"  # though its gold label is twice as probable as that of all others
    assert {finding.gold[0].id for finding in found.findings[1:]} == {"c"}


def test_a_wrong_top_label_is_worse(tmp_path: Path) -> None:
    """The same probabilities, but one document's paths diverge at the top and the other's at the leaf."""
    taxonomy = Taxonomy(["A", "a1", "a2", "B", "b1"], [-1, 0, 0, -1, 3])
    answers = {
        "leaf": np.array([0.9, 0.01, 0.9, 0.01, 0.01]),
        "top": np.array([0.01, 0.01, 0.01, 0.9, 0.9]),
        **{f"right {n}": np.array([0.9, 0.9, 0.01, 0.01, 0.01]) for n in range(50)},
    }
    documents = [("leaf", {0, 1}), ("top", {0, 1}), *((f"right {n}", {0, 1}) for n in range(50))]
    found = audit(KnownClassifier(taxonomy, answers), write_folder(tmp_path / "data", taxonomy, documents))
    assert [(finding.text, finding.level) for finding in found.findings] == [("top", 1), ("leaf", 2)]
