"""Go on training a model with a label tree that has changed: say what became of its labels."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import Document
from hgclr.files import write_json
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.changed_tree import carry_over
from hgclr.nn.gathering import rank
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import Suggestions, TreeChanges, compare, read_changes, suggest
from hgclr.training.settings import RunConfig

__all__ = ["changed_model", "survey"]

logger = logging.getLogger(__name__)

LISTED = 5
"""Suggestions that the log names."""
SURVEYED = 128
"""Training documents that a model reads to set the biases of new labels."""


def changed_model(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tree: Taxonomy,
    documents: Iterable[Document],
) -> HierarchicalPreTrainedModel:
    """Take a model over to another label tree; say which label is which, in the log and in ``label-changes.json``.

    Args:
        run: the settings.
        model: the model with the tree it was trained with.
        tokenizer: the model's own.
        tree: the new tree.
        documents: what the model will be trained on, labels by the new tree.

    Raises:
        InputError: if no label is in both trees, or the file of changes does not fit them.
    """
    old, file = model.config.taxonomy, run.model.label_changes
    changes = compare(old, tree, None if file is None else read_changes(local(file), old, tree))
    rates, texts = survey(documents, len(tree), run.training.seed)
    carried = carry_over(model, changes, tokenizer, rates=rates, texts=texts)
    perhaps = suggest(changes)
    record = run.output / "label-changes.json"
    if rank() == 0:
        write_json(record, changes.to_json() | {"perhaps": perhaps.to_json(changes)})
    _log(changes, perhaps, record)
    return carried


def survey(documents: Iterable[Document], labels: int, seed: int) -> tuple[Tensor, list[str]]:
    """Return how often each label occurs, (K,), as if each had been seen half a time more, and a sample of the texts.

    Args:
        documents: the documents, read once.
        labels: K.
        seed: decides the sample.
    """
    chosen = random.Random(seed)
    counts, number = torch.zeros(labels), 0
    texts: list[str] = []
    for number, document in enumerate(documents, start=1):
        counts[list(document.labels)] += 1
        if len(texts) < SURVEYED:
            texts.append(document.text)
        elif (place := chosen.randrange(number)) < SURVEYED:  # each of the documents so far is as likely to be in it
            texts[place] = document.text
    return (counts + 0.5) / (number + 1), texts


def _log(changes: TreeChanges, perhaps: Suggestions, record: Path) -> None:
    """Say what became of the labels: a line in all, one for each that starts anew, and where the rest stands."""
    if not changes:
        logger.info("the data has the model's label tree in another order")
        return
    logger.warning("the label tree is not the one of the model: %s (%s has all)", changes.summary(), record)
    for label in changes.added:
        parent = int(changes.new.parents[label])
        place = "at the top" if parent < 0 else f"under {changes.new.ids[parent]!r}"
        logger.info("%r is new %s", changes.new.ids[label], place)
    if mapping := perhaps.mapping(changes):
        listed = [f"{before} → {' + '.join(after)}" for before, after in mapping.items()]
        more = f" and {len(listed) - LISTED:,} more" if len(listed) > LISTED else ""
        logger.warning(
            "perhaps the same labels, which start anew unless model.label_changes says so: %s%s;"
            " hgclr taxonomy diff --suggestions FILE writes that file",
            "; ".join(listed[:LISTED]),
            more,
        )
