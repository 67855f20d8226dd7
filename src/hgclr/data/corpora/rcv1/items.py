"""Read the news items of a portion of RCV1: text and topics of each, or why it is left out."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

from hgclr.data.corpora.news_xml import BrokenXml, paragraphs, parse
from hgclr.data.corpora.rcv1.disks import Portion
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["Contents", "ItemReader", "Story", "TextForm", "Unusable"]

TextForm = Literal["full", "literature"]

TOPICS, REGIONS = "bip:topics:1.0", "bip:countries:1.0"
LEADING_ID = re.compile(r"[0-9]+")


class Story(NamedTuple):
    """A document: its id, its place, its text, and the ids of its labels and their ancestors, in the tree's order."""

    id: int
    where: str
    text: str
    labels: tuple[str, ...]


class Unusable(NamedTuple):
    """A document that is left out; its id is what the name of its file begins with, if that is a number."""

    id: int | None
    where: str
    reason: str
    detail: str | None


class Contents(NamedTuple):
    """What a portion holds: its documents in the order of their ids, and how often it names which unknown topic."""

    documents: list[Story | Unusable]
    unknown: Counter[str]


class _LeftOutError(Exception):
    """Why an item is left out, in the words by which such items are counted, and what is wrong with this one."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class ItemReader:
    """How news items become documents; it is sent to the worker processes.

    Args:
        topics: the topics, in the order of the tree.
        closed: by topic, the indices of it and its ancestors.
        joint: what stands between two paragraphs.
        need_region: leave out items without a region, as RCV1-v2 does.
    """

    topics: tuple[str, ...]
    closed: dict[str, tuple[int, ...]]
    joint: str
    need_region: bool

    @classmethod
    def of(cls, tree: Taxonomy, *, text: TextForm, need_region: bool) -> ItemReader:
        """Return the reader for a topic tree and a form of the text."""
        closed = {topic: tuple(tree.path(index).tolist()) for index, topic in enumerate(tree.ids)}
        return cls(tree.ids, closed, " " if text == "full" else "", need_region)

    def __call__(self, portion: Portion) -> Contents:
        """Read the items of a portion.

        Raises:
            InputError: if the place as a whole cannot be read.
        """
        contents = Contents([], Counter())
        with _opened(portion) as (names, read):
            items = [name for name in names if name.lower().endswith(".xml")]
            for name in portion.share(sorted(items, key=_by_id)):
                where = f"{portion.where}/{name}"
                try:
                    contents.documents.append(self._story(where, read(name), contents.unknown))
                except _LeftOutError as error:
                    contents.documents.append(Unusable(_id_in(name), where, error.reason, error.detail))
        return contents

    def _story(self, where: str, data: bytes, unknown: Counter[str]) -> Story:
        try:
            root = parse(data)
        except BrokenXml as error:
            raise _LeftOutError("broken XML", str(error)) from None
        identifier = root.get("itemid", "")
        if root.tag != "newsitem" or LEADING_ID.fullmatch(identifier) is None:
            raise _LeftOutError("not a news item with an id")
        topics = _codes(root, TOPICS)
        if not topics:
            raise _LeftOutError("no topic")
        if self.need_region and not _codes(root, REGIONS):
            raise _LeftOutError("no region")
        unknown.update(topic for topic in topics if topic not in self.closed)
        labels = {index for topic in topics for index in self.closed.get(topic, ())}
        if not labels:
            raise _LeftOutError("no topic that the topic file has", " ".join(topics))
        body = root.find("text")
        text = "" if body is None else self.joint.join(paragraphs(body))
        if not text:
            raise _LeftOutError("no text")
        return Story(int(identifier), where, text, tuple(self.topics[index] for index in sorted(labels)))


def _codes(root: Element, kind: str) -> list[str]:
    """Return the codes of one kind, each once, in order."""
    found = (code.get("code") for codes in root.iter("codes") if codes.get("class") == kind for code in codes)
    return list(dict.fromkeys(code for code in found if code))


@contextmanager
def _opened(portion: Portion) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """Yield the names of the files in a place, and what reads one of them."""
    if portion.path.is_dir():

        def read_file(name: str) -> bytes:
            try:
                return (portion.path / name).read_bytes()
            except OSError as error:
                raise _LeftOutError("cannot be read", error.strerror) from None

        yield [path.name for path in portion.path.iterdir()], read_file
        return
    try:
        archive = zipfile.ZipFile(portion.path)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"damaged zip file: {error}", path=portion.path, remedy="copy it from the disk again"
        ) from None

    def read_member(name: str) -> bytes:
        try:
            return archive.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise _LeftOutError("damaged in its archive", str(error)) from None
        except RuntimeError as error:  # a password, or a kind of compression that Python lacks
            raise InputError(f"{name} cannot be unpacked: {error}", path=portion.path) from None

    with archive:
        yield archive.namelist(), read_member


def _id_in(name: str) -> int | None:
    """Return the number that a file's name begins with, as in ``2286newsML.xml``."""
    found = LEADING_ID.match(name.rpartition("/")[2])
    return int(found.group()) if found else None


def _by_id(name: str) -> tuple[float, str]:
    identifier = _id_in(name)
    return (float("inf") if identifier is None else identifier, name)
