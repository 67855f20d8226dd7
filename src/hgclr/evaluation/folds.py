"""Audit of train with out-of-fold models: one for each fold, trained on the other folds."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback

from hgclr.data.folder import DataFolder, Document, DocumentSet
from hgclr.data.readers import text_hash
from hgclr.data.split import TextSurvey
from hgclr.data.tokens import sample_documents
from hgclr.errors import InputError
from hgclr.evaluation.audit import Audit, Auditor, LabelledRow, labelled_rows, survey_labels
from hgclr.files import read_json, write_json
from hgclr.inference import HierarchicalClassifier
from hgclr.training import RunConfig, train
from hgclr.training.run_checks import check_splits, data_folder

logger = logging.getLogger(__name__)
SPLIT = "train"


class FoldWatch(NamedTuple):
    """Callbacks for the training of a fold's model; see :func:`hgclr.training.train`."""

    callbacks: Sequence[TrainerCallback] = ()
    on_documents: Callable[[int], None] | None = None


Watch = Callable[[int], AbstractContextManager[FoldWatch]]
"""Called with the number of a fold, counted from 1, before its model is trained."""


class OutOfFold(NamedTuple):
    """A model, the documents of train that it was not trained on, and their number."""

    classifier: HierarchicalClassifier
    rows: Iterator[LabelledRow]
    documents: int


def audit_folds(
    run: RunConfig,
    *,
    folds: int = 5,
    top: int = 50,
    watch: Watch | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Return the documents of ``train`` whose labels out-of-fold models contradict most.

    Trains one model for each fold, see :func:`train_folds`.

    Args:
        run: settings of the training; ``run.output`` is the folder of the audit.
        folds: number of folds.
        top: number of documents to return.
        watch: see :data:`Watch`.
        progress: called with the number of documents read since the last call.

    Raises:
        InputError: if settings and data do not match, or the folder has the folds of another audit.
    """
    if folds < 2:
        raise InputError(f"the number of folds is {folds}", remedy="choose 2 or more")
    folder = data_folder(run, run.data.taxonomy)
    survey = survey_labels(folder, SPLIT)
    auditor = Auditor(folder, SPLIT)
    for fold in train_folds(run, folder, folds, watch=watch):
        auditor.read(fold.classifier, fold.rows, survey, progress=progress)
    return auditor.result(top)


def train_folds(run: RunConfig, folder: DataFolder, folds: int, *, watch: Watch | None = None) -> Iterator[OutOfFold]:
    """Train a model for each fold on the documents of the other folds, and yield it with the documents of its fold.

    Dev selects the best epoch. Models are kept in ``run.output/folds``; a fold whose model exists is not trained again,
    and an interrupted one continues from its newest checkpoint.

    Raises:
        InputError: if settings and data do not match, or the folder has other folds.
    """
    if run.model.start is not None:
        raise InputError(
            "model.start is set, and that model may have been trained on the documents of every fold",
            path=run.model.start,
            remedy="remove it",
        )
    check_splits(run, folder)
    dealt = deal(folder, SPLIT, folds, run.training.seed)
    _check_record(run, folds, dealt)
    if dealt.one_fold_labels:
        logger.warning(
            "all documents of %d labels, such as %r, are in one fold; findings about these labels are unreliable",
            len(dealt.one_fold_labels),
            folder.taxonomy.ids[dealt.one_fold_labels[0]],
        )
    for fold in range(folds):
        own = fold_run(run, fold)
        if not (own.output / "metrics.json").is_file():  # the last file that training writes
            data = fold_data(folder, dealt, fold)
            with nullcontext(FoldWatch()) if watch is None else watch(fold + 1) as watching:
                train(own, data, resume=True, callbacks=watching.callbacks, on_documents=watching.on_documents)
        for name in ("checkpoints", "training-model"):
            shutil.rmtree(own.output / name, ignore_errors=True)
        classifier = HierarchicalClassifier.load(own.output / "model")
        yield OutOfFold(classifier, _rows(folder, dealt, fold, inside=True), int((dealt.folds == fold).sum()))


class Dealt(NamedTuple):
    """The fold of each document, counted from 0, (N,).

    All texts of ``one_fold_labels``, by index, are in one fold, so the model that predicts them was not trained on the
    label. The digest identifies the documents, their labels and their order.
    """

    folds: NDArray[np.int64]
    one_fold_labels: list[int]
    digest: str


def deal(folder: DataFolder, split: str, folds: int, seed: int) -> Dealt:
    """Assign the documents of a split to folds.

    Documents with the same text, apart from case and white space, go to the same fold, so that no model predicts a text
    that it was trained on. Texts are sorted by their rarest label, shuffled within it, and assigned to the folds in
    turn, which spreads the documents of a label as evenly as possible.

    Raises:
        InputError: if there are fewer different texts than folds, or a row is bad.
    """
    survey, digest = TextSurvey(), hashlib.sha256()
    for row in labelled_rows(folder, split):
        survey.add(text_hash(row.text), row.labels)
        content = row.text.encode()
        # The lengths come first, so that different texts and labels never give the same bytes.
        numbers = np.array([len(content), len(row.labels), *row.labels], dtype="<i8")
        digest.update(numbers.tobytes() + content)
    _, first, text_of_document = np.unique(survey.texts, return_index=True, return_inverse=True)
    if len(first) < folds:
        raise InputError(
            f"{len(first)} different texts are too few for {folds} folds",
            path=folder.split_path(split),
            remedy="choose fewer folds or add documents",
        )
    documents, labels = survey.pairs
    frequencies = np.bincount(labels, minlength=len(folder.taxonomy))[labels]
    # Each document's rarest label; ties go to the lower index.
    by_frequency = np.lexsort((labels, frequencies, documents))
    rarest = labels[by_frequency[np.searchsorted(documents, np.arange(len(survey.texts)))]]
    chance = np.random.default_rng(seed).permutation(len(first))
    order = np.lexsort((chance, rarest[first]))
    fold_of_text = np.empty(len(first), dtype=np.int64)
    fold_of_text[order] = np.arange(len(first)) % folds
    dealt = fold_of_text[text_of_document]
    seen = np.unique(labels * folds + dealt[documents]) // folds
    alone, count = np.unique(seen, return_counts=True)
    return Dealt(dealt, alone[count == 1].tolist(), digest.hexdigest())


def fold_run(run: RunConfig, fold: int) -> RunConfig:
    """Return the settings of the run that trains the model of a fold, counted from 0."""
    training = run.training.model_copy(update={"calibrate": False})  # only logits are used
    return run.model_copy(update={"training": training, "output": run.output / "folds" / f"{fold + 1}"})


def fold_data(folder: DataFolder, dealt: Dealt, fold: int) -> DocumentSet:
    """Return the training data of a fold's model: all documents of train but the fold, and dev."""
    splits: dict[str, Iterator[Document]] = {
        SPLIT: (Document(row.text, row.labels) for row in _rows(folder, dealt, fold, inside=False))
    }
    if "dev" in folder.splits:
        splits["dev"] = sample_documents(folder, "dev", None)
    return DocumentSet(folder.taxonomy, splits)


def _rows(folder: DataFolder, dealt: Dealt, fold: int, *, inside: bool) -> Iterator[LabelledRow]:
    for row, place in zip(labelled_rows(folder, SPLIT), dealt.folds.tolist(), strict=True):
        if (place == fold) == inside:
            yield row


def _check_record(run: RunConfig, folds: int, dealt: Dealt) -> None:
    """Record number of folds, documents and settings; raise if the folder has a different record."""
    settings = run.model_dump(mode="json", exclude={"output"})
    record = {"folds": folds, "documents": dealt.digest, "run": settings}
    file = run.output / "folds" / "settings.json"
    if not file.exists():
        write_json(file, record)
        return
    known = read_json(file, remedy="choose another --output")
    differs = [name for name in record if not isinstance(known, dict) or known.get(name) != record[name]]
    if differs:
        what = {"folds": "another number of folds", "documents": "other documents", "run": "other settings"}
        raise InputError(
            f"the folder has models for {what[differs[0]]}",
            path=file.parent,
            remedy="delete it, or choose another --output",
        )
