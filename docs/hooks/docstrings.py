"""Docstrings for the pages: arguments by name, references of Sphinx's kind as code, examples as examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Readable", "argument_texts", "without_roles"]

# :class:`~hgclr.taxonomy.Taxonomy` is shown as Taxonomy, :meth:`predict` as predict.
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?:~[\w.]*\.)?([^`]+)`")


def without_roles(text: str) -> str:
    """Return a docstring with references as code, the last part of a name alone where it begins with a tilde."""
    return ROLE.sub(r"`\1`", text)


def argument_texts(documented: type) -> dict[str, str]:
    """Return what the docstrings of a class and of ours above it say of each argument; ``a, b: …`` counts for both."""
    texts = {}
    for part in reversed([part for part in documented.__mro__ if part.__module__.startswith("hgclr.")]):
        for section in griffe.Docstring(part.__doc__ or "").parse("google", warnings=False):
            if section.kind is griffe.DocstringSectionKind.parameters:
                for argument in section.value:
                    for name in argument.name.split(", "):
                        texts[name] = without_roles(" ".join(argument.description.split()))
    return texts


class Readable(griffe.Extension):
    """Turn what our docstrings have into what mkdocstrings renders."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring when it has been read; griffe knows its examples by the plural alone."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", without_roles(obj.docstring.value))
