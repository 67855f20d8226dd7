"""Learn from unlabelled texts: a model's surest predictions for each leaf become further training documents."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import DataFolder, DocumentSet, label_documents
from hgclr.data.readers import SUFFIXES, text_hash
from hgclr.data.split import hold_out
from hgclr.data.texts import Texts, read_texts
from hgclr.data.tokens import SplitWords, sample_documents, tokenize_documents
from hgclr.decisions.review import TrainingDistance, margins, tree_scores
from hgclr.decisions.settings import Decisions, sigmoid
from hgclr.decisions.tuning import Calibrated, Outputs, calibrate
from hgclr.errors import InputError
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification, architecture_of
from hgclr.nn.gathering import rank
from hgclr.training.distributed import from_first_rank
from hgclr.training.fitting import (
    FROZEN_LENGTH,
    HELD_OUT,
    Fitted,
    base_rates,
    label_counts,
    score_splits,
    tuning_summary,
)
from hgclr.training.head import (
    LEAST,
    SILENT,
    STRENGTH,
    best_head,
    encode_all,
    encoded,
    fit_vectors,
    target_rows,
    tuning_sample,
)
from hgclr.training.settings import RunConfig, TrainingSettings
from hgclr.training.trainer import Collator

logger = logging.getLogger(__name__)
ROUNDS = 2
"""Rounds of labelling the texts and learning from them; the second starts only if the first helped."""
MOST = (10, 30)
"""Limits on the texts of a leaf that are tried; without dev, the last is taken."""
DOUBT = 0.05
"""A label above this probability that is not on the path of the chosen leaf is unknown, and not wrong."""
AGREEMENT = 0.8
"""Micro-F1 on held-out pseudo-labels above which a head is kept if there is no dev."""
MOSTLY = 0.5
"""Share of the texts unlike train above which a warning is given."""
COMPARED = 1000
"""Texts of which vectors are compared for that."""
PARTIAL = datasets.Features({name: datasets.List(datasets.Value("int32")) for name in ("labels", "unsure")})
Known = tuple[NDArray[np.float32], NDArray[np.bool_]]


def read_pool(run: RunConfig, data: DataFolder | DocumentSet) -> Texts | None:
    """Return the unlabelled texts of a run, without those in its splits; None if there are none to read.

    They are in ``data.unlabelled`` or, if that is not set, in the file ``unlabelled.*`` of the data folder.
    """
    place = run.data.unlabelled
    if place is None and isinstance(data, DataFolder):
        found = [data.path / f"unlabelled{suffix}" for suffix in SUFFIXES]
        place = next((file for file in found if file.is_file()), None)
    if place in (None, "none"):
        return None
    columns, known = [run.data.text_column], dict[int, str]()
    if isinstance(data, DataFolder):
        columns += [data.form.text_column, data.source_text_column]
    for split in data.splits:
        if split == "train" and run.training.effort == "names":
            continue  # the documents of train are not learned from
        learned = split == "train" and run.data.limit is not None
        sample = (run.data.limit or 0, run.training.seed) if learned else None
        known |= {text_hash(document.text): f"in {split}" for document in sample_documents(data, split, sample)}
    texts = read_texts([str(place)], text_columns=[name for name in columns if name], known=known)
    if not texts.texts:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in texts.left_out.items()) or "no rows"
        raise InputError(f"no unlabelled text can be used: {reasons}", path=place, remedy="give other texts")
    return texts


@dataclass(frozen=True, eq=False)
class Student:
    """A head that learned from unlabelled texts.

    Args:
        head: weight and bias.
        calibrated: a report of how its decisions were tuned, if they were.
        labels: pseudo-labels of each label, (K,).
    """

    head: dict[str, Tensor]
    calibrated: Calibrated | None
    labels: NDArray[np.int64]


def fit_with_pool(training: partial[Fitted], splits: Mapping[str, datasets.Dataset], pool: datasets.Dataset) -> Fitted:
    """Train as :func:`~hgclr.training.fitting.fit` does, then learn from unlabelled texts, and keep the better model.

    The trained model labels the texts (:func:`pseudo_labels`). A head is fitted to the vectors of the encoder as it was
    before training: those of train, of these texts and of the label documents. The best head on dev is kept if it is
    better than the trained model; it then labels the texts for a second round. Without labelled documents there is no
    dev: a tenth of the pseudo-labelled texts is held out, and the head is kept if it gives them their pseudo-labels.

    Args:
        training: ``fit`` with all arguments but the splits; its model is trained in place.
        splits: train, dev and test as tokens, if they are there.
        pool: the unlabelled texts as tokens.
    """
    (model, tokenizer), given = training.args, training.keywords
    settings, on_documents, on_stage = given["settings"], given["on_documents"], given["on_stage"]
    if not isinstance(model, FlatForSequenceClassification):
        what = f"unlabelled texts need a flat model, and this one is {architecture_of(model)}"
        raise InputError(what, remedy="set model.architecture=flat, or data.unlabelled=none")
    taxonomy, supervised = model.config.taxonomy, settings.effort != "names"
    train, dev = (splits.get(name) if supervised else None for name in ("train", "dev"))
    if supervised and len(dev or ()) < LEAST:
        what = f"unlabelled texts need {LEAST} documents in dev, which decide whether they help"
        raise InputError(what, remedy="add documents to dev, or set data.unlabelled=none")
    collator = Collator(len(taxonomy), tokenizer.pad_token_id, model.config.cut_length, on_documents)

    def begin(stage: str, total: int | None = None) -> None:
        if on_stage is not None:
            on_stage(stage, total)

    def vectors_of(documents: datasets.Dataset) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        width = model.config.text_encoder.hidden_size
        return encode_all(model, documents, collator, lambda batch: model.encode(**batch), width)

    start = deepcopy(model.state_dict())
    first = training(splits.get("train"), splits.get("dev"), test=splits.get("test"))
    trained = deepcopy(model.state_dict())
    begin("labelling unlabelled texts", len(pool))
    logits, _ = encode_all(model, pool, collator, lambda batch: model(**batch).logits, len(taxonomy))
    model.load_state_dict(start)
    if not given["continued"] and model.config.classifier_start == "names":
        model.start_from_names(tokenizer, length=FROZEN_LENGTH)
    parts = [pool] if train is None else [pool, train]
    if given["label_documents"] or train is None:
        parts.append(tokenize_documents(label_documents(taxonomy), tokenizer, max_length=model.config.max_length))
    everything = datasets.concatenate_datasets(parts)
    begin("learning from unlabelled texts", len(everything) + len(dev or ()))
    found: tuple[Student | None, list[dict[str, float]]] = None, []
    with encoded(model, everything, collator) as vectors:
        known = None if dev is None else vectors_of(tuning_sample(dev, len(taxonomy), settings.seed))
        if rank() == 0:
            if train is not None:
                warn_of_unlike(
                    SplitWords.measure(train, tokenizer.backend_tokenizer), tokenizer, pool, vectors, len(train)
                )
            rows = [each.select_columns("labels") for each in parts[1:]]
            if known is None:
                found = student_of_names(model, first, vectors, logits, rows, settings.seed)
            else:
                found = best_student(model, first, vectors, logits, rows, known, settings)
    best, tried = from_first_rank(found)
    report: dict[str, Any] = {"texts": len(pool), "kept": best is not None, "tried": tried, "labels": {}}
    report["dev"] = quality_of(first) if supervised else None
    if best is None:
        model.load_state_dict(trained)
        return replace(first, metrics=first.metrics | {"unlabelled": report})
    model.load_state_dict(start | {f"classifier.{name}": value for name, value in best.head.items()})
    half = Decisions(taxonomy, thresholds=model.config.threshold)
    decisions = half if best.calibrated is None else best.calibrated.decisions
    if not supervised:
        decisions = replace(first.decisions, calibration=None)
    before = {name: value for name, value in first.metrics.items() if name.startswith(("dev", "test", "tuned", "cpu"))}
    metrics = {name: value for name, value in first.metrics.items() if name not in before}
    if best.calibrated is not None:
        metrics["tuned"] = tuning_summary(best.calibrated)
    scored = {name: split for name, split in splits.items() if name != "train"}
    counts = label_counts(splits.get("train"), len(taxonomy))
    metrics |= score_splits(model, scored, collator, {"": decisions, "_at_0.5": half}, counts, begin)
    report["labels"] = {taxonomy.ids[label]: int(best.labels[label]) for label in np.flatnonzero(best.labels)}
    return Fitted(decisions, best.calibrated, metrics | {"unlabelled": report | {"before": before}})


def quality_of(fitted: Fitted) -> float:
    """Return the mean of Micro- and Macro-F1 on dev, of documents that decisions were not tuned on if possible."""
    if fitted.calibrated is not None:
        return fitted.calibrated.after.by("both")
    dev = fitted.metrics["dev"]
    return float(dev["micro"]["f1"] + dev["macro"]["f1"]) / 2


def best_student(
    model: FlatForSequenceClassification,
    first: Fitted,
    vectors: NDArray[np.float32],
    logits: NDArray[np.float32],
    labelled: Sequence[datasets.Dataset],
    known: Known,
    settings: TrainingSettings,
) -> tuple[Student | None, list[dict[str, float]]]:
    """Return the best head that learned from unlabelled texts, None if none is better than ``first``, and all scores.

    Args:
        model: its head is the one that learning starts from; it is changed.
        first: the trained model.
        vectors: of the unlabelled texts and of all ``labelled`` documents, (N, H).
        logits: of the trained model for the unlabelled texts.
        labelled: the labels of train and, if they are there, of the label documents.
        known: vectors and gold labels of dev.
        settings: seed, and whether decisions are tuned.
    """
    taxonomy, head, start = model.config.taxonomy, model.classifier, deepcopy(model.classifier.state_dict())
    half, tuned = Decisions(taxonomy, thresholds=model.config.threshold), settings.calibrate is not False
    train, *names = map(certain, labelled)
    own, others = np.split(np.arange(len(logits), len(vectors)), [len(train)])
    best, goal, decisions, tried = None, quality_of(first), first.decisions, list[dict[str, float]]()
    for _ in range(ROUNDS):
        former = best
        for most in MOST:
            places, pseudo = pseudo_labels(logits, decisions, most)
            learned, documents = datasets.concatenate_datasets([train, pseudo, *names]), len(train) + len(pseudo)
            head.load_state_dict(start)
            counts = label_counts(learned.select(range(documents)), len(taxonomy))
            model.set_base_rates(base_rates(counts, documents))
            order = np.concatenate([own, places, others])
            best_head(model, vectors[order], learned, known, documents=documents, tuned=tuned, seed=settings.seed)
            outputs = Outputs(logits_of(model, known[0]), known[1])
            found = calibrate(outputs, half, seed=settings.seed, log=SILENT)
            quality = (found.after if tuned else found.before).by("both")
            tried.append({"most": most, "texts": len(pseudo), "dev": quality})
            if quality > goal:
                learned_from = label_counts(pseudo, len(taxonomy)).numpy()
                goal, best = quality, Student(deepcopy(head.state_dict()), found if tuned else None, learned_from)
        if best is None or best is former:
            break
        head.load_state_dict(best.head)
        logits = logits_of(model, vectors[: len(logits)])
        decisions = half if best.calibrated is None else best.calibrated.decisions
    return best, tried


def student_of_names(
    model: FlatForSequenceClassification,
    first: Fitted,
    vectors: NDArray[np.float32],
    logits: NDArray[np.float32],
    labelled: Sequence[datasets.Dataset],
    seed: int,
) -> tuple[Student | None, list[dict[str, float]]]:
    """Return the head that learned from unlabelled texts alone, None if it does not agree with them, and its score.

    The arguments are those of :func:`best_student`; ``labelled`` are the label documents. ``dev`` in the score is the
    Micro-F1 of the best paths on a tenth of the pseudo-labelled texts, which is held out.
    """
    taxonomy = model.config.taxonomy
    places, pseudo = pseudo_labels(logits, first.decisions, MOST[-1])
    chosen, held_out = hold_out(len(places), HELD_OUT, seed)
    learned = datasets.concatenate_datasets([pseudo.select(chosen), *map(certain, labelled)])
    model.set_base_rates(base_rates(label_counts(pseudo, len(taxonomy)), len(pseudo)))
    order = np.concatenate([places[chosen], np.arange(len(logits), len(vectors))])
    fit_vectors(model, vectors[order], learned, STRENGTH)
    decisions, scores = replace(first.decisions, calibration=None), MultiLabelScores(taxonomy)
    gold = target_rows(pseudo.select(held_out), len(taxonomy))(0, len(held_out)).numpy() == 1
    scores.update(decisions.decide(sigmoid(logits_of(model, vectors[places[held_out]]))).predicted, gold)
    agreement = scores.micro().f1
    tried = [{"most": MOST[-1], "texts": len(chosen), "dev": agreement}]
    learned_from = label_counts(pseudo.select(chosen), len(taxonomy)).numpy()
    student = Student(deepcopy(model.classifier.state_dict()), None, learned_from)
    return student if agreement > AGREEMENT else None, tried


def logits_of(model: FlatForSequenceClassification, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the head's logits, (N, K), for vectors of texts, (N, H)."""
    with torch.no_grad():
        found: NDArray[np.float32] = model.classifier(torch.from_numpy(vectors).to(model.device)).cpu().numpy()
    return found


def pseudo_labels(
    logits: NDArray[np.float32], decisions: Decisions, most: int
) -> tuple[NDArray[np.int64], datasets.Dataset]:
    """Return the positions of the texts that a model is surest of, and their labels.

    Every text belongs to the leaf with the best tree score (:func:`~hgclr.decisions.review.tree_scores`), and gets its
    path as labels. Of the texts of one leaf, those with the largest margin to the second leaf are kept, ``most`` at
    most: otherwise frequent labels would crowd out rare ones. Other labels that are more probable than 0.05 are
    ``unsure``: the text may have a second path, or the model may be wrong.

    Args:
        logits: of a trained model, (N, K).
        decisions: of that model, for its probabilities.
        most: limit on the texts of a leaf.
    """
    taxonomy = decisions.taxonomy
    scores = tree_scores(logits, taxonomy)
    leaf, doubt = scores.argmax(axis=1), -margins(scores)
    order = np.lexsort((doubt, leaf))  # by leaf, the surest first
    starts = np.searchsorted(leaf[order], leaf[order])
    kept = np.sort(order[np.arange(len(order)) - starts < most])
    labels = [taxonomy.closure([end]) for end in taxonomy.leaves[leaf[kept]].tolist()]
    possible = decisions.probabilities(logits[kept]) > DOUBT
    unsure = [np.setdiff1d(np.flatnonzero(row), own) for row, own in zip(possible, labels, strict=True)]
    return kept, datasets.Dataset.from_dict({"labels": labels, "unsure": unsure}, features=PARTIAL)


def certain(labels: datasets.Dataset) -> datasets.Dataset:
    """Return the labels of documents as :func:`pseudo_labels` does, with none that are unsure."""
    return labels.add_column("unsure", [[]] * len(labels), feature=PARTIAL["unsure"])


def warn_of_unlike(
    split_words: SplitWords,
    tokenizer: PreTrainedTokenizerBase,
    pool: datasets.Dataset,
    vectors: NDArray[np.float32],
    train: int,
) -> None:
    """Warn if most of the unlabelled texts are in another language than train, or far from all its texts.

    ``vectors`` begin with those of the unlabelled texts and of the documents in train.
    """
    foreign = split_words.unlike(pool, tokenizer.backend_tokenizer)
    texts, known = vectors[: len(pool) : -(-len(pool) // COMPARED)], vectors[len(pool) : len(pool) + train]
    far = float((TrainingDistance(known[:: -(-train // COMPARED)])(texts) > 0).mean())
    for share, what in (
        (foreign, "have far more unknown words than train, as in another language"),
        (far, "are far from all texts in train"),
    ):
        if share > MOSTLY:
            logger.warning("%.0f %% of the unlabelled texts %s: check data.unlabelled", 100 * share, what)
