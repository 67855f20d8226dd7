"""How the head of a trained model starts for labels that it was not trained with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.models.base import TextClassifier
from hgclr.models.label_names import name_vectors
from hgclr.taxonomy.changes import TreeChanges

__all__ = ["name_directions", "set_biases", "start_heads"]

BATCH = 16
"""Texts that are read at a time."""


@torch.no_grad()
def start_heads(model: TextClassifier, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase) -> None:
    """Start the rows of a linear head for labels that are new, or parts of a split one, whose rows are copies so far.

    ``w_n = w_p + r u_n`` for a new label n under p (``r u_n`` at the top): what its parent looks for, and its own name,
    with u_n the direction in which the trained encoder puts the name, see :func:`name_directions`. The parts of a split
    label have its row and what sets their names apart, ``w_o + r (u_n - mean of u over the parts)``.

    How much a name says, r, the labels at the same depth tell that were kept: it is the r for which ``r u_j`` comes
    nearest, in squares, to what their rows have beyond their parents', that is the mean of ``u_j · (w_j - w_p)``, or 0
    if that is negative. So names that mean nothing to the encoder do no harm, and there is nothing to tune. At a depth
    without kept labels those of all depths tell.

    Args:
        model: the model for the new tree.
        changes: the two trees.
        tokenizer: the model's own.
    """
    if not changes.added and not changes.split:
        return
    tree, weight = changes.new, model.classifier.weight
    directions = name_directions(model, tokenizer)  # u, (K, H)
    kept = torch.zeros(len(tree) + 1, dtype=torch.bool)
    kept[[pair.new for pair in (*changes.kept, *changes.renamed, *changes.moved)]] = True
    kept[-1] = True  # the virtual root, whose row is 0
    parents = torch.from_numpy(tree.parents.copy())
    rows = F.pad(weight, (0, 0, 0, 1))  # (K + 1, H)
    agreement = (directions * (weight - rows[parents])).sum(1)
    telling = kept[:-1] & kept[parents]
    parts = {label for _, labels in changes.split for label in labels}
    apart = {label: _apart(directions, changes, label) for label in parts}
    added = set(changes.added)
    for level in tree.levels:
        scale = _scale(agreement, telling, torch.from_numpy(level.copy()))
        for label in level.tolist():
            if label in added:
                rows[label] = rows[parents[label]] + scale * directions[label]
            elif label in parts:
                rows[label] = rows[label] + scale * apart[label]
    weight.copy_(rows[:-1])


def name_directions(model: TextClassifier, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return ``(n_k - n̄) / ‖n_k - n̄‖``, n_k the encoder's vector of the k-th label's name read as a text, (K, H)."""
    vectors = name_vectors(model, tokenizer)
    return F.normalize(vectors - vectors.mean(0), dim=-1)


@torch.no_grad()
def set_biases(
    model: TextClassifier,
    changes: TreeChanges,
    tokenizer: PreTrainedTokenizerBase,
    *,
    rates: Tensor,
    texts: Sequence[str],
) -> None:
    """Set the biases of new, merged and split labels so that on average each is as probable as it is frequent.

    b_n solves ``mean of sigmoid(logit_n(x) + b_n) over texts x = rate_n``: where the gradient of the cross-entropy by
    the bias is 0, whatever the row is, so that the first steps of training need not find out that a label is rare.

    Args:
        model: the model for the new tree.
        changes: the two trees.
        tokenizer: the model's own.
        rates: how often each label occurs in the training documents, (K,).
        texts: some of these documents.
    """
    unsure = sorted(
        {*changes.added, *(new for _, new in changes.merged), *(new for _, part in changes.split for new in part)}
    )
    if not unsure:
        return
    labels = torch.tensor(unsure)
    logits = _logits(model, tokenizer, texts, labels) - model.classifier.bias[labels].double()
    model.classifier.bias[labels] = balancing_bias(logits, rates[labels].double()).to(model.classifier.bias.dtype)


def balancing_bias(logits: Tensor, rates: Tensor) -> Tensor:
    """Return b with ``mean_i sigmoid(logits_ik + b_k) = rates_k``, (K,), for logits (N, K), by halving intervals."""
    low, high = torch.logit(rates) - logits.amax(0), torch.logit(rates) - logits.amin(0)
    for _ in range(60):
        middle = (low + high) / 2
        small = torch.sigmoid(logits + middle).mean(0) < rates
        low, high = torch.where(small, middle, low), torch.where(small, high, middle)
    return (low + high) / 2


def _logits(model: TextClassifier, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], labels: Tensor) -> Tensor:
    """Return the logits of some labels without dropout, (N, n), texts in order of their length."""
    training = model.training
    model.eval()
    ordered = sorted(texts, key=len)
    found = []
    for start in range(0, len(ordered), BATCH):
        batch = tokenizer(
            ordered[start : start + BATCH],
            padding=True,
            truncation=True,
            max_length=model.config.max_length,
            return_tensors="pt",
        )
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        found.append(logits[:, labels].double())
    model.train(training)
    return torch.cat(found)


def _apart(directions: Tensor, changes: TreeChanges, label: int) -> Tensor:
    """Return what sets a part's name apart from all parts of what was split, (H,)."""
    others = sorted({part for old in changes.sources[label] for part in changes.targets[old]})
    return directions[label] - directions[others].mean(0)


def _scale(agreement: Tensor, telling: Tensor, level: Tensor) -> Tensor:
    """Return r, () and not negative, of the labels at a depth."""
    here = level[telling[level]]
    chosen = agreement[here] if len(here) else agreement[telling]
    return chosen.mean().clamp(min=0) if len(chosen) else agreement.new_zeros(())
