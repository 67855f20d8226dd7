"""Go on training a model with a label tree that has changed since: what became of its labels, and of what it knew."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.files import write_json
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.flat import name_tokens
from hgclr.models.label_rows import LabelRows
from hgclr.nn.gathering import rank
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare, read_changes
from hgclr.training.fitting import base_rates
from hgclr.training.settings import RunConfig

logger = logging.getLogger(__name__)
SURVEYED = 128
"""Training documents that a model reads to set the biases of new labels."""
BATCH = 16
"""Texts that are read at a time."""


def changed_model(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tree: Taxonomy,
    documents: Iterable[Document],
) -> HierarchicalPreTrainedModel:
    """Take a model over to another label tree; say which label is which, in the log and in ``label-changes.json``.

    ``documents`` are what the model will be trained on, with labels by the new tree.
    """
    old, file = model.config.taxonomy, run.model.label_changes
    changes = compare(old, tree, None if file is None else read_changes(local(file), old, tree))
    rates, texts = survey(documents, len(tree), run.training.seed)
    carried = carry_over(model, changes, tokenizer, rates=rates, texts=texts)
    record = run.output / "label-changes.json"
    if rank() == 0:
        write_json(record, changes.to_json())
    _log(changes, record)
    return carried


def survey(documents: Iterable[Document], labels: int, seed: int) -> tuple[Tensor, list[str]]:
    """Return :func:`~hgclr.training.fitting.base_rates`, (K,), and a sample of the texts that the seed decides."""
    chosen = random.Random(seed)
    counts, number = torch.zeros(labels), 0
    texts: list[str] = []
    for number, document in enumerate(documents, start=1):
        counts[list(document.labels)] += 1
        if len(texts) < SURVEYED:
            texts.append(document.text)
        elif (place := chosen.randrange(number)) < SURVEYED:  # each of the documents so far is as likely to be in it
            texts[place] = document.text
    return base_rates(counts, number), texts


def _log(changes: TreeChanges, record: Path) -> None:
    """Say what became of the labels: a line in all, one for each that starts anew, and where the rest stands."""
    if not changes:
        logger.info("the data has the model's label tree in another order")
        return
    logger.warning("the label tree is not the one of the model: %s (%s has all)", changes.summary(), record)
    for label in changes.added:
        parent = int(changes.new.parents[label])
        place = "at the top" if parent < 0 else f"under {changes.new.ids[parent]!r}"
        logger.info("%r is new %s", changes.new.ids[label], place)


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
    the mean of its labels', and the parts of a split one have copies, see :class:`~hgclr.models.label_rows.LabelRows`.
    A label that is new has the entries of its parent, and its name's tokens. In HiAGM and what is built on it, where
    labels tell others about themselves, it begins silent: its part of every sum over labels is 0. So adding labels
    changes no logit of another label.

    Then ``start_labels`` of the model improves on that, and the bias of labels that are not what one label was (new,
    merged, split) is set by the training documents: by how often each label occurs in them, ``rates``, (K',), between 0
    and 1, and by some of their texts.
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
