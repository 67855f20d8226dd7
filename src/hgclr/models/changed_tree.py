"""A trained model for a label tree that has changed since."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.models.base import HierarchicalPreTrainedModel
from hgclr.models.hgclr import LabelSide
from hgclr.models.hiagm import HiAGMPreTrainedModel
from hgclr.models.himatch import HiMatchForSequenceClassification
from hgclr.models.label_names import LabelRows, name_tokens, name_vectors
from hgclr.taxonomy.changes import TreeChanges

__all__ = ["carry_over"]

BATCH = 16
"""Texts that are read at a time."""


@torch.no_grad()
def start_heads(model: HierarchicalPreTrainedModel, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase) -> None:
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


def name_directions(model: HierarchicalPreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return ``(n_k - n̄) / ‖n_k - n̄‖``, n_k the encoder's vector of the k-th label's name read as a text, (K, H)."""
    vectors = name_vectors(model, tokenizer)
    return F.normalize(vectors - vectors.mean(0), dim=-1)


@torch.no_grad()
def set_biases(
    model: HierarchicalPreTrainedModel,
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


def _logits(
    model: HierarchicalPreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], labels: Tensor
) -> Tensor:
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
    labels tell others about themselves, it begins silent: its edge up and its part of every sum over labels are 0, and
    its edge down is its share of its siblings' documents. So adding labels changes no logit of another label in any
    architecture.

    A linear head (flat, HGCLR) then starts the rows of new labels and of split ones by their names too, see
    :func:`~hgclr.models.new_labels.start_heads`. In every architecture the bias of labels that are not what one label
    was (new, merged, split) is set by the training documents, see :func:`~hgclr.models.new_labels.set_biases`.

    Args:
        model: the trained model, whose tree is ``changes.old``.
        changes: the two trees.
        tokenizer: the model's own.
        rates: how often each new label occurs in the training documents, (K',), between 0 and 1.
        texts: some of these documents.

    Raises:
        InputError: if no label is in both trees, or the model has something that this function does not know of.
    """
    if not any(changes.sources):
        raise InputError(
            f"none of the model's {len(changes.old):,} labels is among the {len(changes.new):,} of the data",
            remedy="say which label became which in model.label_changes (--changes FILE), or train anew without --from",
        )
    names = _name_tokens(model, changes, tokenizer)
    config = copy.deepcopy(model.config)
    config.set_taxonomy(changes.new)
    if isinstance(model, LabelSide):
        config.label_name_length = names.shape[1]
    new: HierarchicalPreTrainedModel = type(model)(config)
    new.encoder = model.encoder
    _carry_weights(model, new, LabelRows(changes), names)
    if isinstance(new, HiAGMPreTrainedModel):
        _set_edges(new, changes, rates)
    else:
        start_heads(new, changes, tokenizer)
    set_biases(new, changes, tokenizer, rates=rates, texts=texts)
    new.train(model.training)
    return new


def _carry_weights(
    model: HierarchicalPreTrainedModel, new: HierarchicalPreTrainedModel, rows: LabelRows, names: Tensor
) -> None:
    """Fill all parameters and buffers of the new model but its encoder's."""
    wide, labels, width = isinstance(model, HiAGMPreTrainedModel), model.config.label_count, model.config.node_width

    def blocks(old: Tensor) -> Tensor:  # d rows for each label
        return rows.rows(old.unflatten(0, (labels, width))).flatten(0, 1)

    def block_columns(old: Tensor) -> Tensor:  # d columns for each label
        return rows.columns(old.unflatten(1, (labels, width)).transpose(0, 1)).transpose(0, 1).flatten(1)

    ways: dict[str, Callable[[Tensor], Tensor]] = {
        r"classifier\.weight": (lambda old: block_columns(rows.rows(old))) if wide else rows.rows,
        r"classifier\.bias": rows.rows,
        r"(label_encoder\.)?label_embedding\.weight": rows.rows,
        r"label_encoder\.structure\.edge": rows.rows,
        r"label_encoder\.structure\.spatial": lambda old: _by_distance(old, 2 * new.config.taxonomy.depth + 1),
        r"(label_)?structure\.(up|down)(_gate)?_bias": rows.rows,
        r"(label_)?structure\.up": rows.columns,
        r"(label_)?structure\.down": rows.rows,
        r"transformation\.(weight|bias)": blocks,
        r"information_gate\.labels\.weight|text_joint\.0\.weight": block_columns,
        r"label_vectors": rows.rows,
        r"name_tokens|label_tokens": lambda _: names,
        r"batches": torch.zeros_like,  # HiMatch then reads the labels' texts in the first step
    }
    before = model.state_dict()
    for name, target in new.state_dict().items():
        if name.startswith("encoder."):
            continue
        way = next((way for pattern, way in ways.items() if re.fullmatch(pattern, name)), None)
        carried = before[name] if way is None else way(before[name])
        if carried.shape != target.shape:
            raise InputError(
                f"{name} of {type(model).__name__} cannot be taken over to another label tree",
                remedy="train anew, without --from",
            )
        target.copy_(carried)


def _by_distance(old: Tensor, distances: int) -> Tensor:
    """Return a number for each distance; those larger than any in the old tree have that of its largest."""
    return old[torch.arange(distances).clamp(max=len(old) - 1)]


def _set_edges(model: HiAGMPreTrainedModel, changes: TreeChanges, rates: Tensor) -> None:
    """Start the edges down to new labels at their share among the documents of all children of the parent."""
    parents = torch.from_numpy(changes.new.parents.copy())
    below = parents >= 0
    families = torch.zeros_like(rates).index_add_(0, parents[below], rates[below])
    added = torch.tensor([label for label in changes.added if parents[label] >= 0], dtype=torch.int64)
    structures = [
        model.structure,
        *([model.label_structure] if isinstance(model, HiMatchForSequenceClassification) else []),
    ]
    for structure in structures:
        structure.down[added] = (rates[added] / families[parents[added]]).to(structure.down.dtype)


def _name_tokens(
    model: HierarchicalPreTrainedModel, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """Return the tokens by which the model knows each label, (K', T): the old ones of a label that has the same name.

    An imported checkpoint may read a name in another way than its tokenizer does, and HiMatch reads words of a label's
    documents in its place.
    """
    names = name_tokens(changes.new.names, tokenizer)
    if isinstance(model, HiMatchForSequenceClassification):
        known: Tensor | None = model.label_tokens
        width, length = model.label_tokens.shape[1], model.label_text_length
        names = names[:, :length]
    else:
        known = model.name_tokens if isinstance(model, LabelSide) else None
        width = names.shape[1] if known is None else max(names.shape[1], known.shape[1])
    tokens = torch.full((len(names), width), -1)
    tokens[:, : names.shape[1]] = names
    if known is not None:
        for new, came in enumerate(changes.sources):
            if len(came) == 1 and changes.old.names[came[0]] == changes.new.names[new]:
                tokens[new] = -1
                tokens[new, : known.shape[1]] = known[came[0]]
    return tokens
