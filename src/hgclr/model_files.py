"""Checks of the folder of a model or an encoder, and its manifest.

Pickles, code, and paths out of the folder are errors. ``manifest.json`` has the SHA-256 of all files that affect
predictions; it is written last, so an incomplete folder has none or a wrong one. It does not cover ``decisions.json``,
which ``hgclr calibrate`` replaces and which is checked against the label tree when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import version
from pathlib import Path

from hgclr.errors import InputError
from hgclr.files import json_bytes, read_bytes, read_json, sha256

DECISIONS, MANIFEST = "decisions.json", "manifest.json"
READ = {".data", ".jinja", ".json", ".model", ".onnx", ".py", ".safetensors", ".txt"}
"""Suffixes of files that a library may read."""
REMEDY = "copy or download the folder again, or write it again with hgclr export"
PICKLES = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
"""Suffixes of files that may be pickles, which can run code when they are loaded."""
MODULE = re.compile(r"\d+_\w+")
"""Folders of the modules of sentence-transformers, such as 2_Dense."""
CHECKED = re.compile(rb"auto_map|\\u00[567]|weight_map")
"""A file without a match has none of the checked fields, whose letters may be written as escapes."""


def files_of(folder: Path) -> list[Path]:
    """Return the content of a folder and of its module folders, as deep as libraries read."""
    inside = sorted(folder.iterdir())
    modules = [path for path in inside if path.is_dir() and MODULE.fullmatch(path.name)]
    return [*inside, *(path for module in modules for path in sorted(module.iterdir()))]


def refuse_code(folder: Path) -> None:
    """Raise if a JSON file of a folder names Python code (``auto_map``) or weights outside the folder.

    transformers looks for ``auto_map`` in several files, at any depth, and offers to run the code that it names.
    """
    for path in files_of(folder):
        if path.suffix.lower() != ".json" or path.is_dir():
            continue
        try:
            content = read_bytes(path)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        if not CHECKED.search(content):
            continue
        try:
            waiting = [json.loads(content)]
        except (ValueError, RecursionError):
            continue  # the reader of the file reports it
        while waiting:  # not recursive, because objects may be nested deeply
            fields = waiting.pop()
            if isinstance(fields, list):
                waiting.extend(fields)
            if not isinstance(fields, dict):
                continue
            waiting.extend(fields.values())
            if not isinstance(fields.get("auto_map", 0), int):  # an integer is the id of a word in a vocabulary
                raise InputError(
                    "'auto_map' asks to run code of the model, which hgclr never does",
                    path=path,
                    remedy="delete the field if you trust the other files",
                )
            weights = fields.get("weight_map")
            for name in weights.values() if isinstance(weights, dict) else ():
                if isinstance(name, str) and (Path(name).name != name or "\\" in name or name == ".."):
                    what = f"'weight_map' names {name!r}, which is not a file in this folder"
                    raise InputError(what, path=path, remedy="copy or download the folder again")


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json`` into an otherwise complete folder."""
    (folder / MANIFEST).write_bytes(json_bytes({"hgclr": version("hgclr"), "files": _hashes(folder)}))


def fingerprint(folder: Path) -> str:
    """Return a SHA-256 of all files that affect a model's probabilities, without its decisions."""
    return hashlib.sha256(json.dumps(_hashes(folder)).encode()).hexdigest()


def check_folder(folder: Path) -> None:
    """Raise if a model folder has pickles or code, or if its files differ from its manifest, if it has one."""
    for path in files_of(folder):
        if path.suffix.lower() in PICKLES:
            remedy = "delete it, as hgclr does not need it, or give the folder 'model' that hgclr train wrote"
            raise InputError("this file may be a pickle, which can run code when loaded", path=path, remedy=remedy)
    refuse_code(folder)
    if not (folder / MANIFEST).is_file():
        return
    try:
        expected = dict(read_json(folder / MANIFEST, remedy=REMEDY)["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", path=folder / MANIFEST, remedy=REMEDY) from None
    found = _hashes(folder)
    for name in [*expected, *found]:  # names are compared, never opened, so ../ is harmless
        if name not in expected:
            remedy = f"delete it, or delete {MANIFEST} if you added the file"
            raise InputError(f"not in {MANIFEST}", path=folder / name, remedy=remedy)
        if found.get(name) != expected[name]:
            what = f"its SHA-256 differs from {MANIFEST}" if name in found else "missing"
            raise InputError(what, path=folder / name, remedy=REMEDY)


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a prediction may depend on, by name."""
    return {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(files_of(folder))
        if path.is_file() and path.suffix.lower() in READ and path.name not in (MANIFEST, DECISIONS)
    }
