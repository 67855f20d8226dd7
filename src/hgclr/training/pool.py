"""Learn from unlabelled texts: a model's surest predictions for each leaf become further training documents."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import datasets
import numpy as np
import pyarrow
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import DataFolder, DocumentSet
from hgclr.data.readers import SUFFIXES, text_hash
from hgclr.data.texts import Texts, read_texts
from hgclr.data.tokens import SplitWords, sample_documents
from hgclr.decisions.review import TrainingDistance, margins, tree_scores
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification, architecture_of
from hgclr.training.fitting import Fitted, label_counts, score_splits
from hgclr.training.head import encode_all
from hgclr.training.settings import RunConfig
from hgclr.training.trainer import Collator

logger = logging.getLogger(__name__)
ROUNDS = 2
"""Rounds of labelling the texts and learning from them; the second starts only if the first helped."""
MOST = (10, 30)
"""Limits on the texts of a leaf that are tried; without dev, the last is taken."""
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
        learned = split == "train" and run.data.limit is not None
        sample = (run.data.limit or 0, run.training.seed) if learned else None
        known |= {text_hash(document.text): f"in {split}" for document in sample_documents(data, split, sample)}
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
        """The mean of Micro- and Macro-F1 on dev, of documents that decisions were not tuned on if possible."""
        if self.fitted.calibrated is not None:
            return self.fitted.calibrated.after.by("both")
        dev = self.fitted.metrics["dev"]
        return float(dev["micro"]["f1"] + dev["macro"]["f1"]) / 2


def fit_with_pool(training: partial[Fitted], splits: Mapping[str, datasets.Dataset], pool: datasets.Dataset) -> Fitted:
    """Train as :func:`~hgclr.training.fitting.fit` does, then learn from unlabelled texts, and keep the better model.

    The trained model labels the texts (:func:`pseudo_labels`). A head is fitted to the encoder as it was before
    training, on train, the label documents and these texts. The head with the best dev score is kept if it is better
    than the trained model; then it labels the texts for a second round. Without labelled documents there is no dev: a
    tenth of the pseudo-labelled texts is held out, and the head is kept if it gives them their pseudo-labels.

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
    taxonomy, labelled_ones = model.config.taxonomy, settings.effort != "names"
    train, dev = (splits.get(name) if labelled_ones else None for name in ("train", "dev"))
    collator = Collator(len(taxonomy), tokenizer.pad_token_id, model.config.cut_length, on_documents)

    def begin(stage: str, total: int | None = None) -> None:
        if on_stage is not None:
            on_stage(stage, total)

    start = deepcopy(model.state_dict())
    best = first = Trained.of(model, training(splits.get("train"), splits.get("dev"), test=splits.get("test")))
    warn_of_unlike(model, tokenizer, train, pool, collator)
    head = settings.model_copy(update={"effort": "head"} | ({} if dev is not None else {"calibrate": False}))
    tried, learned = list[dict[str, float]](), torch.zeros(len(taxonomy), dtype=torch.long)
    for _ in range(ROUNDS):
        begin("labelling unlabelled texts", len(pool))
        logits, _ = encode_all(model, pool, collator, lambda batch: model(**batch).logits, len(taxonomy))
        teacher = best
        for most in MOST if dev is not None else MOST[-1:]:
            labelled = pseudo_labels(pool, logits, teacher.fitted.decisions, most)
            documents = labelled if train is None else datasets.concatenate_datasets([without_doubt(train), labelled])
            model.load_state_dict(start)
            fitted = training(documents, dev, settings=head, lora=None, output=None, on_start=None)
            if dev is None:
                fitted = replace(fitted, decisions=replace(first.fitted.decisions, calibration=None))
            student = Trained.of(model, fitted)
            tried.append({"most": most, "texts": len(labelled), "dev": student.quality})
            if student.quality > (best.quality if dev is not None else AGREEMENT):
                best, learned = student, label_counts(labelled, len(taxonomy))
        model.load_state_dict(best.weights)
        if best is teacher or dev is None:
            break
    model.config.split_words = first.split_words
    before, metrics = first.fitted.metrics, best.fitted.metrics
    unlabelled = {
        "texts": len(pool),
        "kept": best is not first,
        "dev": None if dev is None else first.quality,
        "tried": tried,
        "labels": {taxonomy.ids[label]: int(learned[label]) for label in learned.nonzero().flatten().tolist()},
    }
    if best is not first:
        decisions = {"": best.fitted.decisions, "_at_0.5": best.fitted.untuned}
        scored = {name: split for name, split in splits.items() if name != "train"}
        metrics = {name: value for name, value in metrics.items() if not name.startswith("dev")}
        metrics |= score_splits(model, scored, collator, decisions, label_counts(train, len(taxonomy)), begin)
        unlabelled["before"] = before
    return replace(best.fitted, metrics=metrics | {"unlabelled": unlabelled})


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
    table = pool.select(kept).with_format("arrow")[:]
    for name, rows in (("labels", labels), ("unsure", unsure)):
        column = pyarrow.array(rows, pyarrow.list_(pyarrow.int32()))
        table = table.drop_columns([name] if name in table.column_names else []).append_column(name, column)
    return datasets.Dataset(table)


def without_doubt(train: datasets.Dataset) -> datasets.Dataset:
    """Return labelled documents with the column ``unsure``, which is empty."""
    return train.add_column("unsure", [[]] * len(train), feature=train.features["labels"])


def warn_of_unlike(
    model: FlatForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    train: datasets.Dataset | None,
    pool: datasets.Dataset,
    collator: Collator,
) -> None:
    """Warn if most of the unlabelled texts are in another language than train, or far from all its texts."""
    if train is None or model.config.split_words is None:
        return
    split_words = SplitWords(**model.config.split_words)
    foreign = split_words.unlike(pool, tokenizer.backend_tokenizer)
    samples = [each.select(range(0, len(each), -(-len(each) // COMPARED))) for each in (train, pool)]
    width = model.config.text_encoder.hidden_size
    known, others = (
        encode_all(model, each, collator, lambda batch: model.encode(**batch), width)[0] for each in samples
    )
    far = float((TrainingDistance(known)(others) > 0).mean())
    for share, what in (
        (foreign, "have far more unknown words than train, as in another language"),
        (far, "are far from all texts in train"),
    ):
        if share > MOSTLY:
            logger.warning("%.0f %% of the unlabelled texts %s: check data.unlabelled", 100 * share, what)
