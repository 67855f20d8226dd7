"""A classifier with known probabilities, data folders for it, and the audit's formula in plain loops."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from hgclr.data import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy
from support.decision_cases import path as path_to
from support.decision_cases import paths as all_paths


class KnownDecisions(Decisions):
    """Takes probabilities in the place of logits."""

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        return logits


class KnownClassifier(HierarchicalClassifier):
    """Answers with probabilities that are looked up by text."""

    def __init__(self, taxonomy: Taxonomy, answers: dict[str, np.ndarray], window: int = 7, **decisions) -> None:
        self.taxonomy, self.answers, self.WINDOW = taxonomy, answers, window
        self.decisions = KnownDecisions(taxonomy, **decisions)
        self.asked: list[str] = []

    def _compute(self, window: list[str]) -> tuple[np.ndarray, list[bool]]:
        self.asked += window
        return np.stack([self.answers[text] for text in window]).astype(np.float32), [False] * len(window)


def write_folder(
    path: Path, taxonomy: Taxonomy, documents: list[tuple[str, set[int]]], split: str = "dev"
) -> DataFolder:
    """Write documents, labels as sets of indices."""
    path.mkdir(exist_ok=True)
    taxonomy.write(path / "taxonomy.json")
    lines = [json.dumps({"text": text, "labels": [taxonomy.ids[k] for k in sorted(own)]}) for text, own in documents]
    (path / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return DataFolder(path)


def closed(taxonomy: Taxonomy, labels) -> set[int]:
    return {node for label in labels for node in path_to(taxonomy, label)}


def usual_agreement(
    taxonomy: Taxonomy, probabilities: np.ndarray, gold: list[set[int]]
) -> dict[tuple[int, bool], float]:
    """The mean agreement with each decision, shrunk towards the mean of the level by ten documents."""
    agreements: dict[tuple[int, bool], list[float]] = {}
    for row, own in zip(probabilities.tolist(), gold, strict=True):
        for label, p in enumerate(row):
            agreements.setdefault((label, label in own), []).append(p if label in own else 1 - p)
    usual = {}
    for label in range(len(taxonomy)):
        for given in (True, False):
            level = [
                a
                for (other, decision), values in agreements.items()
                if decision == given and len(path_to(taxonomy, other)) == len(path_to(taxonomy, label))
                for a in values
            ]
            mine = agreements.get((label, given), [])
            mean = sum(level) / len(level) if level else 0.0
            usual[label, given] = (sum(mine) + 10 * mean) / (len(mine) + 10)
    return usual


def score_by_hand(taxonomy: Taxonomy, row: np.ndarray, own: set[int], other: set[int], usual) -> float:
    """The score of one document: worst extra branch plus worst missing branch."""

    def strength(label: int) -> float:
        given = label in own
        agreement = row[label] if given else 1 - row[label]
        weight = (2 + 1 / len(path_to(taxonomy, label))) / 3
        return weight * max(0.0, math.log10(usual[label, given] / max(agreement, 1e-4)))

    total = 0.0
    for side in (own - other, other - own):
        branches = []
        for top in side:
            if int(taxonomy.parents[top]) not in side:
                below = [strength(label) for label in side if top in path_to(taxonomy, label)]
                branches.append(sum(below) / len(below))
        total += max(branches, default=0.0)
    return total


def kind_by_hand(taxonomy: Taxonomy, own: set[int], other: set[int]) -> str:
    """In which way two sets of labels differ, from their paths."""

    def paths(labels: set[int]) -> list[list[int]]:
        inner = {int(taxonomy.parents[label]) for label in labels}
        return [path for label in labels if label not in inner for path in all_paths(taxonomy, label)]

    if own - other and other - own:
        return "other path"
    small, large = (own, other) if other - own else (other, own)
    # Every path of the larger set goes through the end of a path of the smaller one, or is one of its paths.
    deeper = all(any(path[: len(short)] == short for short in paths(small)) for path in paths(large))
    if other - own:
        return "too shallow" if deeper else "missing label"
    return "too deep" if deeper else "extra label"
