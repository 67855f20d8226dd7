"""What must hold for ids, names, descriptions and parents before they make a taxonomy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError
from hgclr.taxonomy.structure import read_only

__all__ = ["check_labels", "checked_descriptions", "checked_parents"]


def checked_parents(parents: Sequence[int] | NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the parents of ``count`` labels as a read-only copy.

    Raises:
        InputError: if there are no labels, or not one parent in -1 ... count - 1 for each.
    """
    if count == 0:
        raise InputError("the label tree is empty", remedy="add at least one label")
    array = np.array(parents)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(f"{count} labels need {count} whole numbers as parents, got {array.dtype} {array.shape}")
    outside = np.flatnonzero((array < -1) | (array >= count))
    if outside.size:
        raise InputError(
            f"label {outside[0]} has the parent {array[outside[0]]}, which is no label",
            remedy=f"use -1 for a top label or an index from 0 to {count - 1}",
        )
    return read_only(array.astype(np.int64, copy=False))


def check_labels(ids: Sequence[str], names: Sequence[str], parents: NDArray[np.int64]) -> None:
    """Refuse empty or repeated ids, empty names, siblings of one name, and text that no file can hold.

    Raises:
        InputError: naming the first label that is wrong.
    """
    if len(names) != len(ids):
        raise InputError(f"{len(ids)} ids but {len(names)} names", remedy="give one name for each id")
    seen: set[str] = set()
    siblings: set[tuple[int, str]] = set()
    for index, (identifier, name, parent) in enumerate(zip(ids, names, parents.tolist(), strict=True)):
        if not identifier.strip():
            raise InputError(f"label {index} has an empty id", remedy="give it an id")
        if not name.strip():
            raise InputError(f"label {identifier!r} has an empty name", remedy="give it a name, or use its id")
        if identifier in seen:
            raise InputError(f"the id {identifier!r} is used twice", remedy="give each label an id of its own")
        if (parent, name) in siblings:
            place = "at the top" if parent < 0 else f"under {ids[parent]!r}"
            raise InputError(f"the name {name!r} is used twice {place}", remedy="rename one of the two")
        seen.add(identifier)
        siblings.add((parent, name))
    _check_text(ids)
    _check_text(names)


def checked_descriptions(descriptions: Sequence[str | None] | None, ids: Sequence[str]) -> tuple[str, ...]:
    """Return one description for each label with white space made single, "" for a label without one.

    Raises:
        InputError: if there are more or fewer than labels, or one is no text that a file can hold.
    """
    if descriptions is None:
        return ("",) * len(ids)
    if len(descriptions) != len(ids):
        raise InputError(
            f"{len(ids)} ids but {len(descriptions)} descriptions", remedy="give one for each id; None for none"
        )
    for identifier, text in zip(ids, descriptions, strict=True):
        if text is not None and not isinstance(text, str):
            raise InputError(f"the description of {identifier!r} is not a string", remedy="give a string, or None")
    normalised = tuple("" if text is None else " ".join(text.split()) for text in descriptions)
    _check_text(normalised)
    return normalised


def _check_text(texts: Sequence[str]) -> None:
    """Refuse half a surrogate pair (JSON can escape one), which UTF-8 cannot hold."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        bad = next(text for text in texts if any("\ud800" <= character <= "\udfff" for character in text))
        raise InputError(f"{bad!a} is not valid Unicode text", remedy="correct its \\u escapes") from None
