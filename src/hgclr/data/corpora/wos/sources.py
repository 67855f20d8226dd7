"""Find the files of Web of Science in what the user names."""

from __future__ import annotations

import logging
from pathlib import Path

from hgclr.errors import InputError

__all__ = ["JSON", "SPREADSHEET", "TEXT", "find_files"]

logger = logging.getLogger(__name__)

SPREADSHEET, TEXT, JSON = (".xlsx",), (".txt", ".tsv"), (".json", ".jsonl")
"""How the names of the files end, by kind."""

PUBLISHED = ("Meta-data/Data.xlsx", "Data.xlsx", "Meta-data/Data.txt", "Data.txt")
TOTAL = "wos_total.json"
PARTS = ("wos_train.json", "wos_val.json", "wos_test.json")


def find_files(source: Path) -> tuple[Path, ...]:
    """Return one file with all rows, or the three files of the literature's train, validation and test splits.

    A folder may hold several of them. The publisher's own come first, because only they have the names as printed.

    Args:
        source: a file, or the folder that it is in.

    Raises:
        InputError: if there is no such file, or only some of the three.
    """
    if source.is_dir():
        files = _choose(source)
    elif not source.is_file():
        raise InputError("no such file or folder", path=source)
    elif source.name in PARTS:
        raise InputError(
            "this is one of three files, each with a split of its own",
            path=source,
            remedy=f"name the folder with {', '.join(PARTS)}",
        )
    elif not source.name.lower().endswith(SPREADSHEET + TEXT + JSON):
        raise InputError(
            "unknown format", path=source, remedy=f"its name must end in {', '.join(SPREADSHEET + TEXT + JSON)}"
        )
    else:
        files = (source,)
    for file in files:
        try:
            file.open("rb").close()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    return files


def _choose(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that are to be read; say which others there are."""
    single = [folder / name for name in (*PUBLISHED, TOTAL) if (folder / name).is_file()]
    parts = [folder / name for name in PARTS if (folder / name).is_file()]
    if single:
        if others := [str(path.relative_to(folder)) for path in (*single[1:], *parts)]:
            logger.warning("reading %s, not %s, which the folder holds as well", single[0], ", ".join(others))
        return (single[0],)
    if not parts:
        names = ", ".join((*PUBLISHED, TOTAL, PARTS[0]))
        raise InputError("no file of Web of Science in this folder", path=folder, remedy=f"it must hold one of {names}")
    if missing := [name for name in PARTS if folder / name not in parts]:
        raise InputError(f"no {missing[0]} beside {parts[0].name}", path=folder, remedy="all three splits are needed")
    return tuple(parts)
