"""Continue training with a changed label tree: transfer a model's weights to the labels of the new tree."""

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
"""Number of training documents used to set the biases of new labels."""
BATCH = 16


def changed_model(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tree: Taxonomy,
    documents: Iterable[Document],
) -> HierarchicalPreTrainedModel:
    """Return a model for another label tree, and write the changes to ``label-changes.json``.

    ``documents`` are the training documents, with labels of the new tree.
    """
    old, file = model.config.taxonomy, run.model.label_changes
    changes = compare(old, tree, None if file is None else read_changes(local(file), old, tree))
    rates, texts = survey(documents, len(tree), run.training.seed)
    carried = carry_over(model, changes, tokenizer, rates=rates, texts=texts)
    record = run.output / "label-changes.json"
    if rank() == 0:
        write_json(record, changes.to_json())
    if changes:
        logger.warning("the data and the model have different label trees: %s (all in %s)", changes.summary(), record)
    else:
        logger.info("the data and the model have the same labels in another order")
    return carried


def survey(documents: Iterable[Document], labels: int, seed: int) -> tuple[Tensor, list[str]]:
    """Return :func:`~hgclr.training.fitting.base_rates`, (K,), and a random sample of the texts."""
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
    """Return a model for the new tree; it shares the encoder and all weights that do not depend on the labels.

    Existing labels keep their weights. A merged label gets the mean of its labels' weights, the parts of a split label
    get copies, and a new label gets its parent's weights and the tokens of its name. In HiAGM, where labels exchange
    messages, a new label starts with messages of 0. So adding labels changes no logit of another label.

    Then ``start_labels`` of the model refines new labels, and the biases of new, merged and split labels are set from
    the labels' frequencies in the training documents, ``rates``, (K',), and a sample of their texts.
    """
    if not any(changes.sources):
        raise InputError(
            f"the model ({len(changes.old):,} labels) and the data ({len(changes.new):,} labels) share no label",
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
                f"{name} of {type(model).__name__} cannot be transferred to another label tree",
                remedy="train a new model without --from",
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
    """Set the biases of new, merged and split labels so that each label's mean probability equals its frequency.

    b_n solves ``mean of sigmoid(logit_n(x) + b_n) over texts x = rate_n`` by bisection. There the gradient of the
    cross-entropy by the bias is 0, so training need not first learn that a label is rare.
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
    """Return the logits of ``labels`` without dropout, (N, n), texts sorted by length."""
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
