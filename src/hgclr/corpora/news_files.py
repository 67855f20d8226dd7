"""Find and read the files of the New York Times corpus, in the publisher's archives or unpacked."""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.entities import name2codepoint
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, XMLParser

from hgclr.data.folder_writer import Progress
from hgclr.errors import InputError

__all__ = ["Article", "BrokenXml", "NytFiles", "paragraphs", "parse", "text_of"]

YEAR = re.compile(r"\d{4}")
ARCHIVES = (".tgz", ".tar.gz")
LARGEST = 2**26
"""Bytes a document may have. The longest articles have a few hundred thousand."""


@dataclass(frozen=True, slots=True)
class Article:
    """A file as it was found.

    Args:
        key: year and file name, as ``2006/1815754.xml``.
        where: the file, or the archive and the member, as ``data/2006/12.tgz:12/24/1815754.xml``.
        data: what is in it, or None if that is more than `LARGEST`.
    """

    key: str
    where: str
    data: bytes | None


@dataclass(slots=True)
class _Year:
    """What is wanted of a year and where it may be.

    Args:
        name: the year.
        wanted: file names.
        loose: those that are files of their own.
        archives: where the others may be, in order.
    """

    name: str
    wanted: set[str]
    loose: list[Path]
    archives: list[Path]


class NytFiles:
    """The wanted files of the corpus.

    A file is told by its year and its name; folders and archives in between do not matter. So ``2006/12.tgz`` with
    ``12/24/1815754.xml`` in it, ``2006/12/24/1815754.xml`` and ``2006/1815754.xml`` are all the same. Where a file is
    there more than once, a file of its own comes before one in an archive, and otherwise the first.

    Args:
        source: the folder with a folder for each year, or a folder that has this one as ``data`` or ``Nytimes``.
        keys: the files, as ``2006/1815754.xml``.

    Raises:
        InputError: if there are no such folders.
    """

    def __init__(self, source: Path, keys: Iterable[str]) -> None:
        folder = _folder_of_years(source)
        wanted: dict[str, set[str]] = {}
        for key in keys:
            year, _, name = key.partition("/")
            wanted.setdefault(year, set()).add(name)
        self._years = [_find(folder / year, names) for year, names in sorted(wanted.items())]

    def absent(self) -> set[str]:
        """Return the files of which it is clear without reading that they are not there."""
        return {
            f"{year.name}/{name}"
            for year in self._years
            if not year.archives
            for name in year.wanted.difference(path.name for path in year.loose)
        }

    def read(self, progress: Progress | None = None) -> Iterator[Article]:
        """Yield the files that are there, each once.

        An archive is read as a stream, to its end, so that damage is noticed wherever it is, and nothing is unpacked;
        archives that are not needed any more are not read.

        Args:
            progress: called with the number of files and archives done and to do.

        Raises:
            InputError: if a file cannot be read or an archive is damaged, with the last member that could be read.
        """
        total = sum(len(year.loose) + len(year.archives) for year in self._years)
        done = 0
        for year in self._years:
            missing = set(year.wanted)
            for path in (*year.loose, *year.archives):
                if path.name in year.wanted:
                    missing.discard(path.name)
                    yield _read_file(f"{year.name}/{path.name}", path)
                elif missing:
                    for name, where, data in _read_archive(path, missing):
                        missing.discard(name)
                        yield Article(f"{year.name}/{name}", where, data)
                done += 1
                if progress is not None:
                    progress(done, total)


def _folder_of_years(source: Path) -> Path:
    """Return the folder that has a folder for each year."""
    if not source.is_dir():
        raise InputError("no such folder", path=source, remedy="--source takes the folder nyt_corpus of LDC2008T19")
    for folder in (source, source / "data", source / "Nytimes"):
        if folder.is_dir() and any(YEAR.fullmatch(path.name) and path.is_dir() for path in folder.iterdir()):
            return folder
    raise InputError(
        "there is no folder of a year, such as 1987, in it or in its folder 'data'",
        path=source,
        remedy="--source takes the folder nyt_corpus of LDC2008T19",
    )


def _find(folder: Path, wanted: set[str]) -> _Year:
    """Return the wanted files and all archives of a year."""
    loose: dict[str, Path] = {}
    archives: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name in wanted:
                loose.setdefault(name, Path(parent, name))
            elif name.endswith(ARCHIVES) and not name.startswith("."):
                archives.append(Path(parent, name))
    return _Year(folder.name, wanted, list(loose.values()), archives)


def _read_file(key: str, path: Path) -> Article:
    """Return a file that is not in an archive."""
    try:
        return Article(key, str(path), path.read_bytes() if path.stat().st_size <= LARGEST else None)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", path=path) from error


def _read_archive(path: Path, wanted: set[str]) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield name, place and content of the members whose file names are wanted.

    Args:
        path: the archive.
        wanted: file names; the caller may take out what has been found.
    """
    place = "before the first member"
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive, 1):
                name = member.name.rpartition("/")[2]
                if name in wanted and member.isreg() and (content := archive.extractfile(member)) is not None:
                    data = content.read() if member.size <= LARGEST else None
                    yield name, f"{path}:{member.name}", data
                place = f"after member {number:,}, {member.name!r}"
            while stream.read(2**20):  # the check sum is at the end
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise InputError(
            f"the archive is damaged or cut short {place}: {error}", path=path, remedy="copy it again"
        ) from error


ENTITY = re.compile(rb"<!\[CDATA\[.*?\]\]>|&([A-Za-z][A-Za-z0-9]*);", re.DOTALL)
"""A named character, or a section in which an ampersand is only an ampersand."""


class BrokenXml(ValueError):  # noqa: N818 - never leaves this package: it becomes a document left out
    """A file that is no XML that we would read."""


def parse(data: bytes) -> Element:
    """Return the root of a file, in whatever encoding its header names.

    The files cite a DTD that defines HTML's named characters (``&eacute;``) and is not at hand; they are read as what
    they mean in HTML. Files that define entities themselves are refused: they can blow up to any size.

    Raises:
        BrokenXml: with line and column, if this is not well formed; if the header names an encoding that is not known.
    """
    if b"<!ENTITY" in data.replace(b"\0", b""):  # whether it is UTF-8 or UTF-16
        raise BrokenXml("it defines entities")
    parser = XMLParser()
    try:
        parser.feed(ENTITY.sub(_spelled_out, data))
        root: Element = parser.close()
    except (ParseError, LookupError, ValueError) as error:  # the latter two: an encoding that is unknown, or too odd
        raise BrokenXml(str(error)) from None
    return root


def paragraphs(root: Element) -> list[str]:
    """Return the text of the ``<p>`` elements in order, as `text_of` gives it; empty paragraphs are left out."""
    return [text for element in root.iter("p") if (text := text_of(element))]


def text_of(element: Element) -> str:
    """Return the text of an element, markup inside dropped and white space made single."""
    return " ".join("".join(element.itertext()).split())


def _spelled_out(found: re.Match[bytes]) -> bytes:
    """Return the numeric form of a named character of HTML, and anything else as it stands."""
    name = found.group(1)
    code = None if name is None else name2codepoint.get(name.decode())
    return found.group() if code is None else b"&#%d;" % code
