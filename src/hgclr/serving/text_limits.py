"""What a text may be, told before anything is done for it."""

from __future__ import annotations

from collections.abc import Sequence

from hgclr.errors import InputError
from hgclr.inference.classifier import check_text
from hgclr.serving.problems import Problem
from hgclr.serving.settings import Settings

__all__ = ["PROBABILITIES", "check_lengths", "fault_of"]

PROBABILITIES = 2**18
"""Texts times labels of a request that asks for the probability of every label: an answer of some ten megabytes."""


def check_lengths(texts: Sequence[str], settings: Settings, *, alone: bool) -> None:
    """Refuse too many texts and texts that are too long.

    Args:
        texts: of a request.
        settings: the limits.
        alone: whether the field that holds them is ``text``, and not ``texts``.

    Raises:
        Problem: if there is one.
    """
    most, longest = settings.texts_per_request, settings.characters_per_text
    if len(texts) > most:
        raise Problem("invalid", f"{len(texts)} texts are more than {most}", field="texts")
    for place, text in enumerate(texts):
        if len(text) > longest:
            field = "text" if alone else f"texts.{place}"
            raise Problem("invalid", f"the text has {len(text)} characters, more than {longest}", field=field)


def fault_of(text: str) -> str | None:
    """Return what a tokenizer cannot take in a text, None if it can take it."""
    try:
        check_text(text)
    except InputError as error:
        return error.what
    return f"the text has a NUL at character {text.index(chr(0)) + 1}" if "\0" in text else None
