"""What an audit finds, and the files it is written to: a page to look at, a table to fill in, JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hgclr.evaluation.audit_scores import Kind
from hgclr.files import TableWriter, json_bytes, write_files
from hgclr.inference.predictions import PredictedLabel
from hgclr.presentation import render_page

COLUMNS = ("row", "text", "gold", "predicted", "kind", "level", "score", "verdict")
"""Of the table, before the other columns of the data; the last of these is empty, for the reviewer."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A decision of the annotation that the model contradicts.

    Args:
        label: the label, with its probability.
        gold: whether it is a gold label of the document; the model would decide otherwise.
        usual: the model's mean agreement with such decisions about this label.
        strength: of the contradiction; see :meth:`~hgclr.evaluation.audit_scores.Scorer.strengths`.
    """

    label: PredictedLabel
    gold: bool
    usual: float
    strength: float

    def to_json(self) -> dict[str, Any]:
        numbers = {"usual": round(self.usual, 4), "strength": round(self.strength, 4)}
        return {**self.label.to_json(), "gold": self.gold, **numbers}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A document whose gold labels the model contradicts.

    Args:
        row: its place in the file: the line in a text file (a table's header is line 1), else counted from 1.
        text: the text.
        gold: the ends of the paths of its gold labels.
        predicted: the ends of the paths that the model would give it.
        kind: in which way the two differ; see :meth:`~hgclr.evaluation.audit_scores.Scorer.kind`.
        level: the level, 1 for the top, at which they part: the first at which a label is another, missing or extra.
        common: the path down to the label after which ``other path`` parts, their lowest common ancestor; empty where
            paths have nothing in common, and for other kinds.
        score: how strong the contradiction is; see :meth:`~hgclr.evaluation.audit_scores.Scorer.score`.
        contradictions: the labels about which they differ, parents before their children.
        columns: what else the file has in its row, such as an id.
    """

    row: int
    text: str
    gold: tuple[PredictedLabel, ...]
    predicted: tuple[PredictedLabel, ...]
    kind: Kind
    level: int
    common: tuple[str, ...]
    score: float
    contradictions: tuple[Contradiction, ...]
    columns: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it in plain Python types."""
        return {
            "row": self.row,
            "score": round(self.score, 4),
            "kind": self.kind,
            "level": self.level,
            "common": list(self.common),
            "text": self.text,
            "gold": [label.to_json() for label in self.gold],
            "predicted": [label.to_json() for label in self.predicted],
            "contradictions": [contradiction.to_json() for contradiction in self.contradictions],
            "columns": dict(self.columns),
        }


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two labels that annotation and model take for each other.

    Args:
        first, second: the labels, by id.
        paths: the names down to each.
        first_gold: documents of which the first is gold and the second predicted.
        second_gold: documents the other way round.
        examples: rows and texts of those that are contradicted most.
    """

    first: str
    second: str
    paths: tuple[tuple[str, ...], tuple[str, ...]]
    first_gold: int
    second_gold: int
    examples: tuple[tuple[int, str], ...]

    @property
    def documents(self) -> int:
        return self.first_gold + self.second_gold


@dataclass(frozen=True, slots=True)
class SuspectLabel:
    """A label whose gold documents are often contradicted.

    Args:
        id: the label.
        path: the names down to it.
        gold: documents that it is a gold label of.
        wrong: those of them that surely should not have it: the contradiction is at least 1, ten times at a top label.
        missing: documents that surely should have it, and do not.
        usual: the model's mean agreement with its gold documents.
    """

    id: str
    path: tuple[str, ...]
    gold: int
    wrong: int
    missing: int
    usual: float

    @property
    def error_rate(self) -> float:
        """The estimated share of its gold documents that should not have it."""
        return self.wrong / self.gold if self.gold else 0.0


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
        suspect_labels: labels whose gold documents are contradicted most.
    """

    data: str
    file: str
    split: str
    documents: int
    kinds: Mapping[Kind, int]
    findings: tuple[AuditFinding, ...]
    pairs: tuple[ConfusedPair, ...]
    suspect_labels: tuple[SuspectLabel, ...]

    @property
    def contradicted(self) -> int:
        """The number of documents that the model would label otherwise."""
        return sum(self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        return {
            "kind": "hgclr audit",
            "version": 2,
            "data": self.data,
            "file": self.file,
            "split": self.split,
            "documents": self.documents,
            "contradicted": self.contradicted,
            "kinds": dict(self.kinds),
            "findings": [finding.to_json() for finding in self.findings],
            "pairs": [{**asdict(pair), "documents": pair.documents} for pair in self.pairs],
            "suspect_labels": [
                {**asdict(label), "error_rate": round(label.error_rate, 4)} for label in self.suspect_labels
            ],
        }


def write_audit(folder: Path, audit: Audit, *, raw: bool = False) -> list[Path]:
    """Write ``audit.html``, ``audit.csv`` and ``audit.json`` and return their paths; other files in the folder stay.

    In the table, cells that a spreadsheet would run as formulas become texts, unless ``raw``.

    Raises:
        InputError: if one cannot be written.
    """
    files = {
        "audit.html": audit_page(audit).encode(),
        "audit.csv": _csv(audit, raw),
        "audit.json": json_bytes(audit.to_json()),
    }
    return write_files(folder, files)


def write_csv(target: Path, audit: Audit, *, raw: bool = False) -> None:
    """Write the findings as a table, one document a row, the strongest contradiction first.

    Cells that a spreadsheet would run as formulas become texts, unless ``raw``.

    Raises:
        InputError: if the file cannot be written.
    """
    write_files(target.parent, {target.name: _csv(audit, raw)})


def _csv(audit: Audit, raw: bool = False) -> bytes:
    def paths(labels: tuple[PredictedLabel, ...]) -> str:
        return "; ".join(" > ".join(label.path) for label in labels)

    stream = io.StringIO(newline="")
    writer = TableWriter(stream, raw=raw)
    others = list(dict.fromkeys(name for each in audit.findings for name in each.columns))
    writer.writerow([*COLUMNS, *(f"{name} (data)" if name in COLUMNS else name for name in others)])
    for each in audit.findings:
        labels = paths(each.gold), paths(each.predicted)
        own = each.row, each.text, *labels, each.kind, each.level, f"{each.score:.4f}", ""
        writer.writerow([*own, *(each.columns.get(name, "") for name in others)])
    # With a byte order mark: without it, spreadsheets take UTF-8 for something else.
    return stream.getvalue().encode("utf-8-sig")


def audit_page(audit: Audit) -> str:
    """Return the page."""
    return render_page("evaluation/templates/audit.html", audit=audit, percent=percent)


def percent(probability: float) -> str:
    """Return a probability as people write it; nothing is quite impossible or certain."""
    if probability < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if probability > 0.999 else f"{100 * probability:.{0 if 0.1 <= probability <= 0.9 else 1}f} %"
