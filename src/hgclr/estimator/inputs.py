"""Read what scikit-learn's tools hand over: lists, numpy arrays, pandas Series; and say in its way what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

from hgclr.errors import InputError
from hgclr.inference.classifier import check_text

__all__ = ["as_value_errors", "read_column", "read_texts"]


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Turn an :class:`~hgclr.errors.InputError` into the ``ValueError`` that scikit-learn's tools expect."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def read_texts(texts: Any, *, empty: bool) -> list[str]:
    """Return texts as a list of strings.

    Args:
        texts: a list, a one-dimensional array, a Series.
        empty: whether a text may be empty.

    Raises:
        InputError: if it is none of these, or a member is no text, with its place counted from 0.
    """
    checked = []
    for row, text in enumerate(read_column(texts, "X", "texts")):
        try:
            check_text(text)
        except InputError as error:
            raise InputError(f"X[{row}]: {error.what}") from None
        if not empty and not text.strip():
            raise InputError(f"X[{row}]: empty text", remedy="leave the document out")
        checked.append(str(text))
    return checked


def read_column(values: Any, argument: str, content: str) -> list[Any]:
    """Return the members of a list, a one-dimensional array or a Series.

    Raises:
        InputError: if it is something else, such as a single string or a table.
    """
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__"):
        raise InputError(
            f"{argument} is a single {type(values).__name__}",
            remedy=f"give a list, a one-dimensional array or a pandas Series of {content}",
        )
    if (dimensions := getattr(values, "ndim", 1)) != 1:
        raise InputError(
            f"{argument} has {dimensions} dimensions", remedy=f"give one column of {content}, such as table['column']"
        )
    return list(values)
