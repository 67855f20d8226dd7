"""What may not be in the folder of a model or an encoder, whoever reads it: pickles, code, ways out of the folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.files import read_bytes

__all__ = ["files_of", "refuse_code", "refuse_pickles"]

PICKLES = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
"""Files that can hold a pickle, and so run code when they are read."""
MODULE = re.compile(r"\d+_\w+")
"""Folders of the modules of sentence-transformers, such as 2_Dense."""
TELLING = re.compile(rb"auto_map|\\u00[567]|weight_map")
"""What a file must have in it for a field that we look for; its letters may be written as escapes."""


def files_of(folder: Path) -> list[Path]:
    """Return what is in a folder and in those of its modules, which is as deep as anybody reads."""
    inside = sorted(folder.iterdir())
    modules = [path for path in inside if path.is_dir() and MODULE.fullmatch(path.name)]
    return [*inside, *(path for module in modules for path in sorted(module.iterdir()))]


def refuse_pickles(folder: Path) -> None:
    """Refuse a model's folder with a file that may be a pickle.

    Raises:
        InputError: naming the file.
    """
    for path in files_of(folder):
        if path.suffix.lower() in PICKLES:
            name = path.relative_to(folder).as_posix()
            raise InputError(
                f"no model could be loaded: {name} may be a pickle, which runs code when it is read",
                path=folder,
                remedy="a model of hgclr needs none; delete it, or give the folder 'model' that hgclr train wrote",
            )


def refuse_code(folder: Path) -> None:
    """Refuse a folder whose JSON files name classes in Python files beside them or on a hub, or files elsewhere.

    transformers looks for ``auto_map`` in several files, at any depth (the configuration of a model holds that of its
    encoder), and asks whether to run what it names.

    Raises:
        InputError: naming the file.
    """
    for path in files_of(folder):
        if path.suffix.lower() != ".json" or path.is_dir():
            continue
        try:
            content = read_bytes(path)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        if not TELLING.search(content):
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            continue  # whoever needs the file will say so
        for fields in _objects(value):
            if not isinstance(fields.get("auto_map", 0), int):  # a number: a word of a vocabulary
                raise InputError(
                    "'auto_map' asks for code that comes with the model, which is never run",
                    path=path,
                    remedy="hgclr needs none; take the field out if you trust the rest",
                )
            _check_index(fields.get("weight_map"), path)


def _check_index(places: Any, path: Path) -> None:
    """Refuse an index of weights that leads out of its folder."""
    for name in places.values() if isinstance(places, dict) else ():
        if isinstance(name, str) and (Path(name).name != name or "\\" in name or name == ".."):
            raise InputError(
                f"'weight_map' names {name!r}, which is not a file of this folder",
                path=path,
                remedy="copy or download the folder again",
            )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON value; without recursion, because a file may nest them deeply."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
