"""Build a data folder from arXiv's metadata: titles and abstracts with groups, archives and categories."""

from __future__ import annotations

import codecs
import gzip
import heapq
import io
import json
import logging
import lzma
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager
from datetime import date
from email.utils import parsedate_to_datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from hgclr.data.folder import CorpusSummary, CorpusWriter, Progress, write_corpus
from hgclr.data.readers import is_unicode, stable_hash
from hgclr.errors import InputError
from hgclr.files import open_regular
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
HASHES = 2**64
SHARE = 0.1
"""Default share of dev and of test."""
SHOWN = 10
"""Limit on the unknown categories in the warning."""

FIELDS = ("id", "title", "abstract", "categories")
"""Text fields that every record must have."""
LONGEST_LINE = 2**24
"""Limit on the bytes of a line, so that a file without line ends is not read into memory as a whole. The longest
records, of papers with thousands of authors, have a few hundred thousand."""
REPORT_EVERY = 1000
BUFFER = 2**18
AGAIN = "download the file again, and compare its size with the publisher's"
ALIASES = {
    # Archives that became categories of others.
    "acc-phys": "physics.acc-ph",
    "adap-org": "nlin.AO",
    "alg-geom": "math.AG",
    "ao-sci": "physics.ao-ph",
    "atom-ph": "physics.atom-ph",
    "bayes-an": "physics.data-an",
    "chao-dyn": "nlin.CD",
    "chem-ph": "physics.chem-ph",
    "cmp-lg": "cs.CL",
    "comp-gas": "nlin.CG",
    "dg-ga": "math.DG",
    "funct-an": "math.FA",
    "mtrl-th": "cond-mat.mtrl-sci",
    "patt-sol": "nlin.PS",
    "plasm-ph": "physics.plasm-ph",
    "q-alg": "math.QA",
    "solv-int": "nlin.SI",
    "supr-con": "cond-mat.supr-con",
    # Categories with two codes in two archives; papers have both.
    "cs.NA": "math.NA",
    "cs.SY": "eess.SY",
    "math.IT": "cs.IT",
    "math.MP": "math-ph",
    "q-fin.EC": "econ.GN",
    "stat.TH": "math.ST",
}
"""Old and duplicate codes, with the labels of `category_tree` that they mean."""
NOTICE = r"(?:(?:this|the|our)\s+)?(?:paper|article|manuscript|submission|preprint|work|note|report|letter|version)\s+"
WITHDRAWN = re.compile(
    rf"""\W*(?:
        {NOTICE} (?:(?:has|have)\s+(?:now\s+)?been | was | is (?:\s+now|\s+being)?)
        \s+(?:\w+ly\s+)? (?:withdrawn|retracted)\b
      | (?:{NOTICE})? (?:withdrawn|retracted) (?:\s+(?:by|due|because|for|as|pending)\b | \W*$)
      | (?:the\s+)? authors?\s+(?:has|have)\s+(?:withdrawn|retracted)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a notice in place of an abstract. The word alone is not enough: samples, money and claims are also
withdrawn."""


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
) -> CorpusSummary:
    """Write arXiv's metadata snapshot as a data folder, as a stream; see docs/guides/corpora/arxiv.md.

    The arguments are the options of ``hgclr data prepare arxiv``; ``progress`` is called with the bytes read and all
    bytes.
    """
    source = Path(source)
    split = _splitting(dev_share, test_share, dev_from, test_from, seed)
    if since is not None and until is not None and since > until:
        raise InputError(f"--since {since} is after --until {until}", remedy="exchange the two")
    if per_category is not None and per_category < 1:
        raise InputError(f"--per-category is {per_category}", remedy="give at least 1")
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
    dated = any(day is not None for day in days.values())
    first, last = since or date.min, until or date.max
    readings = 1 if per_category is None else 2
    unknown: Counter[str] = Counter()
    size = source.stat().st_size if source.is_file() else 0

    def papers(reading: int, writer: CorpusWriter | None = None) -> Iterator[Paper]:
        """Yield the usable papers of the file; report the others to ``writer``, if there is one."""

        def report(position: int) -> None:
            if progress is not None:
                progress(reading * size + position, readings * size)

        unknown.clear()
        for line, record in records(source, report):
            paper = read_paper(record, paths.keys(), unknown, dated=dated)
            if isinstance(paper, Paper):
                if paper.created is None or first <= paper.created <= last:
                    yield paper
            elif writer is not None:
                identifier = record["id"].encode(errors="backslashreplace").decode()  # may have lone surrogates
                writer.leave_out(paper, f"{source.name}:{line}", identifier)

    with write_corpus(output, name="arxiv", settings=settings) as writer:
        writer.taxonomy = tree
        takes = None if per_category is None else _limit(papers(0), per_category, seed)
        for paper in papers(readings - 1, writer):
            if takes is not None and not takes(paper):
                continue
            categories = paper.categories[:1] if primary_only else paper.categories
            labels = sorted({label for category in categories for label in paths[category]})
            writer.add(split(paper), paper.text, [tree.ids[label] for label in labels], id=paper.id)
        if dated and not writer.summary.documents["train"]:
            raise InputError("no paper in train has such a date", path=source, remedy="choose other dates")
    if unknown:
        shown = ", ".join(f"{code!r} ({count:,})" for code, count in unknown.most_common(SHOWN))
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        logger.warning("%s: dropped unknown categories: %s%s", source, shown, more)
    return writer.summary


def _splitting(
    dev_share: float | None, test_share: float | None, dev_from: date | None, test_from: date | None, seed: int
) -> Callable[[Paper], str]:
    """Return a function from a paper to its split, by hash or by date."""
    if dev_from is None and test_from is None:
        dev, test = (SHARE if share is None else share for share in (dev_share, test_share))
        if dev < 0 or test < 0 or dev + test >= 1:
            remedy = "give shares of at least 0 with a sum below 1"
            raise InputError(f"the shares are {dev:g} for dev and {test:g} for test", remedy=remedy)

        def by_hash(paper: Paper) -> str:
            place = stable_hash("split", seed, paper.id) / HASHES
            return "test" if place < test else "dev" if place < test + dev else "train"

        return by_hash
    if dev_from is None or test_from is None:
        given, missing = ("test", "dev") if dev_from is None else ("dev", "test")
        raise InputError(f"--{given}-from needs --{missing}-from", remedy="give both")
    if dev_share is not None or test_share is not None:
        raise InputError("the splits have both shares and dates", remedy="give --dev-from and --test-from, or shares")
    if dev_from >= test_from:
        raise InputError(f"--dev-from {dev_from} is not before --test-from {test_from}", remedy="give an earlier day")

    def by_date(paper: Paper) -> str:
        if paper.created is None:
            raise ValueError(f"paper {paper.id!r} was read without its date")
        return "train" if paper.created < dev_from else "dev" if paper.created < test_from else "test"

    return by_date


def _limit(papers: Iterable[Paper], size: int, seed: int) -> Callable[[Paper], bool]:
    """Return a function that tells whether a paper is taken: those with the ``size`` lowest hashes of each category.

    Memory is one number for each paper that is taken.
    """
    lowest: dict[str, list[int]] = {}  # negated hashes by category: the first of each heap is the highest hash
    for paper in papers:
        heap = lowest.setdefault(paper.categories[0], [])
        value = -stable_hash("limit", seed, paper.id)
        if len(heap) < size:
            heapq.heappush(heap, value)
        else:
            heapq.heappushpop(heap, value)
    highest = {category: -heap[0] for category, heap in lowest.items()}
    room = dict.fromkeys(highest, size)

    def takes(paper: Paper) -> bool:
        primary = paper.categories[0]
        if stable_hash("limit", seed, paper.id) > highest[primary] or not room[primary]:
            return False
        room[primary] -= 1  # a paper that is in the file twice has the same hash
        return True

    return takes


def records(path: Path, report: Callable[[int], None] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and the fields of every record; call ``report`` regularly with the bytes read."""
    number = 0
    with _opened(path) as (stream, file):
        while True:
            with _damage_reported(path, number + 1):
                line = stream.readline(LONGEST_LINE + 1)
            if not line:
                break
            number += 1
            if line.strip():
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if len(line) > LONGEST_LINE:
                    remedy = "give arXiv's metadata snapshot, one JSON record per line"
                    raise InputError(f"no line end in {LONGEST_LINE:,} bytes", path=path, line=number, remedy=remedy)
                try:
                    record = json.loads(line.decode())
                except (ValueError, RecursionError) as error:
                    cut = "truncated: the file ends within a record"
                    what = f"invalid record: {error}" if line.endswith(b"\n") else cut
                    raise InputError(what, path=path, line=number, remedy=AGAIN) from None
                for field in FIELDS:
                    if not isinstance(record, dict) or not isinstance(record.get(field), str):
                        remedy = "give arXiv's metadata snapshot, one JSON record per line"
                        raise InputError(f"the record has no text {field!r}", path=path, line=number, remedy=remedy)
                yield number, record
            if report is not None and number % REPORT_EVERY == 0:
                report(file.tell())
        if report is not None:
            report(path.stat().st_size)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the snapshot; yield the unpacked stream, and the file itself, whose position shows the progress."""
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "no such file"
        raise InputError(what, path=path, remedy="give arxiv-metadata-oai-snapshot.json, or its .gz or .zip")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_regular(path))
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        stream: BinaryIO = file
        name = path.name.lower()
        if name.endswith(".gz"):
            stream = _buffered(stack.enter_context(gzip.GzipFile(fileobj=file)))
        elif name.endswith(".zip"):
            with _damage_reported(path, None):
                archive = stack.enter_context(zipfile.ZipFile(file))
                members = [member for member in archive.infolist() if member.filename.lower().endswith(".json")]
                if len(members) == 1:
                    stream = _buffered(stack.enter_context(archive.open(members[0])))
            if len(members) != 1:
                found = ", ".join(repr(member.filename) for member in members[:3]) or "none"
                what = f"the archive has {len(members)} JSON files ({found}) instead of one"
                raise InputError(what, path=path, remedy="unpack the snapshot")
        yield stream, file


def _buffered(stream: object) -> BinaryIO:
    """Return a buffered stream, which reads lines in C."""
    return io.BufferedReader(cast(io.RawIOBase, stream), BUFFER)


@contextmanager
def _damage_reported(path: Path, line: int | None) -> Iterator[None]:
    """Convert errors of gzip and zip to an `InputError` with file and line."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:  # an unsupported compression, or a password
        raise InputError(f"the archive cannot be unpacked: {error}", path=path, remedy="unpack it first") from None
    except (OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error) as error:
        here = "" if line is None else "cannot be unpacked from here on: "
        what = f"damaged or truncated archive: {here}{error or 'it ends early'}"
        raise InputError(what, path=path, line=line, remedy=AGAIN) from None


def category_tree() -> Taxonomy:
    """Return arXiv's groups, archives and categories with its codes and names: 161 labels in three levels."""
    with as_file(files("hgclr.paper.corpora") / "categories.tsv") as path:
        return Taxonomy.read(path, format="table")


class Paper(NamedTuple):
    """A usable paper: title and abstract, categories with the primary one first, and the date if it is needed.

    The categories are ids of the tree; the date is that of the first version (GMT).
    """

    id: str
    text: str
    categories: tuple[str, ...]
    created: date | None


def read_paper(record: dict[str, Any], known: Set[str], unknown: Counter[str], *, dated: bool) -> Paper | str:
    """Return the paper of a record, or the reason why it cannot be used.

    ``known`` are the label ids. Codes that are neither labels nor aliases are dropped, and counted in ``unknown``.
    Papers need a date if ``dated``.
    """
    title, abstract = (" ".join(record[field].split()) for field in ("title", "abstract"))
    if not abstract:
        return "no abstract"
    if WITHDRAWN.match(abstract):
        return "withdrawn"
    categories: dict[str, None] = {}
    for code in dict.fromkeys(record["categories"].split()):
        label = ALIASES.get(code, code)
        if label in known:
            categories[label] = None
        else:
            unknown[code] += 1
    if not categories:
        return "no known category"
    created = None
    if dated:
        try:
            created = parsedate_to_datetime(record["versions"][0]["created"]).date()
        except (LookupError, TypeError, ValueError):
            return "no date of the first version"
    title += "." * bool(title and not title.endswith((".", "?", "!")))
    paper = Paper(record["id"], f"{title} {abstract}".strip(), tuple(categories), created)
    return paper if is_unicode(paper.id + paper.text) else "a lone surrogate in the text"
