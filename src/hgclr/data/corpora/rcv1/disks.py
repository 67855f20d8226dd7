"""Find what the publishers of RCV1 hand out: the archives of news items, and the lists of document ids."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from hgclr.errors import InputError

__all__ = ["Disks", "IdList", "Portion", "find_disks"]

BYTES_A_PORTION, FILES_A_PORTION = 2**23, 5_000
"""Well above a day's news, which is one portion; more than this in one place is read in several."""


@dataclass(frozen=True, slots=True)
class Portion:
    """A share of the news items of one place, small enough to be held in memory.

    Args:
        path: a zip file, or a folder of XML files.
        where: what messages call it: the path below the source.
        part: which share, counted from 0.
        parts: how many there are.
    """

    path: Path
    where: str
    part: int = 0
    parts: int = 1

    def share(self, names: list[str]) -> list[str]:
        """Return this portion of all the names in its place."""
        return names[self.part * len(names) // self.parts : (self.part + 1) * len(names) // self.parts]


@dataclass(frozen=True, slots=True)
class Disks:
    """What lies below a folder.

    Args:
        source: the folder.
        portions: the news items, in the order of the names of their archives.
        others: the files that are no news items, sorted.
    """

    source: Path
    portions: list[Portion]
    others: list[Path]

    def named(self, *names: str, option: str) -> Path:
        """Return the first file that has one of these names.

        Raises:
            InputError: if there is none; ``option`` is how the user can name one.
        """
        for path in self.others:
            if path.name in names:
                return path
        raise InputError(f"there is no {names[0]} below this folder", path=self.source, remedy=f"name it with {option}")


def find_disks(source: Path) -> Disks:
    """Look through a folder, at any depth, for zip files, folders of XML files, and the publishers' lists.

    Raises:
        InputError: if there is no such folder, a zip file is truncated, or there are no news items.
    """
    if not source.is_dir():
        raise InputError("no such folder", path=source, remedy="name the folder that holds the Reuters disks")
    places: list[tuple[str, Path, int]] = []
    others: list[Path] = []
    for folder, _, names in os.walk(source, onerror=_unreadable):
        here, items = Path(folder), 0
        for name in names:
            if name.lower().endswith(".xml"):
                items += 1
            elif name.lower().endswith(".zip"):
                places.append((name[:-4], here / name, _portions_of_zip(here / name)))
            else:
                others.append(here / name)
        if items:
            places.append((here.name, here, -(-items // FILES_A_PORTION)))
    portions = [
        Portion(path, path.relative_to(source).as_posix(), part, parts)
        for _, path, parts in sorted(places)
        for part in range(parts)
    ]
    if not portions:
        remedy = "name the folder that holds the Reuters disks; unpack rcv1.tar.xz, if that is what you have"
        raise InputError("there is no zip file and no XML file below this folder", path=source, remedy=remedy)
    return Disks(source, portions, sorted(others))


def _portions_of_zip(path: Path) -> int:
    # The list of members is at the end: a file that was cut off has none, and is found before any work is done.
    if not zipfile.is_zipfile(path):
        raise InputError("truncated or not a zip file", path=path, remedy="copy it from the disk again")
    return max(1, -(-path.stat().st_size // BYTES_A_PORTION))


def _unreadable(error: OSError) -> None:
    raise InputError(f"the folder cannot be read: {error.strerror}", path=error.filename)


class IdList:
    """The document ids that a file lists.

    Args:
        path: the file; gzipped, if its name ends in ``.gz``.
        mark: what stands before an id; lines that begin with something else are not read.

    Raises:
        InputError: if the file cannot be read, or an id is not a whole number, with the line.
    """

    def __init__(self, path: Path, *, mark: str = "") -> None:
        self.path, self._mark = path, mark.encode()
        self.ids = {identifier for _, identifier in self._lines()}
        if not self.ids:
            what = f"no line {mark!r} with an id" if mark else "no id"
            raise InputError(f"{what} in this file", path=path, remedy="check that it is the right file")

    def require(self, found: Set[int]) -> None:
        """Refuse a list with ids that were not found.

        Raises:
            InputError: with the line of the first, and their number.
        """
        if not (missing := len(self.ids - found)):
            return
        line, first = next((line, identifier) for line, identifier in self._lines() if identifier not in found)
        more = f" and {missing - 1:,} more that this file lists are" if missing > 1 else " is"
        raise InputError(
            f"document {first}{more} not in the archives",
            path=self.path,
            line=line,
            remedy="check that the archives of both disks are below --source",
        )

    def _lines(self) -> Iterator[tuple[int, int]]:
        try:
            with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.startswith(self._mark) or not line.strip():
                        continue
                    word = line.removeprefix(self._mark).strip()
                    if not word.isdigit():
                        shown = word[:40].decode("latin-1")
                        raise InputError(f"{shown!r} is no document id", path=self.path, line=number)
                    yield number, int(word)
        except FileNotFoundError:
            raise InputError("no such file", path=self.path) from None
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"the file cannot be read: {error}", path=self.path) from error
