"""Find the files to label: names, folders and patterns."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from hgclr.bulk.formats import FileFormat, target_of
from hgclr.data.readers import SUFFIXES
from hgclr.errors import InputError

__all__ = ["find_inputs", "is_pattern", "pair_with_targets"]


def is_pattern(name: str | Path) -> bool:
    """Tell whether a name is a pattern such as ``part-*.parquet``; a file that has that very name comes first."""
    return glob.has_magic(str(name)) and not Path(name).exists()


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once, in the order of the names; within one of them by their own names.

    Args:
        names: files; folders, which stand for the files in them that can be read (not for those in folders below); and
            patterns with ``*``, ``?``, ``[…]`` or ``**``.

    Raises:
        InputError: if there is no such file, or a folder or a pattern stands for none.
    """
    found: dict[Path, None] = {}
    for name in names:
        for path in _meant(name):
            found.setdefault(path.resolve(), None)
    return list(found)


def _meant(name: str | Path) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _usable(file))
        if not files:
            raise InputError("no files to label", path=path, remedy="their names must end in " + ", ".join(SUFFIXES))
        return files
    if not is_pattern(name):
        raise InputError("no such file or folder", path=path)
    files = sorted(Path(match) for match in glob.glob(str(name), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
    if not files:
        raise InputError(f"no file has a name like {str(name)!r}")
    return files


def _usable(file: Path) -> bool:
    return not file.name.startswith(".") and file.name.lower().endswith(SUFFIXES)


def pair_with_targets(
    names: Sequence[str | Path], sources: Sequence[Path], folder: Path, wanted: FileFormat | None
) -> list[tuple[Path, Path]]:
    """Return every input with the file that its result goes to.

    Args:
        names: what was asked for, of which folders matter here.
        sources: the files that this stands for.
        folder: the folder of results.
        wanted: their format.

    Raises:
        InputError: if two results would have the same name, or input and results would mix.
    """
    where = folder.resolve()
    if where.exists() and not where.is_dir():
        raise InputError("not a folder, and results of bulk prediction go to one", path=folder)
    for name in names:
        if Path(name).is_dir() and where.is_relative_to(Path(name).resolve()):
            raise InputError(
                f"lies in the input folder {name}", path=folder, remedy="give an --output outside the input folder"
            )
    pairs: dict[Path, Path] = {}
    for source in sources:
        if source.is_relative_to(where):
            raise InputError(
                f"an input lies in the output folder {folder}", path=source, remedy="give another folder as --output"
            )
        target = target_of(source, folder, wanted)
        if target in pairs:
            raise InputError(
                f"{pairs[target]} and {source} would both be written to {target}",
                remedy="rename one of them, or label them into different folders",
            )
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]
