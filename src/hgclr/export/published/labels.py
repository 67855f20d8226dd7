"""The label tree of the published program's data folder, and whether a checkpoint was trained with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.export.published.files import read_label_tokens, read_parents
from hgclr.taxonomy import Taxonomy

__all__ = ["NAMES_FILE", "TREE_FILE", "check_same_labels", "read_labels"]

logger = logging.getLogger(__name__)

NAMES_FILE = "bert_value_dict.pt"
TREE_FILE = "slot.pt"


def read_labels(folder: Path, tokenizer: PreTrainedTokenizerBase, longest: int) -> tuple[Taxonomy, Tensor]:
    """Read the label tree and the tokens of the label names, in the order of the published ids.

    The published program knows no ids but numbers: a label's id becomes the path of names to it. The second of two
    siblings with one (lower-cased) name is renamed ``name (number)``; its name tokens stay.

    Args:
        folder: the data folder.
        tokenizer: of the encoder.
        longest: positions of the encoder, the limit for a name with its special tokens.

    Returns:
        The tree, and [CLS], name tokens and [SEP] of each label, (K, T), padded with -1.

    Raises:
        InputError: if the files hold no such tree, or a name that the encoder cannot read.
    """
    stored = read_label_tokens(folder / NAMES_FILE)
    for label, tokens in enumerate(stored):
        outside = [token for token in tokens if not 0 <= token < len(tokenizer)]
        if outside or len(tokens) + 2 > longest:
            problem = f"has the token {outside[0]}" if outside else f"is {len(tokens)} tokens long"
            raise InputError(
                f"the name of label {label} {problem}, which the encoder cannot read",
                path=folder / NAMES_FILE,
                remedy="give the encoder that the data folder was made for",
            )
    parents = read_parents(folder / TREE_FILE, len(stored))
    names = _distinct([str(tokenizer.decode(tokens)).strip() for tokens in stored], parents)
    try:
        tree = Taxonomy([str(label) for label in range(len(names))], parents, names)
        taxonomy = Taxonomy([tree.path_name(label) for label in range(len(tree))], parents, names)
    except InputError as error:
        raise InputError(error.what, path=folder / TREE_FILE, remedy=error.remedy) from None
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = [torch.tensor([first, *tokens, last]) for tokens in stored]
    return taxonomy, nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def check_same_labels(
    weights: Mapping[str, Tensor],
    taxonomy: Taxonomy,
    name_tokens: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> None:
    """Compare the data folder with what the checkpoint itself stores of its labels, where it does.

    The published program gets distances wrong where a parent has a larger number than its child. Ours are right, so
    that its loss terms differ: that is a warning, any other difference an error.

    Args:
        weights: the published weights by name.
        taxonomy: the tree of the data folder, K labels.
        name_tokens: of the data folder, (K, T).
        tokenizer: of the encoder, to show names.
        folder: the data folder.

    Raises:
        InputError: if the checkpoint was trained with other names or another tree.
    """
    remedy = "give the data folder that the checkpoint was trained with"
    if (stored := weights.get("graph_encoder.label_name")) is not None:
        if stored.dim() != 2 or len(stored) != len(taxonomy):
            raise InputError("the checkpoint was trained with other labels", path=folder / NAMES_FILE, remedy=remedy)
        for label, (tokens, trained) in enumerate(zip(name_tokens.tolist(), stored.tolist(), strict=True)):
            ours = [token for token in tokens if token >= 0]
            theirs = [token for token in trained if token != tokenizer.pad_token_id]
            if ours != theirs:
                raise InputError(
                    f"label {label} is called {taxonomy.names[label]!r} here and"
                    f" {tokenizer.decode(theirs[1:-1])!r} in the checkpoint",
                    path=folder / NAMES_FILE,
                    remedy=remedy,
                )
    if (stored := weights.get("graph_encoder.distance_mat")) is not None:
        labels = np.arange(len(taxonomy))
        if torch.equal(stored.flatten(), torch.from_numpy(taxonomy.distance(labels[:, None], labels)).flatten()):
            return
        if (taxonomy.parents <= labels).all():
            raise InputError(
                "the checkpoint was trained with another label tree", path=folder / TREE_FILE, remedy=remedy
            )
        logger.warning(
            "the published program took wrong distances, because a parent has a larger number than its child;"
            " predictions stay the same, the loss in training is computed with the right distances"
        )


def _distinct(names: Sequence[str], parents: Sequence[int]) -> list[str]:
    """Return the names, the later of two equal siblings with its number behind it."""
    seen: set[tuple[int, str]] = set()
    result = []
    for label, (name, parent) in enumerate(zip(names, parents, strict=True)):
        if (parent, name) in seen:
            logger.warning(
                "label %d has the name %r of a sibling and is called '%s (%d)' here", label, name, name, label
            )
            name = f"{name} ({label})"
        seen.add((parent, name))
        result.append(name)
    return result
