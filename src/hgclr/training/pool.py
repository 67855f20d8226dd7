"""Learn from unlabelled texts: a model's surest predictions for each leaf become further training documents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hgclr.data.folder import DataFolder, DocumentSet
from hgclr.data.readers import SUFFIXES, text_hash
from hgclr.data.texts import Texts, read_texts
from hgclr.data.tokens import SplitWords
from hgclr.decisions.review import TrainingDistance, margins, tree_scores
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification
from hgclr.training.fitting import Fitted, fit, label_counts, score_splits
from hgclr.training.head import encode_all
from hgclr.training.settings import RunConfig, TrainingSettings
from hgclr.training.trainer import Collator

logger = logging.getLogger(__name__)
ROUNDS = 2
"""Rounds of labelling the texts and learning from them; the second starts only if the first helped."""
MOST = (10, 30)
"""Texts that a leaf gets at most; dev decides."""
MOST_FROM_NAMES = 30
"""The same without dev."""
DOUBT = 0.05
"""A label above this probability that is not on the path of the chosen leaf is unknown, and not wrong."""
AGREEMENT = 0.8
"""Micro-F1 on held-out pseudo-labels from which a student of the effort ``names`` is kept."""
MOSTLY = 0.5
"""Share of texts unlike those in train above which a warning is given."""
COMPARED = 1000
"""Texts of which vectors are compared for that."""


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
        known |= {text_hash(document.text): f"in {split}" for document in data.usable(split)}
    texts = read_texts([str(place)], text_columns=[name for name in columns if name], known=known)
    if not texts.texts:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in texts.left_out.items()) or "no rows"
        raise InputError(f"no unlabelled text can be used: {reasons}", path=place, remedy="give other texts")
    return texts


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: what training returned, and the model's weights and statistics."""

    fitted: Fitted
    weights: dict[str, Tensor]
    split_words: dict[str, float] | None

    @classmethod
    def of(cls, model: FlatForSequenceClassification, fitted: Fitted) -> Trained:
        return cls(fitted, deepcopy(model.state_dict()), model.config.split_words)

    @property
    def quality(self) -> float:
        """The mean of Micro- and Macro-F1 on dev, on documents that decisions were not tuned on."""
        if self.fitted.calibrated is not None:
            return self.fitted.calibrated.after.by("both")
        dev = self.fitted.metrics["dev"]
        return float(dev["micro"]["f1"] + dev["macro"]["f1"]) / 2


def fit_with_pool(
    fitting: Callable[..., Fitted],
    model: FlatForSequenceClassification,
    tokens: Mapping[str, datasets.Dataset],
    pool: datasets.Dataset,
    settings: TrainingSettings,
    collator: Collator,
    begin: Callable[[str, int | None], None],
    **options: Any,
) -> Fitted:
    """Train as :func:`~hgclr.training.fitting.fit` does, then learn from unlabelled texts, and keep the better model.

    The trained model labels the texts (:func:`pseudo_labels`). A head is fitted to the encoder as it was before
    training, on train, the label documents and these texts. The head with the best dev score is kept if it is better
    than the trained model; then it labels the texts for a second round. Without labelled documents there is no dev: a
    tenth of the pseudo-labelled texts is held out, and the head is kept if it gives them their pseudo-labels.

    Args:
        fitting: fits the model, with the arguments ``train``, ``dev``, ``settings`` and those of ``options``.
        model: trained in place.
        tokens: the splits.
        pool: the unlabelled texts as tokens.
        settings: of the first training.
        collator, begin: as in ``fit``.
        options: further arguments of the first training.
    """
    taxonomy, train, dev = model.config.taxonomy, tokens.get("train"), tokens.get("dev")
    start = deepcopy(model.state_dict())
    best = first = Trained.of(model, fitting(train, dev, settings=settings, **options))
    tried, learned = list[dict[str, float]](), dict[str, int]()
    for _ in range(ROUNDS if dev is not None else 1):
        begin("labelling unlabelled texts", len(pool))
        logits, _ = encode_all(model, pool, collator, lambda batch: model(**batch).logits, len(taxonomy))
        teacher, before = best.fitted, best
        for most in MOST if dev is not None else (MOST_FROM_NAMES,):
            labelled = pseudo_labels(pool, logits, teacher.decisions, most)
            documents = labelled if train is None else datasets.concatenate_datasets([_certain(train), labelled])
            model.load_state_dict(start)
            head = settings.model_copy(
                update={"effort": "head", "calibrate": settings.calibrate if dev is not None else False}
            )
            student = Trained.of(model, fitting(documents, dev, settings=head))
            tried.append({"most": most, "texts": len(labelled), "dev": student.quality})
            better = student.quality > best.quality
            if dev is None:
                better = student.fitted.metrics["dev"]["micro"]["f1"] >= AGREEMENT
                student = replace(student, fitted=replace(student.fitted, decisions=replace(teacher.decisions, calibration=None)))
            if better:
                best = student
                learned = dict(zip(taxonomy.ids, label_counts(labelled, len(taxonomy)).tolist(), strict=True))
        model.load_state_dict(best.weights)
        if best is before:
            break
    model.config.split_words = first.split_words
    fitted = best.fitted
    counts = label_counts(train, len(taxonomy))
    decisions = {"": fitted.decisions, "_at_0.5": fitted.untuned}
    splits = {name: split for name, split in tokens.items() if name in ("dev", "test")}
    metrics = {name: value for name, value in fitted.metrics.items() if not name.startswith("dev")}
    metrics |= score_splits(model, splits, collator, decisions, counts, begin)
    metrics["unlabelled"] = {
        "texts": len(pool),
        "dev": None if dev is None else first.quality,
        "tried": tried,
        "kept": best is not first,
        "labels": {name: count for name, count in learned.items() if count},
    }
    return replace(fitted, metrics=metrics)


def pseudo_labels(
    pool: datasets.Dataset, logits: NDArray[np.float32], decisions: Decisions, most: int
) -> datasets.Dataset:
    """Return the texts that a model is surest of, with their labels.

    Every text belongs to the leaf with the best tree score (:func:`~hgclr.decisions.review.tree_scores`), and gets its
    path as labels. Of the texts of one leaf, those with the largest margin to the second leaf are kept, ``most`` at
    most: otherwise frequent labels would crowd out rare ones. Other labels that are more probable than 0.05 are
    ``unsure``: the text may have a second path, or the model may be wrong.

    Args:
        pool: the texts as tokens, N.
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
    feature = pool.features["labels"]
    columns = {"labels": [own.astype(np.int32) for own in labels], "unsure": [row.astype(np.int32) for row in unsure]}
    found = pool.select(kept).remove_columns("labels")
    for name, rows in columns.items():
        found = found.add_column(name, rows, feature=feature)
    return found


def _certain(train: datasets.Dataset) -> datasets.Dataset:
    """Return documents with the column of :func:`pseudo_labels` for unknown labels, which is empty."""
    return train.add_column("unsure", [[]] * len(train), feature=train.features["labels"])
