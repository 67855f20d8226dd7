"""What an audit finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hgclr.auditing.scoring import Kind
from hgclr.inference.predictions import PredictedLabel

__all__ = ["Audit", "ConfusedPair", "Contradiction", "DoubtfulLabel", "Finding"]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A decision of the annotation that the model contradicts.

    Args:
        label: the label, with its probability.
        given: whether the document is given it; the model would decide otherwise.
        usual: the model's mean agreement with such decisions about this label.
        strength: of the contradiction; see :func:`~hgclr.auditing.scoring.contradictions`.
    """

    label: PredictedLabel
    given: bool
    usual: float
    strength: float

    def to_json(self) -> dict[str, Any]:
        """Return it in plain Python types."""
        numbers = {"usual": round(self.usual, 4), "strength": round(self.strength, 4)}
        return {**self.label.to_json(), "given": self.given, **numbers}


@dataclass(frozen=True, slots=True)
class Finding:
    """A document whose labels the model contradicts.

    Args:
        row: its place in the file: the line in a text file (a table's header is line 1), else counted from 1.
        text: the text.
        given: the ends of the paths that it is given.
        suggested: the ends of the paths that the model would give it.
        kind: in which way the two differ; see :func:`~hgclr.auditing.scoring.kinds`.
        level: the level, 1 for the top, at which they part: the first at which a label is another, missing or extra.
        common: the path down to the label after which ``other path`` parts, their lowest common ancestor; empty where
            paths have nothing in common, and for other kinds.
        score: how strong the contradiction is; see :func:`~hgclr.auditing.scoring.document_scores`.
        contradictions: the labels about which they differ, parents before their children.
    """

    row: int
    text: str
    given: tuple[PredictedLabel, ...]
    suggested: tuple[PredictedLabel, ...]
    kind: Kind
    level: int
    common: tuple[str, ...]
    score: float
    contradictions: tuple[Contradiction, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it in plain Python types."""
        return {
            "row": self.row,
            "score": round(self.score, 4),
            "kind": self.kind,
            "level": self.level,
            "common": list(self.common),
            "text": self.text,
            "given": [label.to_json() for label in self.given],
            "suggested": [label.to_json() for label in self.suggested],
            "contradictions": [contradiction.to_json() for contradiction in self.contradictions],
        }


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two labels that annotation and model take for each other.

    Args:
        first, second: the labels, by id.
        paths: the names down to each.
        first_given: documents that are given the first, and the second is suggested.
        second_given: documents the other way round.
        examples: rows and texts of those that are contradicted most.
    """

    first: str
    second: str
    paths: tuple[tuple[str, ...], tuple[str, ...]]
    first_given: int
    second_given: int
    examples: tuple[tuple[int, str], ...]

    @property
    def documents(self) -> int:
        """Documents in all."""
        return self.first_given + self.second_given


@dataclass(frozen=True, slots=True)
class DoubtfulLabel:
    """A label whose documents are often contradicted.

    Args:
        id: the label.
        path: the names down to it.
        given: documents that are given it.
        wrong: those of them that surely should not be: the contradiction is at least 1, ten times at a top label.
        missing: documents that surely should be given it, and are not.
        usual: the model's mean agreement with its documents.
    """

    id: str
    path: tuple[str, ...]
    given: int
    wrong: int
    missing: int
    usual: float

    @property
    def error_rate(self) -> float:
        """The estimated share of its documents that should not be given it."""
        return self.wrong / self.given if self.given else 0.0


@dataclass(frozen=True)
class Audit:
    """The result.

    Args:
        data: the name of the data folder.
        file: what was audited.
        split: which split it is.
        documents: how many were looked at.
        kinds: how many are contradicted, by kind.
        findings: those that are contradicted most, the strongest first.
        pairs: labels that are confused most.
        labels: labels whose documents are contradicted most.
    """

    data: str
    file: str
    split: str
    documents: int
    kinds: Mapping[Kind, int]
    findings: tuple[Finding, ...]
    pairs: tuple[ConfusedPair, ...]
    labels: tuple[DoubtfulLabel, ...]

    @property
    def contradicted(self) -> int:
        """The number of documents that the model would label otherwise."""
        return sum(self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        return {
            "kind": "hgclr audit",
            "version": 1,
            "data": self.data,
            "file": self.file,
            "split": self.split,
            "documents": self.documents,
            "contradicted": self.contradicted,
            "kinds": dict(self.kinds),
            "findings": [finding.to_json() for finding in self.findings],
            "pairs": [{**asdict(pair), "documents": pair.documents} for pair in self.pairs],
            "labels": [{**asdict(label), "error_rate": round(label.error_rate, 4)} for label in self.labels],
        }
