"""Look at the training documents themselves, each with a model that was trained on the others; audit them so."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback

from hgclr.data.folder import DataFolder, Document, DocumentSet
from hgclr.data.rows import text_hash
from hgclr.data.split import TextSurvey
from hgclr.data.tokens import sample_documents
from hgclr.errors import InputError
from hgclr.evaluation.audit import Auditor, LabelledRow, labelled_rows, survey_labels
from hgclr.evaluation.audit_results import Audit
from hgclr.files import read_json, write_json
from hgclr.inference import HierarchicalClassifier
from hgclr.training import RunConfig, train
from hgclr.training.run_checks import check_splits, data_folder

logger = logging.getLogger(__name__)
SPLIT = "train"
RECORD = "settings.json"


class FoldWatch(NamedTuple):
    """What looks on while the model of a fold is trained; see :func:`hgclr.training.train`."""

    callbacks: Sequence[TrainerCallback] = ()
    on_documents: Callable[[int], None] | None = None


Watch = Callable[[int], AbstractContextManager[FoldWatch]]


class OutOfFold(NamedTuple):
    """A model, the documents of train that it was not trained on, and how many these are."""

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
    """Find the documents of ``train`` whose labels are contradicted most by models that have not seen them.

    Trains one model for each fold, see :func:`train_folds`.

    Args:
        run: settings of the training; ``run.output`` is the folder of the audit.
        folds: how many.
        top: how many documents to return.
        watch: called with the number of a fold, counted from 1, before its model is trained; returns what looks on.
        progress: called with the number of documents looked at since the last call.

    Raises:
        InputError: if settings and data do not fit together, or the folder holds the folds of another audit.
    """
    if folds < 2:
        raise InputError(f"{folds} fold cannot be audited by models trained on others", remedy="give 2 or more folds")
    folder = data_folder(run, run.data.taxonomy)
    survey = survey_labels(folder, SPLIT)
    auditor = Auditor(folder, SPLIT)
    for fold in train_folds(run, folder, folds, watch=watch):
        auditor.read(fold.classifier, fold.rows, survey, progress=progress)
    return auditor.result(top)


def train_folds(run: RunConfig, folder: DataFolder, folds: int, *, watch: Watch | None = None) -> Iterator[OutOfFold]:
    """Train a model for each fold on the documents of all others, and yield it with the documents of its own.

    Dev selects the best epoch. Models are kept in ``run.output/folds``; a fold whose model is there is not trained
    again, and one that was interrupted goes on from its newest checkpoint. For ``watch`` see :func:`audit_folds`.

    Raises:
        InputError: if settings and data do not fit together, or the folder holds other folds.
    """
    if run.model.start is not None:
        raise InputError(
            "model.start is given: that model may have been trained on the documents of every fold",
            path=run.model.start,
            remedy="leave it out, so that the model of every fold starts anew",
        )
    check_splits(run, folder)
    dealt = deal(folder, SPLIT, folds, run.training.seed)
    _check_record(run, folds, dealt)
    if dealt.one_fold_labels:
        logger.warning(
            "all documents of %d labels, such as %r, are in one fold: what is found about them says little",
            len(dealt.one_fold_labels),
            folder.taxonomy.ids[dealt.one_fold_labels[0]],
        )
    for fold in range(folds):
        classifier = HierarchicalClassifier.load(_model(run, folder, dealt, fold, watch))
        documents = int((dealt.folds == fold).sum())
        yield OutOfFold(classifier, _rows(folder, dealt, fold, inside=True), documents)


class Dealt(NamedTuple):
    """Which document is in which fold, counted from 0, (N,).

    The models that audit ``one_fold_labels``, by index, have never seen the label: all its texts are in one fold. The
    digest tells these documents, with their labels and in this order, from all others.
    """

    folds: NDArray[np.int64]
    one_fold_labels: list[int]
    digest: str


def deal(folder: DataFolder, split: str, folds: int, seed: int) -> Dealt:
    """Deal the documents of a split out to folds.

    Documents with the same text, as ``hgclr data check`` sees it, go to the same fold: a model that was trained on one
    of them has seen the other. Texts are dealt out one fold after the other, in the order of their rarest label and, of
    those with the same one, at random; so the documents of a label are spread over the folds as evenly as possible.

    Raises:
        InputError: if there are fewer different texts than folds, or a row is bad.
    """
    survey, digest = TextSurvey(), hashlib.sha256()
    for row in labelled_rows(folder, split):
        survey.add(text_hash(row.text), row.labels)
        content = row.text.encode()
        # The lengths come first, so that no other texts and labels make the same bytes.
        numbers = np.array([len(content), len(row.labels), *row.labels], dtype="<i8")
        digest.update(numbers.tobytes() + content)
    _, first, text_of_document = np.unique(survey.texts, return_index=True, return_inverse=True)
    if len(first) < folds:
        raise InputError(
            f"{len(first)} different texts cannot be dealt out to {folds} folds",
            path=folder.split_path(split),
            remedy="give fewer folds or more documents",
        )
    documents, labels = survey.pairs
    frequencies = np.bincount(labels, minlength=len(folder.taxonomy))[labels]
    # Each document's first pair in the order of frequency, equally frequent labels by index.
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
    """Return the run that trains the model of a fold, counted from 0."""
    training = run.training.model_copy(update={"calibrate": False})  # what is wanted are logits
    return run.model_copy(update={"training": training, "output": run.output / "folds" / f"{fold + 1}"})


def fold_data(folder: DataFolder, dealt: Dealt, fold: int) -> DocumentSet:
    """Return what the model of a fold is trained on: all documents of train but its own, and dev."""
    splits: dict[str, Iterator[Document]] = {
        SPLIT: (Document(row.text, row.labels) for row in _rows(folder, dealt, fold, inside=False))
    }
    if "dev" in folder.splits:
        splits["dev"] = sample_documents(folder, "dev", None)
    return DocumentSet(folder.taxonomy, splits)


def _model(run: RunConfig, folder: DataFolder, dealt: Dealt, fold: int, watch: Watch | None) -> Path:
    """Return the model of a fold, which is trained unless it was before."""
    own = fold_run(run, fold)
    if not (own.output / "metrics.json").is_file():  # the last that training writes
        data = fold_data(folder, dealt, fold)
        with nullcontext(FoldWatch()) if watch is None else watch(fold + 1) as looking_on:
            train(own, data, resume=True, callbacks=looking_on.callbacks, on_documents=looking_on.on_documents)
    for name in ("checkpoints", "training-model"):
        shutil.rmtree(own.output / name, ignore_errors=True)
    return own.output / "model"


def _rows(folder: DataFolder, dealt: Dealt, fold: int, *, inside: bool) -> Iterator[LabelledRow]:
    for row, place in zip(labelled_rows(folder, SPLIT), dealt.folds.tolist(), strict=True):
        if (place == fold) == inside:
            yield row


def _check_record(run: RunConfig, folds: int, dealt: Dealt) -> None:
    """Write down what the folds are made of; refuse a folder whose folds are made of something else."""
    record: dict[str, Any] = {
        "folds": folds,
        "documents": dealt.digest,
        "run": run.model_dump(mode="json", exclude={"output"}),
    }
    file = run.output / "folds" / RECORD
    if not file.exists():
        write_json(file, record)
        return
    known = read_json(file, remedy="give another --output")
    differs = [name for name in record if not isinstance(known, dict) or known.get(name) != record[name]]
    if differs:
        what = {"folds": "another number of folds", "documents": "other documents", "run": "other settings"}
        raise InputError(
            f"the folder holds models of {what[differs[0]]}",
            path=file.parent,
            remedy="delete it, or give another --output",
        )
