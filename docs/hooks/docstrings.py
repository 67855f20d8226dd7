"""Docstrings for the pages: references of Sphinx's kind as code, examples as examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Readable", "without_roles"]

# :class:`~hgclr.taxonomy.Taxonomy` is shown as Taxonomy, :meth:`predict` as predict.
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?:~[\w.]*\.)?([^`]+)`")


def without_roles(text: str) -> str:
    """Return a docstring with references as code, the last part of a name alone where it begins with a tilde."""
    return ROLE.sub(r"`\1`", text)


class Readable(griffe.Extension):
    """Turn what our docstrings have into what mkdocstrings renders."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring when it has been read; griffe knows its examples by the plural alone."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", without_roles(obj.docstring.value))
