"""What is in a published model folder, by SHA-256, and what may not be in any.

``manifest.json`` is written last, so that a folder that was cut short has none or one that does not fit. It covers all
that a prediction is computed from. Not covered are ``decisions.json``, which ``hgclr calibrate`` writes anew and which
may be deleted (what it says is checked against the label tree whenever it is read), and what only people read.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hgclr.decisions.settings import FILE as DECISIONS
from hgclr.errors import InputError
from hgclr.files import open_regular, read_json
from hgclr.model_files import files_of, refuse_code, refuse_pickles

__all__ = ["FILE", "check_folder", "write_manifest"]

FILE = "manifest.json"
READ = {".data", ".jinja", ".json", ".model", ".onnx", ".py", ".safetensors", ".txt"}
"""Files that a library may take into account once they are there, whether or not we meant them."""
SHORT = 12
"""Digits of a hash that are shown."""
REMEDY = "copy or download the folder again, or write it again with hgclr export"


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json`` into a folder whose other files are all there."""
    content = {"hgclr": version("hgclr"), "files": {name: _sha256(folder / name) for name in _covered(folder)}}
    (folder / FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_folder(folder: Path) -> None:
    """Refuse a model folder with pickles or with code of its own, or whose files are not those of its manifest.

    A folder without a manifest, as ``hgclr train`` writes it, is checked for pickles and code only.

    Raises:
        InputError: naming the file, what is wrong with it and what to do.
    """
    refuse_pickles(folder)
    refuse_code(folder)
    if (folder / FILE).is_file():
        _compare(folder, _read(folder / FILE))


def _read(path: Path) -> dict[str, str]:
    """Return the hashes by file name."""
    content: Any = read_json(path, remedy=REMEDY)
    try:
        files = content["files"]
        if all(isinstance(value, str) for value in files.values()):
            return dict(files)
        raise TypeError("a hash is no text")
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"broken: {error}", path=path, remedy=REMEDY) from None


def _compare(folder: Path, expected: dict[str, str]) -> None:
    """Refuse files that are missing, others than the manifest says, or not in it."""
    found = _covered(folder)
    for name, wanted in expected.items():
        if name not in found:  # names are compared, never opened: one with ../ in it leads nowhere
            raise InputError(f"{name!r} is in {FILE} and not in the folder", path=folder, remedy=REMEDY)
        if (have := _sha256(folder / name)) != wanted:
            raise InputError(
                f"not the file that was exported: its SHA-256 is {have[:SHORT]}…, {FILE} says {wanted[:SHORT]}…",
                path=folder / name,
                remedy=REMEDY,
            )
    if extra := [name for name in found if name not in expected]:
        raise InputError(
            f"{extra[0]!r} is not in {FILE}",
            path=folder,
            remedy=f"delete it, or delete {FILE} if it was you who added it",
        )


def _covered(folder: Path) -> list[str]:
    """Return the names of all files that a prediction may depend on."""
    return sorted(
        _name(path, folder)
        for path in files_of(folder)
        if path.is_file() and path.suffix.lower() in READ and path.name not in (FILE, DECISIONS)
    )


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
