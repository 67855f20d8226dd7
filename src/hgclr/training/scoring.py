"""What a trained model says of tokenised documents: logits batch by batch, decisions tuned on dev, final scores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import datasets
import numpy as np
import torch
from numpy.typing import NDArray

from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Calibrated, Outputs, calibrate
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.models import TextClassifier
from hgclr.training.trainer import Collator, SortedByLength

__all__ = ["encode_documents", "final_scores", "tune_decisions"]

logger = logging.getLogger(__name__)

BATCH = 64
"""Documents scored at a time."""
ENTRIES = 2**23
"""Documents times labels: to tune on more would take minutes and tell little more."""
LEAST = 10
"""Documents of dev below which nothing is tuned."""


@torch.inference_mode()
def encode_documents(
    model: TextClassifier,
    tokens: datasets.Dataset,
    collator: Collator,
    compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield documents in batches of similar length, from the longest: their places, what is computed, gold labels.

    Args:
        model: what computes; it is put into evaluation mode.
        tokens: the documents.
        collator: makes batches of them.
        compute: takes a batch without its labels and returns a row for each document.
    """
    model.eval()
    order = SortedByLength(tokens["length"]).order
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        batch = collator([tokens[int(place)] for place in places])
        gold = batch.pop("labels").bool().numpy()
        rows = compute({name: value.to(model.device) for name, value in batch.items()})
        yield places, rows.float().cpu().numpy(), gold


def model_logits(
    model: TextClassifier, tokens: datasets.Dataset, collator: Collator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield places, logits and gold labels; see :func:`encode_documents`."""
    return encode_documents(model, tokens, collator, lambda batch: model(**batch).logits)


def tune_decisions(
    model: TextClassifier, tokens: datasets.Dataset, collator: Collator, *, seed: int
) -> Calibrated | None:
    """Find the best decisions on dev, or on a random sample of a large one; None if it is too small to tell."""
    taxonomy = model.config.taxonomy
    most = max(LEAST, ENTRIES // len(taxonomy))
    if len(tokens) < LEAST:
        logger.warning("decisions stay at one half: %d documents in dev are too few to tune on", len(tokens))
        return None
    if len(tokens) > most:
        logger.info("decisions are tuned on %d of the %d documents of dev, a random sample", most, len(tokens))
        tokens = tokens.select(np.sort(np.random.default_rng(seed).choice(len(tokens), most, replace=False)))
    logits = np.empty((len(tokens), len(taxonomy)), dtype=np.float32)
    gold = np.empty(logits.shape, dtype=np.bool_)
    for places, rows, labels in model_logits(model, tokens, collator):
        logits[places], gold[places] = rows, labels
    return calibrate(Outputs(logits, gold), Decisions(taxonomy, thresholds=model.config.threshold), seed=seed)


def final_scores(
    model: TextClassifier, tokens: datasets.Dataset, collator: Collator, decisions: Mapping[str, Decisions]
) -> dict[str, MultiLabelScores]:
    """Return the scores of one model with several decisions, by their names; the documents are encoded once."""
    scores = {name: MultiLabelScores(each.taxonomy) for name, each in decisions.items()}
    for _, logits, gold in model_logits(model, tokens, collator):
        for name, each in decisions.items():
            scores[name].update(each.decide(each.probabilities(logits)).given, gold)
    return scores
