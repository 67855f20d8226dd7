"""Audit of train with out-of-fold models: one for each fold, trained on the other folds."""

from __future__ import annotations

import copy
import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, TrainerCallback

from hgclr.data.folder import DataFolder, Document, DocumentSet, label_documents
from hgclr.data.readers import text_hash
from hgclr.data.split import TextSurvey
from hgclr.data.tokens import sample_documents, tokenize_documents, tokenize_split
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES
from hgclr.errors import InputError
from hgclr.evaluation.audit import TOP, Audit, Auditor, LabelledRow, ScoredWindow, labelled_rows, survey_labels
from hgclr.files import read_json, write_json
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import windows
from hgclr.inference.classifier import gold_rows
from hgclr.models import FlatForSequenceClassification
from hgclr.registry import is_pretrained
from hgclr.training import RunConfig, train
from hgclr.training.fitting import FROZEN_LENGTH, base_rates, label_counts
from hgclr.training.head import STRENGTH, encode_documents, fit_vectors, vector_store
from hgclr.training.run import new_model
from hgclr.training.run_checks import check_splits, data_folder
from hgclr.training.settings import ModelSettings
from hgclr.training.trainer import Collator

logger = logging.getLogger(__name__)
SPLIT = "train"
ROWS = 2048
"""Limit on the documents of a window."""


def _ignore(*progress: object) -> None:
    pass


class FoldWatch(NamedTuple):
    """Callbacks for the training of a fold's model; see :func:`hgclr.training.train`."""

    callbacks: Sequence[TrainerCallback] = ()
    on_documents: Callable[[int], None] = _ignore
    on_stage: Callable[[str, int | None], None] = _ignore


Watch = Callable[[int], AbstractContextManager[FoldWatch]]
"""Called with the number of a fold, counted from 1, before its model is trained; with 0 before work for all folds."""


class OutOfFold(NamedTuple):
    """A model, the documents of train that it was not trained on, and their number."""

    classifier: HierarchicalClassifier
    rows: Iterator[LabelledRow]
    documents: int


def audit_folds(
    run: RunConfig,
    *,
    folds: int = 5,
    effort: Literal["head", "full"] = "head",
    top: int | None = TOP,
    watch: Watch | None = None,
) -> Audit:
    """Return the documents of ``train`` whose labels out-of-fold models contradict most.

    With the effort ``head``, a head for each fold is fitted to vectors of the pretrained encoder ``run.model.encoder``,
    which was not trained on the documents; each document is encoded once. With ``full``, a model for each fold is
    trained with the settings of ``run``, see :func:`train_folds`.

    Args:
        run: data and settings; for ``full``, ``run.output`` is the folder of the models.
        folds: number of folds.
        effort: what is trained for each fold.
        top: number of documents to return; None returns all that are contradicted.
        watch: see :data:`Watch`.

    Raises:
        InputError: if settings and data do not match, or the folder has the folds of another audit.
    """
    if folds < 2:
        raise InputError(f"the number of folds is {folds}", remedy="choose 2 or more")
    folder = data_folder(run, run.data.taxonomy)
    survey = survey_labels(folder, SPLIT)
    auditor = Auditor(folder, SPLIT)
    if effort == "head":
        decisions, windows = head_folds(run, folder, folds, watch=watch)
        auditor.read(decisions, windows, survey)
        return auditor.result(top, f"{folds} heads on the encoder {run.model.encoder}, each fitted to the other folds")
    for fold in train_folds(run, folder, folds, watch=watch):
        auditor.read(fold.classifier.decisions, fold.classifier.scored_windows(fold.rows), survey)
    return auditor.result(top, f"{folds} models, each trained on the other folds")


def head_folds(
    run: RunConfig, folder: DataFolder, folds: int, *, watch: Watch | None = None
) -> tuple[Decisions, Iterator[ScoredWindow]]:
    """Fit a head for each fold to the other folds; return the decisions, and the documents of train with their logits.

    The vectors are those of the pretrained encoder: one that was trained on the documents would know their labels.
    """
    _refuse_start(run)
    if not is_pretrained(run.model.encoder):
        what = f"the encoder {run.model.encoder} is not pretrained"
        raise InputError(what, remedy="add --effort full, which trains a model for each fold")
    kept = {name: value for name, value in run.model.overrides.items() if name in ("max_length", "pooling")}
    training = run.training.model_copy(update={"effort": "head"})
    run = run.model_copy(update={"model": ModelSettings(encoder=run.model.encoder, **kept), "training": training})
    model, tokenizer, _ = new_model(run, folder)
    assert isinstance(model, FlatForSequenceClassification)
    return Decisions(folder.taxonomy, thresholds=model.config.threshold), _head_windows(
        model, tokenizer, folder, deal(folder, SPLIT, folds, run.training.seed), watch
    )


def _head_windows(
    model: FlatForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    folder: DataFolder,
    dealt: Dealt,
    watch: Watch | None,
) -> Iterator[ScoredWindow]:
    labels, longest = len(folder.taxonomy), model.config.max_length
    with nullcontext(FoldWatch()) if watch is None else watch(0) as watching:
        begin, progress = watching.on_stage, watching.on_documents
        begin("reading train", len(dealt.folds))
        tokens = tokenize_split(folder, SPLIT, tokenizer, max_length=longest, progress=progress)
        own = tokenize_documents(label_documents(folder.taxonomy), tokenizer, max_length=longest)
        learned = datasets.concatenate_datasets([tokens, own])
        collator = Collator(labels, tokenizer.pad_token_id, model.config.cut_length, progress)
        model.start_from_names(tokenizer, length=FROZEN_LENGTH)
        start = copy.deepcopy(model.classifier.state_dict())
        with vector_store(len(learned), model.config.text_encoder.hidden_size) as vectors:
            begin("encoding train", len(learned))
            for places, rows, _ in encode_documents(model, learned, collator, lambda batch: model.encode(**batch)):
                vectors[places] = rows
            folds = int(dealt.folds.max()) + 1
            begin("fitting heads", folds)
            for fold in range(folds):
                others = np.flatnonzero(dealt.folds != fold)
                model.classifier.load_state_dict(start)
                model.set_base_rates(base_rates(label_counts(tokens.select(others), labels), len(others)))
                known = np.concatenate([others, np.arange(len(tokens), len(learned))])
                fit_vectors(model, vectors[known], learned.select(known), STRENGTH)
                progress(1)
                weight, bias = (part.detach().cpu().numpy() for part in model.classifier.parameters())
                inside = zip(np.flatnonzero(dealt.folds == fold), _rows(folder, dealt, fold, inside=True), strict=True)
                for window in windows(inside, max(1, min(ROWS, ENTRIES // labels))):
                    numbers, found = map(list, zip(*window, strict=True))
                    yield found, vectors[numbers] @ weight.T + bias, gold_rows(found, labels)


def _refuse_start(run: RunConfig) -> None:
    if run.model.start is not None:
        raise InputError(
            "model.start is set, and that model may have been trained on the documents of every fold",
            path=run.model.start,
            remedy="remove it",
        )


def train_folds(run: RunConfig, folder: DataFolder, folds: int, *, watch: Watch | None = None) -> Iterator[OutOfFold]:
    """Train a model for each fold on the documents of the other folds, and yield it with the documents of its fold.

    Dev selects the best epoch. Models are kept in ``run.output/folds``; a fold whose model exists is not trained again,
    and an interrupted one continues from its newest checkpoint.

    Raises:
        InputError: if settings and data do not match, or the folder has other folds.
    """
    _refuse_start(run)
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
                train(own, data, resume=True, **watching._asdict())
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
