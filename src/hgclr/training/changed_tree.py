"""Continue training with a changed label tree: carry a model's weights over to the labels of the new tree."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.files import write_json
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import LabelRows
from hgclr.models.flat import name_tokens
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
"""Texts of a batch."""


def changed_model(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tree: Taxonomy,
    documents: Iterable[Document],
) -> HierarchicalPreTrainedModel:
    """Carry a model over to another label tree, and write the changes to ``label-changes.json``.

    ``documents`` are those that the model will be trained on, with labels of the new tree.
    """
    old, file = model.config.taxonomy, run.model.label_changes
    changes = compare(old, tree, None if file is None else read_changes(local(file), old, tree))
    rates, texts = survey(documents, len(tree), run.training.seed)
    carried = carry_over(model, changes, tokenizer, rates=rates, texts=texts)
    record = run.output / "label-changes.json"
    if rank() == 0:
        write_json(record, changes.to_json())
    if changes:
        logger.warning("the label tree is not the one of the model: %s (%s has all)", changes.summary(), record)
    else:
        logger.info("the data has the model's label tree in another order")
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
        elif (place := chosen.randrange(number)) < SURVEYED:  # reservoir sampling
            texts[place] = document.text
    return base_rates(counts, number), texts


@torch.no_grad()
def carry_over(
    model: HierarchicalPreTrainedModel,
    changes: TreeChanges,
    tokenizer: PreTrainedTokenizerBase,
    *,
    rates: Tensor,
    texts: Sequence[str],
) -> HierarchicalPreTrainedModel:
    """Return a model for the new tree; the encoder and all that does not depend on the labels is shared, not copied.

    Every label keeps its entries. A merged label has the mean of its labels' entries, the parts of a split one have
    copies, a new one those of its parent, and its name's tokens. In HiAGM, where labels exchange messages, a new label
    starts with messages of 0. So adding labels changes no logit of another label.

    Then ``start_labels`` of the model improves on that, and biases of new, merged and split labels are set by the
    training documents: by how often each label occurs in them, ``rates``, (K',), and by some of their texts.
    """
    if not any(changes.sources):
        raise InputError(
            f"none of the model's {len(changes.old):,} labels is among the {len(changes.new):,} of the data",
            remedy="map labels in model.label_changes (--changes FILE), or train a new model without --from",
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
                f"{name} of {type(model).__name__} cannot be carried over to another label tree",
                remedy="train a new model, without --from",
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
