"""Audit a split: compare the gold labels of documents with what a model that has not seen them predicts."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from hgclr.data.folder import DataFolder
from hgclr.data.readers import read_rows
from hgclr.data.rows import BadRow, LabelReader, RowProblem, read_text
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.audit_results import Audit, AuditFinding, ConfusedPair, Contradiction, SuspectLabel
from hgclr.evaluation.audit_scores import KINDS, Agreement, ContradictedDocument, ContradictionLog, Scorer
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.inference.predictions import PredictedLabel, reading_order

logger = logging.getLogger(__name__)
LISTED = 20
"""Pairs of labels, and labels, that are listed."""
SURE = 1.0
"""A contradiction from which on an error is counted: the decision is ten times less probable than usual, or more."""
EXAMPLES = 2
"""Documents that are shown for a pair of labels."""
PAIRS_OF_DOCUMENT = 100
"""Pairs that one document may count for; only documents with dozens of wrong labels have more."""


def audit(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str = "dev",
    *,
    top: int = 50,
    on_survey: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Find the documents whose labels a model contradicts most.

    Example:
        >>> classifier = HierarchicalClassifier.load("runs/first/model")  # doctest: +SKIP
        >>> folder = DataFolder("my-data", taxonomy=classifier.taxonomy)  # doctest: +SKIP
        >>> for finding in audit(classifier, folder, "dev").findings:  # doctest: +SKIP
        ...     print(finding.row, finding.score, finding.kind)

    Args:
        classifier: the model, which was not trained on these documents.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits; for ``train`` see :func:`hgclr.evaluation.audit_folds.audit_folds`.
        top: how many documents to return.
        on_survey: called once, with the number of documents there are.
        progress: called with the number of documents looked at since the last call.

    Raises:
        InputError: if the folder was read with another tree, has no such split, or a row of it is bad.
    """
    if folder.taxonomy != classifier.taxonomy:
        raise InputError(
            "the data is read with another label tree than the model has",
            path=folder.path,
            remedy="open the folder with taxonomy=classifier.taxonomy",
        )
    if split == "train":
        logger.warning(
            "if the model was trained on these documents, it has learned their errors and will not find them;"
            " hgclr audit --folds audits train with models that have not seen it"
        )
    survey = survey_labels(folder, split)
    if on_survey is not None:
        on_survey(survey.documents)
    auditor = Auditor(folder, split)
    auditor.read(classifier, labelled_rows(folder, split), survey, progress=progress)
    return auditor.result(top)


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A document and its place: its line in a text file (a table's header is line 1), else counted from 1."""

    number: int
    text: str
    labels: tuple[int, ...]
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelSurvey:
    """How many documents a split has, whether each has one path from the top, and whether any ends above a leaf."""

    documents: int
    one_path: bool
    ends_inside: bool


def labelled_rows(folder: DataFolder, split: str, *, all_columns: bool = False) -> Iterator[LabelledRow]:
    """Yield the documents of a split in order, with the other columns of their rows if asked for.

    Raises:
        InputError: at a bad row, unless the folder may skip it; if the file is damaged.
    """
    path, own = folder.split_path(split), (folder.form.text_column, folder.form.label_column)
    labels = LabelReader(folder.taxonomy, folder.form)
    for row in read_rows(path, own, all_columns=all_columns):
        if not isinstance(row, BadRow):
            try:
                text, found = read_text(row.values[own[0]]), labels.read(row.values[own[1]])
            except RowProblem as problem:
                row = BadRow(path, row.number, problem.reason, row.values, problem.remedy)
            else:
                others = {name: cell for name, cell in row.values.items() if name not in own} if all_columns else {}
                yield LabelledRow(row.number, text, found, others)
                continue
        if not folder.skip_bad_rows:
            raise row.error()


def survey_labels(folder: DataFolder, split: str) -> LabelSurvey:
    """Look over the labels of a split; a bad row is found here, before a model has run for hours.

    Raises:
        InputError: at a bad row, unless the folder may skip it; if there is no document.
    """
    documents, one_path, ends_inside = 0, True, False
    for document in folder.documents(split):
        documents += 1
        one_path = one_path and len(folder.taxonomy.path_ends(document.labels)) == 1
        ends_inside = ends_inside or folder.taxonomy.ends_inside(document.labels)
    return LabelSurvey(documents, one_path, ends_inside)


def _rows_of(folder: DataFolder, split: str, numbers: set[int]) -> dict[int, LabelledRow]:
    """Return some documents, with all their columns, by their places."""
    found: dict[int, LabelledRow] = {}
    for row in labelled_rows(folder, split, all_columns=True):
        if row.number in numbers:
            # Such as JSON and tables can hold: dates as text, what is not UTF-8 marked.
            plain = json.dumps(row.columns, ensure_ascii=False, default=str).encode(errors="replace")
            found[row.number] = replace(row, columns=json.loads(plain))
        if len(found) == len(numbers):
            break
    return found


def audit_decisions(decisions: Decisions, survey: LabelSurvey) -> Decisions:
    """Return how to predict for an audit: as the model decides, and always whole paths.

    A model that abstains from labels gives them here: doubt is no contradiction. The rule ``threshold`` may give a
    child without its parent; in its place comes ``best-path`` where every document has one path, else ``closure``.
    """
    certain = replace(decisions, abstain_below=None)
    if certain.rule != "threshold":
        return certain
    if survey.one_path:
        return replace(certain, rule="best-path", allow_inner_nodes=survey.ends_inside)
    return replace(certain, rule="closure")


class Auditor:
    """Take documents with probabilities, batch by batch, then rank them.

    Memory grows with the documents that are contradicted, by a few dozen bytes for each of their labels; texts are not
    kept, but read again for those that are shown.
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
        """Add documents with what a model that was not trained on them says; the survey decides how to predict."""
        decisions = audit_decisions(classifier.decisions, survey)
        for window, logits, gold in classifier.scored_windows(rows, progress=progress):
            decided = decisions.decide(classifier.decisions.probabilities(logits))
            self._agreement.update(decided.probabilities, gold)
            self._log.update([row.number for row in window], decided.probabilities, gold, decided.predicted)

    def result(self, top: int) -> Audit:
        """Return what was found, with the ``top`` documents that are contradicted most; equal ones by their place."""
        log, taxonomy = self._log, self.folder.taxonomy
        scorer = Scorer(taxonomy, self._agreement.usual())
        if 2 * len(log) > self._agreement.documents:
            logger.warning(
                "the model would label %d of %d documents otherwise: this may say more about the model than about them",
                len(log),
                self._agreement.documents,
            )
        scores = [scorer.score(document) for document in log]
        kinds = Counter(scorer.kind(document) for document in log)
        order = sorted(range(len(log)), key=lambda place: (-scores[place], log.rows[place]))
        pairs, counts = _confused_pairs(scorer, (log[place] for place in order))
        shown = {log.rows[place] for place in order[:top]}.union(*pairs.values())
        rows = _rows_of(self.folder, self.split, shown)
        places = reading_order(taxonomy)
        return Audit(
            data=self.folder.path.resolve().name,
            file=str(self.folder.split_path(self.split)),
            split=self.split,
            documents=self._agreement.documents,
            kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
            findings=tuple(
                _finding(log[place], scores[place], scorer, places, rows[log.rows[place]]) for place in order[:top]
            ),
            pairs=tuple(
                ConfusedPair(
                    taxonomy.ids[first],
                    taxonomy.ids[second],
                    (taxonomy.path_names(first), taxonomy.path_names(second)),
                    first_gold=counts[first, second],
                    second_gold=counts[second, first],
                    examples=tuple((row, rows[row].text) for row in examples),
                )
                for (first, second), examples in pairs.items()
            ),
            suspect_labels=_suspect_labels(scorer, log, self._agreement),
        )


def _confused_pairs(
    scorer: Scorer, documents: Iterable[ContradictedDocument]
) -> tuple[dict[tuple[int, int], list[int]], Counter[tuple[int, int]]]:
    """Return the pairs of labels that most documents confuse, each with the rows of the first of these documents.

    The most contradicted documents come first. Counts are by gold and predicted label.
    """
    counts, examples = Counter[tuple[int, int]](), defaultdict[tuple[int, int], list[int]](list)
    for document in documents:
        for gold, predicted in sorted(set(islice(scorer.confused_pairs(document), PAIRS_OF_DOCUMENT))):
            counts[gold, predicted] += 1
            rows = examples[min(gold, predicted), max(gold, predicted)]
            if len(rows) < EXAMPLES:
                rows.append(document.row)
    ranked = sorted(examples, key=lambda pair: (-counts[pair] - counts[pair[::-1]], pair))
    return {pair: examples[pair] for pair in ranked[:LISTED]}, counts


def _suspect_labels(
    scorer: Scorer, documents: Iterable[ContradictedDocument], agreement: Agreement
) -> tuple[SuspectLabel, ...]:
    """Return the labels with the highest estimated error rate among their gold documents.

    The rate is the share of a label's gold documents that are contradicted by at least :data:`SURE` there. Labels are
    in the order of the lower end of the rate's 95 % interval (Wilson), so that 1 of 2 does not stand above 40 of 100.
    """
    wrong, missing = Counter[int](), Counter[int]()
    for document in documents:
        for label, strength in scorer.strengths(document).items():
            if strength >= SURE:
                (wrong if label in document.gold else missing)[label] += 1
    gold, taxonomy = agreement.gold.tolist(), scorer.taxonomy
    order = sorted(wrong, key=lambda label: (-_wilson(wrong[label], gold[label]), -wrong[label], label))
    return tuple(
        SuspectLabel(
            taxonomy.ids[label],
            taxonomy.path_names(label),
            gold[label],
            wrong[label],
            missing[label],
            scorer.usual[True][label],
        )
        for label in order[:LISTED]
    )


def _wilson(part: int, whole: int, normal: float = 1.96) -> float:
    """Return the lower end of the 95 % interval of a share."""
    share, square = part / whole, normal**2
    spread = normal * math.sqrt(share * (1 - share) / whole + square / (4 * whole**2))
    return (share + square / (2 * whole) - spread) / (1 + square / whole)


def _finding(
    document: ContradictedDocument, score: float, scorer: Scorer, places: Sequence[int], row: LabelledRow
) -> AuditFinding:
    taxonomy, kind = scorer.taxonomy, scorer.kind(document)

    def shown(labels: Iterable[int]) -> list[PredictedLabel]:
        ordered = sorted(labels, key=places.__getitem__)
        probabilities = document.probabilities
        return [PredictedLabel(taxonomy.ids[each], taxonomy.path_names(each), probabilities[each]) for each in ordered]

    strengths = scorer.strengths(document)
    contradicted = sorted(strengths, key=places.__getitem__)
    level = min(int(taxonomy.depths[label]) for label in contradicted)
    common: tuple[str, ...] = ()
    if kind == "other path":
        last = scorer.parting(document)
        level = 1 if last < 0 else int(taxonomy.depths[last]) + 1
        common = () if last < 0 else taxonomy.path_names(last)
    return AuditFinding(
        row=document.row,
        text=row.text,
        columns=row.columns,
        gold=tuple(shown(taxonomy.path_ends(document.gold))),
        predicted=tuple(shown(taxonomy.path_ends(document.predicted))),
        kind=kind,
        level=level,
        common=common,
        score=score,
        contradictions=tuple(
            Contradiction(one, label in document.gold, scorer.usual[label in document.gold][label], strengths[label])
            for label, one in zip(contradicted, shown(contradicted), strict=True)
        ),
    )
