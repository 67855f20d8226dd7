"""Read the files of the authors' published program: as data, never as code."""

from __future__ import annotations

import logging
import re
import zipfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.files import check_archive
from hgclr.taxonomy import Taxonomy

__all__ = ["check_same_labels", "read_checkpoint", "read_labels"]

logger = logging.getLogger(__name__)
NAMES_FILE = "bert_value_dict.pt"
TREE_FILE = "slot.pt"


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return weights by name and the arguments of the program from a checkpoint, a dict with ``param`` and ``args``.

    Raises:
        InputError: if the file is not such a checkpoint, or asks for code.
    """
    content = _load(path)
    weights = content.get("param") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise InputError(
            "not a checkpoint of the published program: it has no weights under 'param'",
            path=path,
            remedy="give its checkpoint_best_macro.pt or checkpoint_best_micro.pt",
        )
    arguments = content.get("args", Namespace())
    if not isinstance(arguments, Namespace):
        raise InputError(f"'args' is a {type(arguments).__name__} instead of an argparse.Namespace", path=path)
    return weights, vars(arguments)


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
    stored = _label_tokens(folder / NAMES_FILE)
    for label, tokens in enumerate(stored):
        outside = [token for token in tokens if not 0 <= token < len(tokenizer)]
        if outside or len(tokens) + 2 > longest:
            problem = f"has the token {outside[0]}" if outside else f"is {len(tokens)} tokens long"
            raise InputError(
                f"the name of label {label} {problem}, which the encoder cannot read",
                path=folder / NAMES_FILE,
                remedy="give the encoder that the data folder was made for",
            )
    parents = _parents(folder / TREE_FILE, len(stored))
    names = _distinct([str(tokenizer.decode(tokens)).strip() for tokens in stored], parents)
    try:
        tree = Taxonomy([str(label) for label in range(len(names))], parents, names)
        taxonomy = Taxonomy([tree.path_name(label) for label in range(len(tree))], parents, names)
    except InputError as error:
        raise InputError(error.what, path=folder / TREE_FILE, remedy=error.remedy) from None
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = [torch.tensor([first, *tokens, last]) for tokens in stored]
    return taxonomy, nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def _label_tokens(path: Path) -> list[list[int]]:
    """Read ``bert_value_dict.pt``, ``{id: tokens of the label's name}``, into a list by id."""
    content = _load(path)
    if not isinstance(content, dict) or not content:
        raise InputError("not a dict of label names", path=path)
    absent = next((label for label in range(len(content)) if label not in content), None)
    if absent is not None:
        raise InputError(f"of {len(content)} labels, none has the id {absent}", path=path, remedy="number them from 0")
    names = [content[label] for label in range(len(content))]
    for label, tokens in enumerate(names):
        if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
            raise InputError(f"the name of label {label} is {tokens!r}, not a list of tokens", path=path)
    return names


def _parents(path: Path, labels: int) -> list[int]:
    """Read ``slot.pt``, ``{parent id: set of child ids}``, into each label's parent, -1 for a top label.

    A label with two parents is refused; the published program keeps the one it meets last.
    """
    content = _load(path)
    if not isinstance(content, dict) or not all(isinstance(below, set | list | tuple) for below in content.values()):
        raise InputError("not a dict of sets of labels", path=path)
    parents = [-1] * labels
    for parent, children in content.items():
        for label in (parent, *children):
            if type(label) is not int or not 0 <= label < labels:
                raise InputError(
                    f"{label!r} is no label: bert_value_dict.pt names those from 0 to {labels - 1}",
                    path=path,
                    remedy="give a data folder whose two files belong together",
                )
        for child in children:
            if parents[child] not in (-1, parent):
                raise InputError(
                    f"label {child} has two parents, {parents[child]} and {parent}",
                    path=path,
                    remedy="take it out of one of the two sets",
                )
            parents[child] = parent
    return parents


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


def check_same_labels(
    weights: Mapping[str, Tensor],
    taxonomy: Taxonomy,
    name_tokens: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> None:
    """Compare the data folder with what the checkpoint itself stores of its labels, where it does.

    The published program gets distances wrong where a parent has a larger number than its child. Ours are right, so
    that its loss terms differ: that is a warning, any other difference an `InputError`.
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
    other_tree = InputError(
        "the checkpoint was trained with another label tree", path=folder / TREE_FILE, remedy=remedy
    )
    if (stored := weights.get("graph_encoder.distance_mat")) is not None:
        labels = np.arange(len(taxonomy))
        if torch.equal(stored.flatten(), torch.from_numpy(taxonomy.distance(labels[:, None], labels)).flatten()):
            return
        if (taxonomy.parents <= labels).all():
            raise other_tree
        logger.warning(
            "the published program took wrong distances, because a parent has a larger number than its child;"
            " predictions stay the same, the loss in training is computed with the right distances"
        )
    elif (stored := weights.get("graph_encoder.edge_list")) is not None:  # of a GCN or GAT: child and parent, both ways
        edges = {(child, parent) for child, parent in enumerate(taxonomy.parents.tolist()) if parent >= 0}
        if {tuple(edge) for edge in stored.T.tolist()} != edges | {(parent, child) for child, parent in edges}:
            raise other_tree


def _load(path: Path) -> Any:
    """Load a file of ``torch.save`` without running anything in it."""
    allowed: list[Callable[..., Any] | tuple[Callable[..., Any], str]]
    allowed = [Namespace, (_plain_dict, "collections.defaultdict")]
    if not path.is_file():
        raise InputError("there is no such file", path=path)
    others = torch.serialization.get_safe_globals()  # torch_geometric's defaultdict would be taken first
    torch.serialization.clear_safe_globals()
    try:
        if zipfile.is_zipfile(path):
            check_archive(path, path.stat().st_size)  # torch packs nothing
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a damaged file fails in whatever way its bytes lead to
        if named := re.search(r"GLOBAL:? ([\w.]+)", str(error)):
            raise InputError(
                f"refused: it asks for {named[1]}, and a checkpoint must be data, not code",
                path=path,
                remedy="save tensors, numbers and plain containers only",
            ) from error
        raise InputError(f"not a file of torch.save, or damaged ({type(error).__name__})", path=path) from error
    finally:
        torch.serialization.add_safe_globals(others)


def _plain_dict(_factory: object = None) -> dict[Any, Any]:
    """Stand in for ``defaultdict``, which torch's safe loader creates but does not fill."""
    return {}
