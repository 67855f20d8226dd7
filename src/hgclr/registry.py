"""Extensions: architectures, encoders, settings and commands that other packages add to the core.

An extension is an :class:`Extension` registered as an entry point of the group ``hgclr.extensions``. ``hgclr.paper``
is one; the core never imports it and works without it. Names are imported only when they are used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any

GROUP = "hgclr.extensions"


@dataclass(frozen=True)
class Extension:
    """The additions of a package. Values are ``module:name``.

    Args:
        architectures: model classes by their name in ``model.architecture``.
        encoders: encoders that are built from the training documents, by their name in ``model.encoder``. The value is
            a function ``build(run, taxonomy, documents, settings)`` that returns a model and its tokenizer.
        settings: a dataclass with the model settings of these architectures and encoders.
        commands: Typer apps and functions by their command, such as ``reproduce`` or ``data prepare``; an app with the
            name of a core group adds its commands to that group.
    """

    architectures: Mapping[str, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    settings: str | None = None
    commands: Mapping[str, str] = field(default_factory=dict)


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the installed extensions, without those whose package was removed."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found.append(point.load())
        except ModuleNotFoundError as error:
            if error.name != point.module:
                raise
    return tuple(found)


def resolve(reference: str) -> Any:
    """Import ``module:name``."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def merged(part: str) -> dict[str, str]:
    """Return ``architectures``, ``encoders`` or ``commands`` of all extensions."""
    return {name: reference for each in extensions() for name, reference in getattr(each, part).items()}


def is_pretrained(encoder: str) -> bool:
    """Return whether an encoder, by name or model type, is pretrained and not built by an extension."""
    return encoder not in merged("encoders")
