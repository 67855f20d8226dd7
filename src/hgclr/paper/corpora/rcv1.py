"""Build a data folder from RCV1-V2: the Reuters disks, with topics and training documents of Lewis et al. (2004)."""

from __future__ import annotations

import logging
import lzma
import math
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from hgclr.data.folder import CorpusSummary, Progress, write_corpus
from hgclr.data.readers import byte_lines
from hgclr.errors import InputError, first_line
from hgclr.files import open_regular
from hgclr.paper.corpora import BrokenXml, paragraphs, parse
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.entries import LabelEntry, Source, link

logger = logging.getLogger(__name__)
LabelNames = Literal["codes", "descriptions"]
LINE = re.compile(r"\s*parent:\s*(\S+)\s+child:\s*(\S+)\s+child-description:\s*(\S.*)")
ROOT = "Root"
"""The parent of the top topics, not itself a topic."""
TRAINING_FILE, TOPIC_FILE = "lyrl2004_tokens_train.dat", "rcv1.topics.hier.orig"
DOCUMENTS = 804_414
"""Number of documents in RCV1-v2."""
TOPICS, REGIONS = "bip:topics:1.0", "bip:countries:1.0"
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error, LookupError)
"""Errors of Python's zipfile for a damaged archive."""
LEADING_ID = re.compile(r"[0-9]+")
LARGEST = 2**22
"""Limit on the bytes of an item: a hundred times the size of a long one."""
TOO_LARGE = f"larger than {LARGEST // 2**20} MB"
AGAIN = "copy it from the disk again"


def build_rcv1(
    source: str | Path,
    output: str | Path,
    *,
    train_ids: str | Path | None = None,
    topics: str | Path | None = None,
    label_names: LabelNames = "codes",
    text: Literal["full", "literature"] = "full",
    ids: str | Path | None = None,
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write RCV1-V2 as a data folder; docs/guides/corpora/rcv1.md describes its items, topics and splits.

    Documents are sorted by the name of their archive and then by id; of items with the same id, the first usable one
    counts.

    The arguments are the options of ``hgclr data prepare rcv1``; ``progress`` is called with the number of finished
    archives and of all archives.
    """
    disks = find_disks(Path(source))
    training_file = Path(train_ids or disks.named(TRAINING_FILE, f"{TRAINING_FILE}.gz", option="--train-ids"))
    training = IdList(training_file, mark=".I")
    topic_file = Path(topics or disks.named(TOPIC_FILE, option="--topics"))
    tree = read_topics(topic_file, label_names)
    wanted = None if ids is None else IdList(Path(ids))
    settings = {
        "source": disks.source,
        "train_ids": training.path,
        "topics": topic_file,
        "label_names": label_names,
        "text": text,
        "ids": wanted and wanted.path,
    }
    reader = ItemReader(tree, joint=" " if text == "full" else "", need_region=wanted is None)
    splits = split_training(training.ids)
    used: set[int] = set()
    lost: set[int] = set()
    with write_corpus(output, name="rcv1", settings=settings) as writer:
        writer.taxonomy = tree
        for done, place in enumerate(disks.places, 1):
            with _opened(place) as (names, read):
                items = [name for name in names if name.lower().endswith(".xml")]
                for name in sorted(items, key=lambda name: (math.inf if (own := _id_in(name)) is None else own, name)):
                    identifier, where = _id_in(name), f"{place.relative_to(disks.source).as_posix()}/{name}"
                    try:
                        identifier, story, labels = reader.read(read(name))
                        if identifier in used:
                            raise _LeftOutError("the id of an earlier document", str(identifier))
                        if wanted is not None and identifier not in wanted.ids:
                            raise _LeftOutError("not in the list of ids", str(identifier))
                    except _LeftOutError as error:
                        writer.leave_out(error.reason, where, error.detail)
                        lost |= set() if identifier is None else {identifier}
                        continue
                    used.add(identifier)
                    writer.add(splits.get(identifier, "test"), story, labels, id=str(identifier))
            if progress is not None:
                progress(done, len(disks.places))
        for listed in (training, wanted):
            if listed is not None:
                listed.require(used | lost)
    if reader.unknown:
        shown = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(reader.unknown.items()))
        logger.warning("dropped topics that are not in %s (with numbers of documents): %s", topic_file.name, shown)
    if len(used) != DOCUMENTS:
        logger.warning("RCV1-v2 has %s documents, but this corpus has %s", f"{DOCUMENTS:,}", f"{len(used):,}")
    return writer.summary


def read_topics(path: str | Path, label_names: LabelNames = "codes") -> Taxonomy:
    """Read lines ``parent: CCAT  child: C11  child-description: STRATEGY/PLANS`` in any order.

    The topics are in the order of the literature's label file, so that an index is the same topic in the published
    models: the children of the root, then, in a depth-first walk, the children of each topic.
    """
    source = Source.load(path)
    entries = []
    for number, line in source.lines():
        found = LINE.fullmatch(line)
        if found is None:
            remedy = "write 'parent: CODE  child: CODE  child-description: TEXT'"
            raise source.error(f"not a topic: {line.strip()[:60]!r}", number, remedy)
        parent, code, description = found.groups()
        if code != ROOT:
            name = code if label_names == "codes" else " ".join(description.split())
            entries.append(LabelEntry(code, name, None if parent == ROOT else parent, number))
    tree = Taxonomy(**link(entries, source)._asdict())
    order = [child for node in (-1, *tree.walk.tolist()) for child in tree.children(node).tolist()]
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    parents = [place[int(tree.parents[old])] for old in order]
    return Taxonomy([tree.ids[old] for old in order], parents, [tree.names[old] for old in order])


def split_training(ids: Iterable[int]) -> dict[int, str]:
    """Return ``train`` or ``dev`` for each id; it depends only on the ids, not on which documents are usable."""
    ordered = sorted(ids)
    # Equals train_test_split(test_size=0.1, random_state=0); numpy guarantees this random stream.
    shuffled = np.random.RandomState(0).permutation(len(ordered)).tolist()
    dev = math.ceil(0.1 * len(ordered))
    return {ordered[place]: "dev" if rank < dev else "train" for rank, place in enumerate(shuffled)}


class Disks(NamedTuple):
    """The content of a folder: zip files and folders of news items, sorted by name; other files, sorted."""

    source: Path
    places: list[Path]
    others: list[Path]

    def named(self, *names: str, option: str) -> Path:
        """Return the first file with one of these names."""
        for path in self.others:
            if path.name in names:
                return path
        raise InputError(f"there is no {names[0]} in this folder", path=self.source, remedy=f"give it with {option}")


def find_disks(source: Path) -> Disks:
    """Search a folder, at any depth, for zip files, folders of XML files, and the publishers' lists."""
    if not source.is_dir():
        raise InputError("no such folder", path=source, remedy="give the folder with the Reuters disks")

    def unreadable(error: OSError) -> None:
        raise InputError(f"the folder cannot be read: {error.strerror}", path=error.filename)

    places: list[tuple[str, Path]] = []
    others: list[Path] = []
    for folder, _, names in os.walk(source, onerror=unreadable):
        here = Path(folder)
        for path in (here / name for name in names):
            if path.suffix.lower() == ".zip":
                with _opened(path):  # finds truncated archives, which have no list of members, before any work
                    places.append((path.stem, path))
            elif path.suffix.lower() != ".xml":
                others.append(path)
        if any(name.lower().endswith(".xml") for name in names):
            places.append((here.name, here))
    if not places:
        remedy = "give the folder with the Reuters disks; if you have rcv1.tar.xz, unpack it first"
        raise InputError("this folder has neither zip files nor XML files", path=source, remedy=remedy)
    return Disks(source, [path for _, path in sorted(places)], sorted(others))


class IdList:
    """The document ids in a file, each after a ``mark`` if one is given; lines without the mark are ignored."""

    def __init__(self, path: Path, *, mark: str = "") -> None:
        self.path, self._mark = path, mark.encode()
        self.ids = {identifier for _, identifier in self._lines()}
        if not self.ids:
            what = f"the file has no line {mark!r} with an id" if mark else "the file has no id"
            raise InputError(what, path=path, remedy="check that it is the right file")

    def require(self, found: Set[int]) -> None:
        """Raise an `InputError` if an id of the list was not found."""
        if not (missing := len(self.ids - found)):
            return
        line, first = next((line, identifier) for line, identifier in self._lines() if identifier not in found)
        more = f" and {missing - 1:,} more of this list are" if missing > 1 else " is"
        remedy = "check that the archives of both disks are in --source"
        raise InputError(f"document {first}{more} not in the archives", path=self.path, line=line, remedy=remedy)

    def _lines(self) -> Iterator[tuple[int, int]]:
        for number, line in enumerate(byte_lines(self.path), 1):
            if not line.startswith(self._mark) or not line.strip():
                continue
            word = line.removeprefix(self._mark).strip()
            if not word.isdigit():
                shown = word[:40].decode("latin-1")
                raise InputError(f"{shown!r} is not a document id", path=self.path, line=number)
            yield number, int(word)


class _LeftOutError(Exception):
    """An item is skipped: ``reason`` is counted over all items, ``detail`` is about this one."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class ItemReader:
    """Read news items.

    Args:
        tree: the topics.
        joint: separator of paragraphs.
        need_region: skip items without a region, as RCV1-v2 does.
    """

    def __init__(self, tree: Taxonomy, *, joint: str, need_region: bool) -> None:
        self.unknown: Counter[str] = Counter()
        """Number of items for each topic that is not in the tree."""
        self._topics, self._joint, self._need_region = tree.ids, joint, need_region
        self._closed = {topic: tree.path(index).tolist() for index, topic in enumerate(tree.ids)}

    def read(self, data: bytes) -> tuple[int, str, list[str]]:
        """Return id, text, and labels with their ancestors in the order of the tree, or raise a `_LeftOutError`."""
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
        if self._need_region and not _codes(root, REGIONS):
            raise _LeftOutError("no region")
        self.unknown.update(topic for topic in topics if topic not in self._closed)
        labels = {index for topic in topics for index in self._closed.get(topic, ())}
        if not labels:
            raise _LeftOutError("no topic of the topic file", " ".join(topics))
        body = root.find("text")
        text = "" if body is None else self._joint.join(paragraphs(body))
        if not text:
            raise _LeftOutError("no text")
        return int(identifier), text, [self._topics[index] for index in sorted(labels)]


def _codes(root: Element, kind: str) -> list[str]:
    found = (code.get("code") for codes in root.iter("codes") if codes.get("class") == kind for code in codes)
    return list(dict.fromkeys(code for code in found if code))


@contextmanager
def _opened(place: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """Yield the names of the files in a folder or zip file, and a function that reads one of them."""

    def limited(file: IO[bytes]) -> bytes:
        data = file.read(LARGEST + 1)
        if len(data) > LARGEST:  # a small archive can unpack to any size
            raise _LeftOutError(TOO_LARGE)
        return data

    def read_file(name: str) -> bytes:
        try:
            with open_regular(place / name) as file:
                return limited(file)
        except OSError as error:
            raise _LeftOutError("cannot be read", error.strerror) from None

    def read_member(name: str) -> bytes:
        try:
            with archive.open(name) as file:
                return limited(file)
        except RuntimeError as error:  # a password, or an unsupported compression
            raise InputError(f"{name} cannot be unpacked: {error}", path=place) from None
        except (OSError, *DAMAGED) as error:
            raise _LeftOutError("damaged in its archive", first_line(error)) from None

    if place.is_dir():
        yield [path.name for path in place.iterdir()], read_file
        return
    try:
        file = open_regular(place)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=place) from None
    with file:
        try:
            archive = zipfile.ZipFile(file)
        except (OSError, *DAMAGED) as error:
            what = f"truncated or not a zip file: {first_line(error)}"
            raise InputError(what, path=place, remedy=AGAIN) from None
        with archive:
            yield archive.namelist(), read_member


def _id_in(name: str) -> int | None:
    """Return the number at the start of a file's name, as in ``2286newsML.xml``."""
    found = LEADING_ID.match(name.rpartition("/")[2])
    return int(found.group()) if found else None
