"""Audit of a split: gold labels compared with the predictions of a model that was not trained on the documents."""

from __future__ import annotations

import io
import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hgclr.data.folder import DataFolder, LabelReader
from hgclr.data.readers import BadRow, RowProblem, read_rows
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.contradictions import KINDS, Agreement, ContradictedDocument, ContradictionLog, Kind, Scorer
from hgclr.files import TableWriter, json_bytes, write_files
from hgclr.inference.classifier import HierarchicalClassifier, PredictedLabel
from hgclr.presentation import render_page

logger = logging.getLogger(__name__)
LISTED = 20
"""Maximum number of pairs of labels, and of labels, in the result."""
SURE = 1.0
"""Minimum strength of a contradiction that counts as an error: at least ten times less probable than usual."""
EXAMPLES = 2
"""Example documents per pair of labels."""
PAIRS_OF_DOCUMENT = 100
"""Maximum pairs counted for one document; only documents with dozens of wrong labels have more."""
COLUMNS = ("row", "text", "gold", "predicted", "kind", "level", "score", "verdict")
"""First columns of the table, before those of the data; ``verdict`` is empty, for the reviewer."""


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A document; its number is its line in a text file (a table's header is line 1), otherwise its position from 1."""

    number: int
    text: str
    labels: tuple[int, ...]
    columns: Mapping[str, object] = field(default_factory=dict)


class LabelSurvey(NamedTuple):
    """Number of documents of a split, whether each has one path, and whether any path ends above a leaf."""

    documents: int
    one_path: bool
    ends_inside: bool


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An extra or missing label of a document, according to the model.

    Args:
        label: the label, with its probability.
        gold: whether it is a gold label of the document; the model predicts the opposite.
        usual: the model's mean agreement with the same annotation of this label in all documents.
        strength: see :meth:`~hgclr.evaluation.contradictions.Scorer.strengths`.
    """

    label: PredictedLabel
    gold: bool
    usual: float
    strength: float


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A document whose gold labels the model contradicts.

    Args:
        row: its place in the file; see :class:`LabelledRow`.
        text: the text.
        gold, predicted: the ends of the gold and of the predicted paths.
        kind: see :meth:`~hgclr.evaluation.contradictions.Scorer.kind`.
        level: the first level, 1 for the top, at which a label is extra or missing.
        score: see :meth:`~hgclr.evaluation.contradictions.Scorer.score`.
        contradictions: the labels that are extra or missing, parents before their children.
        columns: the other columns of the row, such as an id.
    """

    row: int
    text: str
    gold: tuple[PredictedLabel, ...]
    predicted: tuple[PredictedLabel, ...]
    kind: Kind
    level: int
    score: float
    contradictions: tuple[Contradiction, ...]
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two labels that annotation and model confuse.

    Args:
        first, second: the labels, by id.
        paths: the names down to each.
        first_gold: number of documents with the first gold and the second predicted.
        second_gold: number of documents with the second gold and the first predicted.
        examples: rows and texts of the most contradicted of these documents.
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
        id, path: the label.
        gold: number of documents with this gold label.
        wrong: number of these with a contradiction of at least :data:`SURE` at the label.
        missing: number of documents without it with a contradiction of at least :data:`SURE` at the label.
        usual: the model's mean agreement with its gold documents.
        error_rate: ``wrong / gold``, the estimated share of its gold documents that should not have it.
    """

    id: str
    path: tuple[str, ...]
    gold: int
    wrong: int
    missing: int
    usual: float
    error_rate: float


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Args:
        data: name of the data folder.
        file: the file of the split.
        split: its name.
        documents: number of documents.
        contradicted: number of documents with other predicted than gold labels.
        kinds: number of contradicted documents by kind.
        findings: the most contradicted documents, strongest first.
        pairs: the most confused pairs of labels.
        suspect_labels: labels whose gold documents are contradicted most.
    """

    data: str
    file: str
    split: str
    documents: int
    contradicted: int
    kinds: Mapping[Kind, int]
    findings: tuple[AuditFinding, ...]
    pairs: tuple[ConfusedPair, ...]
    suspect_labels: tuple[SuspectLabel, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types, probabilities and scores with 4 digits."""

        def plain(value: Any) -> Any:
            if isinstance(value, float):
                return round(value, 4)
            if isinstance(value, dict):
                return {key: plain(inner) for key, inner in value.items()}
            return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

        def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            """Return a dataclass as a dictionary, a label with several paths as :meth:`PredictedLabel.to_json` does."""
            fields = dict(pairs)
            others = fields.pop("other_paths", ())
            return fields | {"paths": [fields["path"], *others]} if others else fields

        return {"kind": "hgclr audit", "version": 3, **plain(asdict(self, dict_factory=members))}


def audit(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str = "dev",
    *,
    top: int = 50,
    on_survey: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Return the documents whose labels a model contradicts most.

    Example:
        >>> classifier = HierarchicalClassifier.load("runs/first/model")  # doctest: +SKIP
        >>> folder = DataFolder("my-data", taxonomy=classifier.taxonomy)  # doctest: +SKIP
        >>> for finding in audit(classifier, folder, "dev").findings:  # doctest: +SKIP
        ...     print(finding.row, finding.score, finding.kind)

    Args:
        classifier: the model, which was not trained on these documents.
        folder: the documents, read with the classifier's label tree.
        split: its split; for ``train`` see :func:`hgclr.evaluation.folds.audit_folds`.
        top: number of documents to return.
        on_survey: called once, with the number of documents of the split.
        progress: called with the number of documents read since the last call.

    Raises:
        InputError: if the folder was read with another tree, the split is missing, or a row is bad.
    """
    if folder.taxonomy != classifier.taxonomy:
        raise InputError(
            "the data was read with another label tree than the model's",
            path=folder.path,
            remedy="open the folder with taxonomy=classifier.taxonomy",
        )
    if split == "train":
        logger.warning(
            "a model finds few errors in documents that it was trained on; to audit train with out-of-fold models,"
            " use hgclr audit --folds"
        )
    survey = survey_labels(folder, split)
    if on_survey is not None:
        on_survey(survey.documents)
    auditor = Auditor(folder, split)
    auditor.read(classifier, labelled_rows(folder, split), survey, progress=progress)
    return auditor.result(top)


def labelled_rows(folder: DataFolder, split: str, *, all_columns: bool = False) -> Iterator[LabelledRow]:
    """Yield the documents of a split in order; with ``all_columns``, also the other columns of their rows.

    Raises:
        InputError: at a bad row, unless the folder skips bad rows; if the file is damaged.
    """
    path, own = folder.split_path(split), (folder.form.text_column, folder.form.label_column)
    labels = LabelReader(folder.taxonomy, folder.form)
    for row in read_rows(path, own, all_columns=all_columns):
        if not isinstance(row, BadRow):
            try:
                text, found = labels.read_row(row.values)
            except RowProblem as problem:
                row = BadRow(path, row.number, problem.reason, row.values, problem.remedy)
            else:
                others = {name: cell for name, cell in row.values.items() if name not in own} if all_columns else {}
                yield LabelledRow(row.number, text, found, others)
                continue
        if not folder.skip_bad_rows:
            raise row.error()


def survey_labels(folder: DataFolder, split: str) -> LabelSurvey:
    """Survey the labels of a split, which also finds a bad row before a model has run for hours.

    Raises:
        InputError: at a bad row, unless the folder skips bad rows; if there is no document.
    """
    documents, one_path, ends_inside = 0, True, False
    for document in folder.documents(split):
        documents += 1
        one_path = one_path and len(folder.taxonomy.path_ends(document.labels)) == 1
        ends_inside = ends_inside or folder.taxonomy.ends_inside(document.labels)
    return LabelSurvey(documents, one_path, ends_inside)


def audit_decisions(decisions: Decisions, survey: LabelSurvey) -> Decisions:
    """Return the decisions for an audit: the model's, without abstention and always with all ancestors.

    The rule ``threshold`` may predict a child without its parent; ``best-path`` replaces it if every document has one
    path, else ``closure``.
    """
    certain = replace(decisions, abstain_below=None)
    if certain.rule != "threshold":
        return certain
    if survey.one_path:
        return replace(certain, rule="best-path", allow_inner_nodes=survey.ends_inside)
    return replace(certain, rule="closure")


class Auditor:
    """Collects contradicted documents batch by batch, then ranks them.

    Texts are not kept in memory; those of the findings are read again.
    """

    def __init__(self, folder: DataFolder, split: str) -> None:
        self.folder, self.split = folder, split
        self._agreement = Agreement(folder.taxonomy)
        self._log = ContradictionLog()

    def read(
        self,
        classifier: HierarchicalClassifier,
        rows: Iterable[LabelledRow],
        survey: LabelSurvey,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add documents that the classifier was not trained on; ``survey`` sets :func:`audit_decisions`."""
        decisions = audit_decisions(classifier.decisions, survey)
        for window, logits, gold in classifier.scored_windows(rows, progress=progress):
            decided = decisions.decide(classifier.decisions.probabilities(logits))
            self._agreement.update(decided.probabilities, gold)
            self._log.update([row.number for row in window], decided.probabilities, gold, decided.predicted)

    def result(self, top: int) -> Audit:
        """Return the audit with the ``top`` most contradicted documents, ties in file order."""
        log, taxonomy, documents = self._log, self.folder.taxonomy, self._agreement.documents
        scorer = Scorer(taxonomy, self._agreement.usual())
        if 2 * len(log) > documents:
            logger.warning(
                "the model contradicts %d of %d documents, so it may be the model that is wrong",
                len(log),
                documents,
            )
        scores = [scorer.score(document) for document in log]
        kinds = Counter(scorer.kind(document) for document in log)
        order = sorted(range(len(log)), key=lambda place: (-scores[place], log.rows[place]))
        counts, examples = _confused_pairs(scorer, (log[place] for place in order))
        shown = {log.rows[place] for place in order[:top]}.union(*examples.values())
        rows: dict[int, LabelledRow] = {}
        for row in labelled_rows(self.folder, self.split, all_columns=True):
            if row.number in shown:
                # Make cells fit for JSON and tables: dates become text, characters that are not UTF-8 are replaced.
                plain = json.dumps(row.columns, ensure_ascii=False, default=str).encode(errors="replace")
                rows[row.number] = replace(row, columns=json.loads(plain))
            if len(rows) == len(shown):
                break
        return Audit(
            data=self.folder.path.resolve().name,
            file=str(self.folder.split_path(self.split)),
            split=self.split,
            documents=documents,
            contradicted=len(log),
            kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
            findings=tuple(_finding(log[place], scores[place], scorer, rows[log.rows[place]]) for place in order[:top]),
            pairs=tuple(
                ConfusedPair(
                    taxonomy.ids[first],
                    taxonomy.ids[second],
                    (taxonomy.path_names(first), taxonomy.path_names(second)),
                    first_gold=counts[first, second],
                    second_gold=counts[second, first],
                    examples=tuple((row, rows[row].text) for row in places_of),
                )
                for (first, second), places_of in examples.items()
            ),
            suspect_labels=_suspect_labels(scorer, log, self._agreement),
        )


def _confused_pairs(
    scorer: Scorer, documents: Iterable[ContradictedDocument]
) -> tuple[Counter[tuple[int, int]], dict[tuple[int, int], list[int]]]:
    """Return counts by gold and predicted label, and example rows of the most frequent pairs.

    ``documents`` are sorted, most contradicted first.
    """
    counts, examples = Counter[tuple[int, int]](), defaultdict[tuple[int, int], list[int]](list)
    for document in documents:
        for gold, predicted in sorted(set(islice(scorer.confused_pairs(document), PAIRS_OF_DOCUMENT))):
            counts[gold, predicted] += 1
            rows = examples[min(gold, predicted), max(gold, predicted)]
            if len(rows) < EXAMPLES:
                rows.append(document.row)
    ranked = sorted(examples, key=lambda pair: (-counts[pair] - counts[pair[::-1]], pair))
    return counts, {pair: examples[pair] for pair in ranked[:LISTED]}


def _suspect_labels(
    scorer: Scorer, documents: Iterable[ContradictedDocument], agreement: Agreement
) -> tuple[SuspectLabel, ...]:
    """Return the labels with the highest estimated error rate among their gold documents.

    They are sorted by the lower end of the rate's 95 % interval (Wilson), so that 40 of 100 comes before 1 of 2.
    """
    wrong, missing = Counter[int](), Counter[int]()
    for document in documents:
        for label, strength in scorer.strengths(document).items():
            if strength >= SURE:
                (wrong if label in document.gold else missing)[label] += 1
    gold, taxonomy = agreement.gold.tolist(), scorer.taxonomy

    def lower_end(label: int, normal: float = 1.96) -> float:
        whole, square = gold[label], normal**2
        share = wrong[label] / whole
        spread = normal * math.sqrt(share * (1 - share) / whole + square / (4 * whole**2))
        return (share + square / (2 * whole) - spread) / (1 + square / whole)

    return tuple(
        SuspectLabel(
            taxonomy.ids[label],
            taxonomy.path_names(label),
            gold[label],
            wrong[label],
            missing[label],
            scorer.usual[True][label],
            wrong[label] / gold[label],
        )
        for label in sorted(wrong, key=lambda label: (-lower_end(label), -wrong[label], label))[:LISTED]
    )


def _finding(document: ContradictedDocument, score: float, scorer: Scorer, row: LabelledRow) -> AuditFinding:
    taxonomy, strengths = scorer.taxonomy, scorer.strengths(document)

    def shown(label: int) -> PredictedLabel:
        return PredictedLabel.of(taxonomy, label, document.probabilities[label])

    def ordered(labels: Iterable[int]) -> list[int]:
        return sorted(labels, key=taxonomy.path_names)

    return AuditFinding(
        row=document.row,
        text=row.text,
        columns=row.columns,
        gold=tuple(map(shown, ordered(taxonomy.path_ends(document.gold)))),
        predicted=tuple(map(shown, ordered(taxonomy.path_ends(document.predicted)))),
        kind=scorer.kind(document),
        level=min(int(taxonomy.depths[label]) for label in strengths),
        score=score,
        contradictions=tuple(
            Contradiction(shown(label), gold, scorer.usual[gold][label], strengths[label])
            for label, gold in ((label, label in document.gold) for label in ordered(strengths))
        ),
    )


def write_audit(folder: Path, audit: Audit, *, raw: bool = False) -> list[Path]:
    """Write ``audit.html``, ``audit.csv`` and ``audit.json`` and return their paths; other files in the folder stay.

    For ``raw`` see :func:`audit_csv`. A file that cannot be written raises InputError.
    """
    files = {
        "audit.html": render_page("evaluation/templates/audit.html", audit=audit, percent=percent).encode(),
        "audit.csv": audit_csv(audit, raw=raw),
        "audit.json": json_bytes(audit.to_json()),
    }
    return write_files(folder, files)


def audit_csv(audit: Audit, *, raw: bool = False) -> bytes:
    """Return the findings as a table, one document per row, with an empty column for the reviewer's verdict.

    Cells that a spreadsheet would run as formulas become texts, unless ``raw``.
    """

    def paths(labels: tuple[PredictedLabel, ...]) -> str:
        return "; ".join(" > ".join(path) for label in labels for path in label.paths)

    stream = io.StringIO(newline="")
    writer = TableWriter(stream, raw=raw)
    others = list(dict.fromkeys(name for each in audit.findings for name in each.columns))
    writer.writerow([*COLUMNS, *(f"{name} (data)" if name in COLUMNS else name for name in others)])
    for each in audit.findings:
        labels = paths(each.gold), paths(each.predicted)
        own = each.row, each.text, *labels, each.kind, each.level, f"{each.score:.4f}", ""
        writer.writerow([*own, *(each.columns.get(name, "") for name in others)])
    # Spreadsheets read UTF-8 correctly only with a byte order mark.
    return stream.getvalue().encode("utf-8-sig")


def percent(probability: float) -> str:
    """Return a probability in per cent, never as 0 or 100 %."""
    if probability < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if probability > 0.999 else f"{100 * probability:.{0 if 0.1 <= probability <= 0.9 else 1}f} %"
