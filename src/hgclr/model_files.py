"""The folder of a model or an encoder, whoever reads it: what may not be in it, and its manifest.

Refused are pickles, code, and ways out of the folder. ``manifest.json`` has all that a prediction is computed from, by
SHA-256; it is written last, so that a folder that was cut short has none or one that does not fit. It does not cover
``decisions.json``, which ``hgclr calibrate`` writes anew and which may be deleted (what it says is checked against the
label tree whenever it is read), nor what only people read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.files import json_bytes, read_bytes, read_json, sha256

__all__ = ["DECISIONS", "check_folder", "fingerprint", "refuse_code", "write_manifest"]

DECISIONS, MANIFEST = "decisions.json", "manifest.json"
READ = {".data", ".jinja", ".json", ".model", ".onnx", ".py", ".safetensors", ".txt"}
"""Files that a library may take into account once they are there, whether or not we meant them."""
SHORT = 12
"""Digits of a hash that are shown."""
REMEDY = "copy or download the folder again, or write it again with hgclr export"
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


def refuse_code(folder: Path) -> None:
    """Refuse a folder whose JSON files name classes in Python files beside them or on a hub, or files elsewhere.

    transformers looks for ``auto_map`` in several files, at any depth (the configuration of a model holds that of its
    encoder), and asks whether to run what it names.
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


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json`` into a folder whose other files are all there."""
    content = {"hgclr": version("hgclr"), "files": {name: sha256(folder / name) for name in _covered(folder)}}
    (folder / MANIFEST).write_bytes(json_bytes(content))


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of everything in a model's folder that its probabilities are computed from.

    How it decides is not among that: the decisions that are really taken are compared by themselves.
    """
    whole = hashlib.sha256()
    for name in _covered(folder):
        whole.update(f"{name}\0{sha256(folder / name)}\n".encode())
    return whole.hexdigest()


def check_folder(folder: Path) -> None:
    """Refuse a model folder with pickles or with code of its own, or whose files are not those of its manifest.

    A folder without a manifest, as ``hgclr train`` writes it, is checked for pickles and code only.
    """
    for path in files_of(folder):
        if path.suffix.lower() in PICKLES:
            name = path.relative_to(folder).as_posix()
            raise InputError(
                f"no model could be loaded: {name} may be a pickle, which runs code when it is read",
                path=folder,
                remedy="a model of hgclr needs none; delete it, or give the folder 'model' that hgclr train wrote",
            )
    refuse_code(folder)
    if (folder / MANIFEST).is_file():
        _compare(folder)


def _compare(folder: Path) -> None:
    """Refuse files that are missing, others than the manifest says, or not in it."""
    try:
        expected = read_json(folder / MANIFEST, remedy=REMEDY)["files"]
        if not all(isinstance(value, str) for value in expected.values()):
            raise TypeError("a hash is no text")
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"broken: {error}", path=folder / MANIFEST, remedy=REMEDY) from None
    found = _covered(folder)
    for name, wanted in expected.items():
        if name not in found:  # names are compared, never opened: one with ../ in it leads nowhere
            raise InputError(f"{name!r} is in {MANIFEST} and not in the folder", path=folder, remedy=REMEDY)
        if (have := sha256(folder / name)) != wanted:
            raise InputError(
                f"not the file that was exported: its SHA-256 is {have[:SHORT]}…, {MANIFEST} says {wanted[:SHORT]}…",
                path=folder / name,
                remedy=REMEDY,
            )
    if extra := [name for name in found if name not in expected]:
        raise InputError(
            f"{extra[0]!r} is not in {MANIFEST}",
            path=folder,
            remedy=f"delete it, or delete {MANIFEST} if it was you who added it",
        )


def _covered(folder: Path) -> list[str]:
    """Return the names of all files that a prediction may depend on."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in files_of(folder)
        if path.is_file() and path.suffix.lower() in READ and path.name not in (MANIFEST, DECISIONS)
    )
