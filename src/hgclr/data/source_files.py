"""Find the split files and the label tree of a corpus that is in one of the literature's formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgclr.data.folder import SPLITS
from hgclr.errors import InputError

__all__ = ["SplitFiles", "find_split_files", "find_tree"]

TREES = ("*.taxonomy", "*.taxnomy", "taxonomy.*")
"""What label trees are called; the second is the spelling that HiAGM's own script for Web of Science writes."""


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of a corpus.

    Args:
        splits: the file of each split there is, ``train`` always among them.
        taxonomy: the file of the label tree, if there is one.
    """

    splits: dict[str, Path]
    taxonomy: Path | None

    def settings(self) -> dict[str, object]:
        """Return the files as plain values, for the record of what was done."""
        return {**{split: str(path) for split, path in self.splits.items()}, "taxonomy": _text(self.taxonomy)}


def find_split_files(
    source: Path | None,
    *,
    endings: Sequence[str],
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
) -> SplitFiles:
    """Return the files to read.

    In a folder a split is the file whose name, without one of the ``endings``, is or ends in ``train``, ``dev``
    (``validation``, ``valid``, ``val``) or ``test``, as ``wos_train.json`` and ``cooking.valid``. The label tree is the
    ``*.taxonomy`` or ``taxonomy.*`` beside them.

    Args:
        source: a folder, or a single file, which is then all for training.
        endings: what may stand after the name of the split.
        train: the file for training; if this, ``dev`` or ``test`` is given, only the ones that are given are read.
        dev: the development file.
        test: the test file.
        taxonomy: the label tree, if it is not the one in the folder.

    Raises:
        InputError: if a file is missing, there is none for training, or several could be meant.
    """
    named = {split: path for split, path in (("train", train), ("dev", dev), ("test", test)) if path is not None}
    if named:
        splits = named
    elif source is None:
        raise InputError("nothing to read", remedy="name the folder with --source, or the files with --train and so on")
    elif source.is_dir():
        splits = _search(source, endings)
    else:
        splits = {"train": source}
    for path in splits.values():
        if not path.is_file():
            raise InputError("no such file", path=path)
    if "train" not in splits:
        raise InputError("there is no file for training", path=source, remedy="name it with --train")
    folder = source if source is not None and source.is_dir() else splits["train"].parent
    return SplitFiles(splits, taxonomy if taxonomy is not None else find_tree(folder))


def _search(folder: Path, endings: Sequence[str]) -> dict[str, Path]:
    """Return the files of a folder that are called like splits."""
    after = "|".join(map(re.escape, endings))
    files = sorted(path for path in folder.iterdir() if path.is_file())
    splits = {}
    for split, words in SPLITS.items():
        name = re.compile(rf"(?:.*[._ -])?(?:{'|'.join(words)})(?:{after})", re.IGNORECASE)
        found = [path for path in files if name.fullmatch(path.name) and not path.name.startswith(".")]
        if found:
            splits[split] = _only(
                found, folder, f"the split {split!r}", "name all files with --train, --dev and --test"
            )
    if not splits:
        shown = " or ".join(f"'…train{ending}'" for ending in endings)
        raise InputError(f"no file here is called {shown}", path=folder, remedy="name the files with --train and so on")
    return splits


def find_tree(folder: Path) -> Path | None:
    """Return the file of the label tree in a folder, if there is one.

    Raises:
        InputError: if several could be meant.
    """
    found = sorted({path for pattern in TREES for path in folder.glob(pattern) if not path.name.startswith(".")})
    return _only(found, folder, "the label tree", "name it with --taxonomy") if found else None


def _only(found: Sequence[Path], folder: Path, what: str, remedy: str) -> Path:
    """Return the only file found."""
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"several files may be {what}: {names}", path=folder, remedy=remedy)
    return found[0]


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
