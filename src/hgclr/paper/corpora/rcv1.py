"""RCV1-V2: the Reuters disks, with the topic tree and the training documents of Lewis et al. (2004)."""

from __future__ import annotations

import logging
import lzma
import math
import multiprocessing
import os
import re
import signal
import struct
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

import numpy as np

from hgclr.data.folder_writer import CorpusSummary, Progress, write_corpus
from hgclr.data.readers import byte_lines
from hgclr.errors import HGCLRError, InputError, first_line
from hgclr.files import open_regular
from hgclr.hardware import usable_cores
from hgclr.paper.corpora.news_xml import BrokenXml, paragraphs, parse
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.entries import LabelEntry, Source, link

__all__ = ["build_rcv1"]

logger = logging.getLogger(__name__)
LabelNames = Literal["codes", "descriptions"]
LINE = re.compile(r"\s*parent:\s*(\S+)\s+child:\s*(\S+)\s+child-description:\s*(\S.*)")
ROOT = "Root"
"""What stands above the top topics; it is no topic."""
TRAINING_FILE, TOPIC_FILE = "lyrl2004_tokens_train.dat", "rcv1.topics.hier.orig"
DOCUMENTS = 804_414
"""What RCV1-v2 has."""
MOST_WORKERS = 4
"""Compressing the text takes half as long as reading it and is done by one process, which two readers keep busy."""

Job = TypeVar("Job")
Result = TypeVar("Result")
TextForm = Literal["full", "literature"]
TOPICS, REGIONS = "bip:topics:1.0", "bip:countries:1.0"
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error, LookupError)
"""What Python's zipfile raises over an archive in which bytes are not what they were."""
LEADING_ID = re.compile(r"[0-9]+")
BYTES_A_PORTION, UNPACKED_A_PORTION, FILES_A_PORTION = 2**23, 2**26, 5_000
"""Well above a day's news, which is one portion; more than this in one place is read in several."""
LARGEST = 2**22
"""Bytes of an item that is read: a hundred times what a long one has."""
TOO_LARGE = f"larger than {LARGEST // 2**20} MB"


def build_rcv1(
    source: str | Path,
    output: str | Path,
    *,
    train_ids: str | Path | None = None,
    topics: str | Path | None = None,
    label_names: LabelNames = "codes",
    text: TextForm = "full",
    ids: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write RCV1-V2 as a data folder; what becomes of items, topics and splits is in docs/how-to/corpora/rcv1.md.

    Documents stand in the order of the names of their archives and then of their ids; of items with the same id, the
    first usable one counts.

    The arguments are the options of ``hgclr data prepare rcv1``; ``progress`` is called with the number of archives
    done and to do. With several workers, a script that calls this needs ``if __name__ == "__main__":``.
    """
    disks = find_disks(Path(source))
    training_file = Path(train_ids or disks.named(TRAINING_FILE, f"{TRAINING_FILE}.gz", option="--train-ids"))
    training = IdList(training_file, mark=".I")
    topic_file = Path(topics or disks.named(TOPIC_FILE, option="--topics"))
    tree = read_topics(topic_file, label_names)
    wanted = None if ids is None else IdList(Path(ids))
    reader = ItemReader.of(tree, text=text, need_region=wanted is None)
    settings = {
        "source": disks.source,
        "train_ids": training.path,
        "topics": topic_file,
        "label_names": label_names,
        "text": text,
        "ids": wanted and wanted.path,
    }
    splits, ids_wanted = split_training(training.ids), None if wanted is None else wanted.ids
    used: set[int] = set()
    lost: set[int] = set()
    unknown: Counter[str] = Counter()
    with write_corpus(output, name="rcv1", settings=settings) as writer:
        writer.taxonomy = tree
        with closing(in_order(reader, disks.portions, workers or min(usable_cores(), MOST_WORKERS))) as portions:
            for done, contents in enumerate(portions, 1):
                unknown += contents.unknown
                for document in contents.documents:
                    if problem := _problem(document, used, ids_wanted):
                        writer.leave_out(problem[0], document.where, problem[1])
                        lost |= set() if document.id is None else {document.id}
                    elif isinstance(document, Story):
                        used.add(document.id)
                        split = splits.get(document.id, "test")
                        writer.add(split, document.text, document.labels, id=str(document.id))
                if progress is not None:
                    progress(done, len(disks.portions))
        for listed in (training, wanted):
            if listed is not None:
                listed.require(used | lost)
    if unknown:
        shown = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(unknown.items()))
        logger.warning("dropped topics that %s does not have (in so many documents): %s", topic_file.name, shown)
    if len(used) != DOCUMENTS:
        logger.warning("RCV1-v2 has %s documents, this corpus %s", f"{DOCUMENTS:,}", f"{len(used):,}")
    return writer.summary


def _problem(document: Story | Unusable, used: set[int], wanted: set[int] | None) -> tuple[str, str | None] | None:
    """Return why a document is left out, if so, and what is wrong with this one."""
    if isinstance(document, Unusable):
        return document.reason, document.detail
    if document.id in used:
        return "an id that an earlier document has", str(document.id)
    if wanted is not None and document.id not in wanted:
        return "not among the wanted ids", str(document.id)
    return None


def read_topics(path: str | Path, label_names: LabelNames = "codes") -> Taxonomy:
    """Read lines ``parent: CCAT  child: C11  child-description: STRATEGY/PLANS`` in any order.

    The topics come in the order of the literature's label file, so that an index means the same topic in the
    published models: the children of the root, then, going down the tree depth first, the children of each topic.
    """
    source = Source.load(path)
    entries = []
    for number, line in source.lines():
        found = LINE.fullmatch(line)
        if found is None:
            remedy = "write 'parent: CODE  child: CODE  child-description: TEXT'"
            raise source.error(f"not a line of a topic file: {line.strip()[:60]!r}", number, remedy)
        parent, code, description = found.groups()
        if code != ROOT:
            name = code if label_names == "codes" else " ".join(description.split())
            entries.append(LabelEntry(code, name, None if parent == ROOT else parent, number))
    return _in_literature_order(Taxonomy(*link(entries, source)))


def _in_literature_order(tree: Taxonomy) -> Taxonomy:
    order = [child for node in (-1, *tree.walk.tolist()) for child in tree.children(node).tolist()]
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    parents = [place[int(tree.parents[old])] for old in order]
    return Taxonomy([tree.ids[old] for old in order], parents, [tree.names[old] for old in order])


def split_training(ids: Iterable[int]) -> dict[int, str]:
    """Return ``train`` or ``dev`` for each id; it depends on the ids alone, not on which of them can be used."""
    ordered = sorted(ids)
    # What train_test_split(test_size=0.1, random_state=0) does; numpy promises never to change this stream.
    shuffled = np.random.RandomState(0).permutation(len(ordered)).tolist()
    dev = math.ceil(0.1 * len(ordered))
    return {ordered[place]: "dev" if rank < dev else "train" for rank, place in enumerate(shuffled)}


class Portion(NamedTuple):
    """A share, one of ``parts``, of the news items of a zip file or a folder, small enough to be held in memory.

    Messages call it by its path below the source, ``where``.
    """

    path: Path
    where: str
    part: int = 0
    parts: int = 1

    def share(self, names: list[str]) -> list[str]:
        """Return this portion of all the names in its place."""
        return names[self.part * len(names) // self.parts : (self.part + 1) * len(names) // self.parts]


class Disks(NamedTuple):
    """What lies below a folder: news items in the order of the names of their archives, and other files, sorted."""

    source: Path
    portions: list[Portion]
    others: list[Path]

    def named(self, *names: str, option: str) -> Path:
        """Return the first file that has one of these names."""
        for path in self.others:
            if path.name in names:
                return path
        raise InputError(f"there is no {names[0]} below this folder", path=self.source, remedy=f"name it with {option}")


def find_disks(source: Path) -> Disks:
    """Look through a folder, at any depth, for zip files, folders of XML files, and the publishers' lists."""
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
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            unpacked = sum(min(member.file_size, LARGEST) for member in archive.infolist())
    except (OSError, *DAMAGED) as error:
        remedy = "copy it from the disk again"
        raise InputError(f"truncated or not a zip file: {first_line(error)}", path=path, remedy=remedy) from None
    return max(1, -(-path.stat().st_size // BYTES_A_PORTION), -(-unpacked // UNPACKED_A_PORTION))


def _unreadable(error: OSError) -> None:
    raise InputError(f"the folder cannot be read: {error.strerror}", path=error.filename)


class IdList:
    """The document ids that a file lists, behind a mark if there is one; lines that begin otherwise are not read."""

    def __init__(self, path: Path, *, mark: str = "") -> None:
        self.path, self._mark = path, mark.encode()
        self.ids = {identifier for _, identifier in self._lines()}
        if not self.ids:
            what = f"no line {mark!r} with an id" if mark else "no id"
            raise InputError(f"{what} in this file", path=path, remedy="check that it is the right file")

    def require(self, found: Set[int]) -> None:
        """Refuse a list with ids that were not found."""
        if not (missing := len(self.ids - found)):
            return
        line, first = next((line, identifier) for line, identifier in self._lines() if identifier not in found)
        more = f" and {missing - 1:,} more that this file lists are" if missing > 1 else " is"
        remedy = "check that the archives of both disks are below --source"
        raise InputError(f"document {first}{more} not in the archives", path=self.path, line=line, remedy=remedy)

    def _lines(self) -> Iterator[tuple[int, int]]:
        for number, line in enumerate(byte_lines(self.path), 1):
            if not line.startswith(self._mark) or not line.strip():
                continue
            word = line.removeprefix(self._mark).strip()
            if not word.isdigit():
                shown = word[:40].decode("latin-1")
                raise InputError(f"{shown!r} is no document id", path=self.path, line=number)
            yield number, int(word)


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
    """How news items become documents; it is sent to the worker processes."""

    topics: tuple[str, ...]
    """In the order of the tree."""
    closed: dict[str, tuple[int, ...]]
    """By topic, the indices of it and its ancestors."""
    joint: str
    """Stands between two paragraphs."""
    need_region: bool
    """Leave out items without a region, as RCV1-v2 does."""

    @classmethod
    def of(cls, tree: Taxonomy, *, text: TextForm, need_region: bool) -> ItemReader:
        """Return the reader for a topic tree and a form of the text."""
        closed = {topic: tuple(tree.path(index).tolist()) for index, topic in enumerate(tree.ids)}
        return cls(tree.ids, closed, " " if text == "full" else "", need_region)

    def __call__(self, portion: Portion) -> Contents:
        """Read the items of a portion."""
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
    found = (code.get("code") for codes in root.iter("codes") if codes.get("class") == kind for code in codes)
    return list(dict.fromkeys(code for code in found if code))


@contextmanager
def _opened(portion: Portion) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """Yield the names of the files in a place, and what reads one of them."""
    if portion.path.is_dir():

        def read_file(name: str) -> bytes:
            try:
                with open_regular(portion.path / name) as file:
                    return _limited(file)
            except OSError as error:
                raise _LeftOutError("cannot be read", error.strerror) from None

        yield [path.name for path in portion.path.iterdir()], read_file
        return
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(open_regular(portion.path))))
        except (OSError, *DAMAGED) as error:
            remedy = "copy it from the disk again"
            raise InputError(f"damaged zip file: {first_line(error)}", path=portion.path, remedy=remedy) from None
        yield archive.namelist(), partial(_read_member, archive, portion.path)


def _read_member(archive: zipfile.ZipFile, path: Path, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            return _limited(file)
    except RuntimeError as error:  # a password, or a kind of compression that Python lacks
        raise InputError(f"{name} cannot be unpacked: {error}", path=path) from None
    except (OSError, *DAMAGED) as error:
        raise _LeftOutError("damaged in its archive", first_line(error)) from None


def _limited(file: IO[bytes]) -> bytes:
    """Return what is in a file of an item, unless that is more than an item has: a small archive can hold any size."""
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _LeftOutError(TOO_LARGE)
    return data


def _id_in(name: str) -> int | None:
    """Return the number that a file's name begins with, as in ``2286newsML.xml``."""
    found = LEADING_ID.match(name.rpartition("/")[2])
    return int(found.group()) if found else None


def _by_id(name: str) -> tuple[float, str]:
    identifier = _id_in(name)
    return (float("inf") if identifier is None else identifier, name)


def in_order(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Generator[Result, None, None]:
    """Yield the results of ``jobs`` in their order; close the generator to end the processes.

    ``work`` and the jobs are sent to other processes, unless there is but one worker.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        yield from map(work, jobs)
        return
    # Not forked: the progress bar of the command line is a thread, and a forked copy of a thread's lock stays locked.
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawning, initializer=_leave_interrupts_to_the_parent)
    try:
        yield from limited(lambda job: pool.submit(work, job), jobs, ahead=workers + 2)
    except BrokenProcessPool:
        raise HGCLRError("a worker process ended by itself, perhaps for want of memory; try --workers 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def limited(
    submit: Callable[[Job], Future[Result]], jobs: Iterable[Job], *, ahead: int
) -> Generator[Result, None, None]:
    """Yield the results in order, with at most ``ahead`` jobs submitted whose results were not taken yet."""
    pending: deque[Future[Result]] = deque()
    for job in jobs:
        pending.append(submit(job))
        if len(pending) == ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _leave_interrupts_to_the_parent() -> None:
    """Ignore Ctrl-C, which reaches all processes: the parent ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
