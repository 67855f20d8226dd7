"""The effort ``head``: fit the head to vectors of the encoder as it comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hgclr.models import FlatModel
from hgclr.training.scoring import encode_documents
from hgclr.training.trainer import Collator

__all__ = ["fit_head"]

logger = logging.getLogger(__name__)

STRENGTH = 3e-5
"""λ of :func:`fit_head`."""
ITERATIONS = 50
"""Steps of L-BFGS at most."""
ENTRIES = 2**24
"""Documents times labels whose logits are in memory at a time."""


def fit_head(
    model: FlatModel,
    learned: datasets.Dataset,
    rates: Tensor,
    collator: Collator,
    on_documents: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Fit the head to frozen vectors, pulled towards where it stands, and return the recipe.

    ``min over W, b of  1/N Σ_d Σ_k BCE(W_k h_d + b_k, y_dk) + λ/2 ‖W - W_0‖²``, by L-BFGS on all N documents at a time;
    W_0 are the rows as they are, which point to the labels' names, so that a label with few documents stays near its
    name and one with many goes where they are.

    Args:
        model: the model; its encoder stays as it is.
        learned: what to fit to, documents and the label tree's own.
        rates: how often each label occurs in train, (K,): where the bias starts.
        collator: makes batches.
        on_documents: called with the number of documents encoded, as it grows.
    """
    vectors = torch.empty(len(learned), model.config.text_encoder.hidden_size)
    gold = np.zeros((len(learned), model.config.label_count), dtype=np.bool_)
    for places, rows, labels in encode_documents(model, learned, collator, lambda batch: model.encode(**batch)):
        vectors[torch.from_numpy(places)] = torch.from_numpy(rows)
        gold[places] = labels
        if on_documents is not None:
            on_documents(len(places))
    model.set_base_rates(rates)
    head = model.classifier
    start = head.weight.detach().clone()  # W_0
    weight, bias = start.clone().requires_grad_(), head.bias.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe")
    step = max(1, ENTRIES // len(start))

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = STRENGTH / 2 * (weight - start).square().sum()
        total.backward()
        for begin in range(0, len(vectors), step):
            logits = vectors[begin : begin + step] @ weight.T + bias
            labels = torch.from_numpy(gold[begin : begin + step]).float()
            loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / len(vectors)
            loss.backward()
            total = total.detach() + loss.detach()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    logger.info("fitted a head of %d labels to %d vectors", len(start), len(vectors))
    return {"strength": STRENGTH, "iterations": ITERATIONS}
