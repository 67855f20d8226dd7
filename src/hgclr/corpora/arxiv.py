"""Build a data set from arXiv's metadata: title and abstract in, groups, archives and categories out."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import heapq
import io
import json
import logging
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, cast

from hgclr.corpora.arxiv_papers import Paper, PaperReader, category_tree
from hgclr.data.folder_writer import CorpusWriter, Progress, Summary, write_corpus
from hgclr.errors import InputError

__all__ = ["build_arxiv", "records"]

HASHES = 2**64


class Limit:
    """At most so many papers of one primary category: those with the lowest hashes.

    Every paper is offered first; a second reading takes. In between, one number is kept for every paper that will be
    taken, and none for the others.

    Args:
        size: papers of a category.
        seed: decides the hashes.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._lowest: dict[str, list[int]] = {}
        """By category, the hashes so far, negated: the first of each heap is the highest."""

    def offer(self, paper: Paper) -> None:
        """Let a paper compete for the places of its category."""
        heap = self._lowest.setdefault(paper.primary, [])
        value = -_hash("limit", self._seed, paper.id)
        if len(heap) < self._size:
            heapq.heappush(heap, value)
        else:
            heapq.heappushpop(heap, value)

    def chosen(self) -> Callable[[Paper], bool]:
        """Return what tells, paper by paper in a second reading, whether one is taken."""
        highest = {category: -heap[0] for category, heap in self._lowest.items()}
        room = dict.fromkeys(highest, self._size)

        def takes(paper: Paper) -> bool:
            if _hash("limit", self._seed, paper.id) > highest[paper.primary] or not room[paper.primary]:
                return False
            room[paper.primary] -= 1  # papers that stand in the file twice have the same hash twice
            return True

        return takes


def split_by_hash(dev_share: float, test_share: float, seed: int) -> Callable[[Paper], str]:
    """Return what draws the split of a paper.

    Raises:
        InputError: if the shares leave nothing for training.
    """
    if dev_share < 0 or test_share < 0 or dev_share + test_share >= 1:
        raise InputError(
            f"a share of {dev_share:g} for dev and {test_share:g} for test",
            remedy="give shares of at least 0 whose sum is below 1",
        )

    def split(paper: Paper) -> str:
        place = _hash("split", seed, paper.id) / HASHES
        return "test" if place < test_share else "dev" if place < test_share + dev_share else "train"

    return split


def split_by_date(dev_from: date, test_from: date) -> Callable[[Paper], str]:
    """Return what tells the split of a dated paper: train before ``dev_from``, test from ``test_from`` on.

    Raises:
        InputError: if test does not begin after dev.
    """
    if dev_from >= test_from:
        raise InputError(f"dev begins on {dev_from}, test on {test_from}", remedy="let dev begin before test")

    def split(paper: Paper) -> str:
        if paper.created is None:
            raise ValueError(f"paper {paper.id!r} was read without its date")
        return "train" if paper.created < dev_from else "dev" if paper.created < test_from else "test"

    return split


def _hash(purpose: str, seed: int, identifier: str) -> int:
    """Return 64 bits. Other purposes give other bits: the papers that a limit leaves must not be all of one split."""
    digest = hashlib.blake2b(f"{purpose}\n{seed}\n{identifier}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


FIELDS = ("id", "title", "abstract", "categories")
"""What every record must have, as text."""
LONGEST_LINE = 2**24
"""Bytes; the longest records, of papers with thousands of authors, have some hundred thousand. A file without line
ends would otherwise be pulled into memory whole."""
REPORT_EVERY = 1000
BUFFER = 2**18
AGAIN = "get the file again and compare its size with the publisher's"


def records(path: Path, report: Callable[[int], None] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the fields of every record.

    Args:
        path: the snapshot; the name ends in ``.gz`` or ``.zip`` if it is packed.
        report: called now and then, and at the end, with the bytes of the file that have been read.

    Raises:
        InputError: with the line, if the file is damaged, truncated, or something else.
    """
    number = 0
    with _opened(path) as (stream, file):
        while True:
            with _damage_reported(path, number + 1):
                line = stream.readline(LONGEST_LINE + 1)
            if not line:
                break
            number += 1
            if line.strip():
                yield number, _record(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, path, number)
            if report is not None and number % REPORT_EVERY == 0:
                report(file.tell())
        if report is not None:
            report(path.stat().st_size)


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the fields of one line."""
    if len(line) > LONGEST_LINE:
        raise InputError(
            f"no line end in {LONGEST_LINE:,} bytes",
            path=path,
            line=number,
            remedy="the snapshot has one record a line",
        )
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            what = "truncated: the file ends in the middle of a record"
            raise InputError(what, path=path, line=number, remedy=AGAIN) from None
        raise InputError(f"broken record: {error}", path=path, line=number, remedy=AGAIN) from None
    for field in FIELDS:
        if not isinstance(record, dict) or not isinstance(record.get(field), str):
            raise InputError(
                f"the record has no text {field!r}",
                path=path,
                line=number,
                remedy="the file must be arXiv's metadata snapshot, one JSON record a line",
            )
    return cast(dict[str, Any], record)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the snapshot; give the unpacked stream and the file underneath, whose place tells how far reading is."""
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "no such file"
        raise InputError(what, path=path, remedy="name arxiv-metadata-oai-snapshot.json, or its .gz or .zip")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        stream: BinaryIO = file
        name = path.name.lower()
        if name.endswith(".gz"):
            stream = _buffered(stack.enter_context(gzip.GzipFile(fileobj=file)))
        elif name.endswith(".zip"):
            with _damage_reported(path, None):
                archive = stack.enter_context(zipfile.ZipFile(file))
                stream = _buffered(stack.enter_context(archive.open(_only_member(archive, path))))
        yield stream, file


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the one JSON file in an archive."""
    members = [member for member in archive.infolist() if member.filename.lower().endswith(".json")]
    if len(members) != 1:
        found = ", ".join(repr(member.filename) for member in members[:3]) or "none"
        raise InputError(f"{len(members)} JSON files in the archive ({found})", path=path, remedy="unpack the snapshot")
    return members[0]


def _buffered(stream: object) -> BinaryIO:
    """Give a stream whose lines are found in C."""
    return io.BufferedReader(cast(io.RawIOBase, stream), BUFFER)


@contextmanager
def _damage_reported(path: Path, line: int | None) -> Iterator[None]:
    """Turn what gzip and zip raise into an error that names the place."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        here = "" if line is None else "cannot be unpacked from here on: "
        what = f"damaged or truncated archive: {here}{error or 'it ends early'}"
        raise InputError(what, path=path, line=line, remedy=AGAIN) from None
    except (NotImplementedError, RuntimeError) as error:  # a packing that Python does not know, or a password
        raise InputError(f"the archive cannot be unpacked: {error}", path=path, remedy="unpack it yourself") from None


logger = logging.getLogger(__name__)
SHARE = 0.1
"""Of dev and of test, unless the user says otherwise."""
SHOWN = 10
"""How many unknown categories the warning names."""


def build_arxiv(
    source: str | Path,
    output: str | Path,
    *,
    since: date | None = None,
    until: date | None = None,
    per_category: int | None = None,
    primary_only: bool = False,
    dev_share: float | None = None,
    test_share: float | None = None,
    dev_from: date | None = None,
    test_from: date | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Summary:
    """Write arXiv's metadata snapshot as a data folder, in flat memory.

    **Texts** are title and abstract as two sentences, white space made single. Papers without an abstract, or with a
    note of withdrawal in its place, are left out.

    **Labels** are all categories of a paper with the archives and groups above them (`category_tree`); codes of old
    archives and double codes become what they are today (`ALIASES`), and a bare ``astro-ph`` stays what it says. Codes
    that are not arXiv's are dropped with a warning.

    **Splits** are drawn by a hash of the paper's id and the seed, or made by the day of the first version.

    Args:
        source: ``arxiv-metadata-oai-snapshot.json``, or the same as ``.gz`` or ``.zip``.
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        since: the first day (of a paper's first version) to take papers of.
        until: the last day.
        per_category: how many papers to take at most of those with the same primary category. Which ones is decided
            by a hash of id and seed, not by their place in the file. The file is read twice then.
        primary_only: give each paper the path of its primary category alone.
        dev_share: share of papers drawn for dev, 0.1 if left out.
        test_share: share of papers drawn for test, 0.1 if left out.
        dev_from: split by date instead: the first day of dev; earlier papers are for training.
        test_from: the first day of test; needs ``dev_from``.
        seed: decides the split that is drawn, and the papers that a limit per category leaves.
        progress: called with the bytes read and to read.

    Raises:
        InputError: if the file is damaged or no snapshot (with the line), the options contradict each other, or
            the folder holds files that are not from an earlier build.
    """
    source = Path(source)
    split = _splitting(dev_share, test_share, dev_from, test_from, seed)
    if since is not None and until is not None and since > until:
        raise InputError(f"no day is both since {since} and until {until}", remedy="exchange the two")
    if per_category is not None and per_category < 1:
        raise InputError(f"at most {per_category} papers of a category", remedy="give at least 1")
    tree = category_tree()
    paths = {label: tree.path(index).tolist() for index, label in enumerate(tree.ids)}
    days = {"since": since, "until": until, "dev_from": dev_from, "test_from": test_from}
    settings = {
        "source": source.name,
        **{name: None if day is None else day.isoformat() for name, day in days.items()},
        "per_category": per_category,
        "primary_only": primary_only,
        "dev_share": dev_share,
        "test_share": test_share,
        "seed": seed,
    }
    with write_corpus(output, name="arxiv", settings=settings) as writer:
        writer.taxonomy = tree
        snapshot = _Snapshot(source, frozenset(paths), days, progress, readings=1 if per_category is None else 2)
        takes = None if per_category is None else _chosen(snapshot, per_category, seed)
        for paper in snapshot.papers(writer):
            if takes is not None and not takes(paper):
                continue
            categories = paper.categories[:1] if primary_only else paper.categories
            labels = sorted({label for category in categories for label in paths[category]})
            writer.add(split(paper), paper.text, [tree.ids[label] for label in labels], id=paper.id)
        if snapshot.dated and not writer.summary.documents["train"]:
            raise InputError("the dates leave no paper for training", path=source, remedy="choose other dates")
    _warn_of_unknown(snapshot.unknown, source)
    return writer.summary


class _Snapshot:
    """The papers of the right time, read as often as they are needed.

    Args:
        source: the file.
        labels: ids of the labels.
        days: ``since`` and ``until``, and others that make dates necessary.
        progress: called with the bytes read and to read in all readings.
        readings: how often the file will be read.
    """

    def __init__(
        self,
        source: Path,
        labels: frozenset[str],
        days: dict[str, date | None],
        progress: Progress | None,
        *,
        readings: int,
    ) -> None:
        self.dated = any(day is not None for day in days.values())
        self.unknown: Counter[str] = Counter()
        """By code that is not arXiv's, how many papers carry it; known after a reading."""
        self._source, self._labels, self._progress, self._readings = source, labels, progress, readings
        self._first, self._last = days["since"] or date.min, days["until"] or date.max
        self._finished = 0

    def papers(self, writer: CorpusWriter | None = None) -> Iterator[Paper]:
        """Read the file once; record what cannot be used with ``writer``, if there is one."""
        reader = PaperReader(self._labels, dated=self.dated)
        for line, record in records(self._source, self._report):
            paper = reader.read(record)
            if isinstance(paper, Paper):
                if paper.created is None or self._first <= paper.created <= self._last:
                    yield paper
            elif writer is not None:
                identifier = record["id"].encode(errors="backslashreplace").decode()  # anything may stand in JSON
                writer.leave_out(paper, f"{self._source.name}:{line}", identifier)
        self.unknown = reader.unknown
        self._finished += 1

    def _report(self, position: int) -> None:
        if self._progress is not None:
            size = self._source.stat().st_size
            self._progress(self._finished * size + position, self._readings * size)


def _splitting(
    dev_share: float | None, test_share: float | None, dev_from: date | None, test_from: date | None, seed: int
) -> Callable[[Paper], str]:
    """Return what tells the split of a paper."""
    if dev_from is None and test_from is None:
        return split_by_hash(
            SHARE if dev_share is None else dev_share, SHARE if test_share is None else test_share, seed
        )
    if dev_from is None or test_from is None:
        given, missing = ("test", "dev") if dev_from is None else ("dev", "test")
        raise InputError(f"a day on which {given} begins, but none for {missing}", remedy=f"give --{missing}-from, too")
    if dev_share is not None or test_share is not None:
        raise InputError("both shares and days for the splits", remedy="give --dev-from and --test-from, or shares")
    return split_by_date(dev_from, test_from)


def _chosen(snapshot: _Snapshot, per_category: int, seed: int) -> Callable[[Paper], bool]:
    """Read all papers and return what tells which ones are taken."""
    limit = Limit(per_category, seed)
    for paper in snapshot.papers():
        limit.offer(paper)
    return limit.chosen()


def _warn_of_unknown(codes: Counter[str], source: Path) -> None:
    if codes:
        shown = ", ".join(f"{code!r} ({count:,})" for code, count in codes.most_common(SHOWN))
        more = f" and {len(codes) - SHOWN} more" if len(codes) > SHOWN else ""
        logger.warning("%s: categories that arXiv does not have were dropped: %s%s", source, shown, more)
