"""A trained model for a label tree that has changed since."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.models.base import HierarchicalPreTrainedModel
from hgclr.models.label_names import name_tokens
from hgclr.nn.label_rows import LabelRows
from hgclr.taxonomy.changes import TreeChanges

__all__ = ["carry_over"]

BATCH = 16
"""Texts that are read at a time."""


@torch.no_grad()
def carry_over(
    model: HierarchicalPreTrainedModel,
    changes: TreeChanges,
    tokenizer: PreTrainedTokenizerBase,
    *,
    rates: Tensor,
    texts: Sequence[str],
) -> HierarchicalPreTrainedModel:
    """Return a model for the new tree that knows what the model for the old one knew.

    The encoder, and all that does not depend on the labels, is the old model's own (shared, not copied). What depends
    on the tree alone is built anew. Every label keeps its entries of all that has one for each label, a merged one has
    the mean of its labels', and the parts of a split one have copies, see :class:`~hgclr.nn.label_rows.LabelRows`. A
    label that is new has the entries of its parent, and its name's tokens. In HiAGM and what is built on it, where
    labels tell others about themselves, it begins silent: its part of every sum over labels is 0. So adding labels
    changes no logit of another label.

    Then ``start_labels`` of the model improves on that, and the bias of labels that are not what one label was (new,
    merged, split) is set by the training documents.

    Args:
        model: the trained model, whose tree is ``changes.old``.
        changes: the two trees.
        tokenizer: the model's own.
        rates: how often each new label occurs in the training documents, (K',), between 0 and 1.
        texts: some of these documents.

    Raises:
        InputError: if no label is in both trees, or the model does not say how something of it follows the tree.
    """
    if not any(changes.sources):
        raise InputError(
            f"none of the model's {len(changes.old):,} labels is among the {len(changes.new):,} of the data",
            remedy="say which label became which in model.label_changes (--changes FILE), or train anew without --from",
        )
    names = name_tokens(changes.new.names, tokenizer)
    new = type(model)(model.changed_config(changes.new, names))
    new.encoder = model.encoder
    carried = model.state_dict() | model.label_entries(LabelRows(changes), names)
    for name, target in new.state_dict().items():
        if name.startswith("encoder."):
            continue
        if carried[name].shape != target.shape:
            raise InputError(
                f"{name} of {type(model).__name__} cannot be taken over to another label tree",
                remedy="train anew, without --from",
            )
        target.copy_(carried[name])
    new.start_labels(changes, tokenizer, rates)
    _set_biases(new, changes, tokenizer, rates, texts)
    new.train(model.training)
    return new


def _set_biases(
    model: HierarchicalPreTrainedModel,
    changes: TreeChanges,
    tokenizer: PreTrainedTokenizerBase,
    rates: Tensor,
    texts: Sequence[str],
) -> None:
    """Set the biases of new, merged and split labels so that on average each is as probable as it is frequent.

    b_n solves ``mean of sigmoid(logit_n(x) + b_n) over texts x = rate_n``: where the gradient of the cross-entropy by
    the bias is 0, whatever the row is, so that the first steps of training need not find out that a label is rare.
    """
    unsure = {*changes.added, *(new for _, new in changes.merged), *(new for _, part in changes.split for new in part)}
    if not unsure:
        return
    labels, bias = torch.tensor(sorted(unsure)), model.classifier.bias
    logits = _logits(model, tokenizer, texts, labels) - bias[labels].double()
    wanted = rates[labels].double()
    low, high = torch.logit(wanted) - logits.amax(0), torch.logit(wanted) - logits.amin(0)
    for _ in range(60):
        middle = (low + high) / 2
        small = torch.sigmoid(logits + middle).mean(0) < wanted
        low, high = torch.where(small, middle, low), torch.where(small, high, middle)
    bias[labels] = ((low + high) / 2).to(bias.dtype)


def _logits(
    model: HierarchicalPreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], labels: Tensor
) -> Tensor:
    """Return the logits of some labels without dropout, (N, n), texts in order of their length."""
    model.eval()
    ordered = sorted(texts, key=len)
    found = []
    for start in range(0, len(ordered), BATCH):
        some = ordered[start : start + BATCH]
        batch = tokenizer(some, padding=True, truncation=True, max_length=model.config.max_length, return_tensors="pt")
        read = slice(model.config.cut_length)
        logits = model(input_ids=batch["input_ids"][:, read], attention_mask=batch["attention_mask"][:, read]).logits
        found.append(logits[:, labels].double())
    return torch.cat(found)
