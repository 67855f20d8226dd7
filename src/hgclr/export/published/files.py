"""Read the files of the authors' published program: as data, never as code."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hgclr.errors import InputError

__all__ = ["Checkpoint", "read_checkpoint", "read_label_tokens", "read_parents"]


@dataclass(frozen=True)
class Checkpoint:
    """What is taken from a checkpoint: its weights by name, and the arguments the program was started with."""

    path: Path
    weights: Mapping[str, Tensor]
    arguments: Namespace


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, a dict with ``param`` (weights by name) and ``args`` (a ``Namespace``); the rest is left.

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
    return Checkpoint(path, weights, arguments)


def read_label_tokens(path: Path) -> list[list[int]]:
    """Read ``bert_value_dict.pt``, ``{id: tokens of the label's name}``, into a list by id.

    Raises:
        InputError: if the ids are not 0 to K - 1, or a name is not a list of tokens.
    """
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


def read_parents(path: Path, labels: int) -> list[int]:
    """Read ``slot.pt``, ``{parent id: set of child ids}``, into each label's parent, -1 for a top label.

    Raises:
        InputError: if an id is not one of the ``labels``, or a label has two parents (the published program keeps
            the one it meets last).
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


def _load(path: Path) -> Any:
    """Load a file of ``torch.save`` without running anything in it."""
    allowed: list[Callable[..., Any] | tuple[Callable[..., Any], str]]
    allowed = [Namespace, (_plain_dict, "collections.defaultdict")]
    if not path.is_file():
        raise InputError("there is no such file", path=path)
    others = (
        torch.serialization.get_safe_globals()
    )  # torch_geometric's, for one, whose defaultdict would be taken first
    torch.serialization.clear_safe_globals()
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True)
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
