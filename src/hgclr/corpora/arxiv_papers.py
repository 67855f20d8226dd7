"""Read arXiv's metadata snapshot, packed or not, and turn its records into documents: text, categories, date."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from email.utils import parsedate_to_datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from hgclr.errors import InputError
from hgclr.files import open_regular
from hgclr.taxonomy import Taxonomy

__all__ = ["ALIASES", "Paper", "PaperReader", "category_tree", "records"]

FIELDS = ("id", "title", "abstract", "categories")
"""What every record must have, as text."""
LONGEST_LINE = 2**24
"""Bytes; the longest records, of papers with thousands of authors, have some hundred thousand. A file without line
ends would otherwise be pulled into memory whole."""
REPORT_EVERY = 1000
BUFFER = 2**18
AGAIN = "get the file again and compare its size with the publisher's"
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
    # Categories that stand in two archives under two codes; papers carry both.
    "cs.NA": "math.NA",
    "cs.SY": "eess.SY",
    "math.IT": "cs.IT",
    "math.MP": "math-ph",
    "q-fin.EC": "econ.GN",
    "stat.TH": "math.ST",
}
"""By code that is not in the tree, the one that means the same. Every value is a label of `category_tree`."""
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
"""How the notices begin that stand in the place of an abstract. That the word occurs is not enough: samples, money and
claims are withdrawn, too."""


def records(path: Path, report: Callable[[int], None] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the fields of every record.

    Args:
        path: the snapshot; the name ends in ``.gz`` or ``.zip`` if it is packed.
        report: called now and then, and at the end, with the bytes of the file that have been read.
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
                stream = _buffered(stack.enter_context(archive.open(_only_member(archive, path))))
        yield stream, file


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
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
    except (NotImplementedError, RuntimeError) as error:  # a packing that Python does not know, or a password
        raise InputError(f"the archive cannot be unpacked: {error}", path=path, remedy="unpack it yourself") from None
    except (OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error) as error:
        here = "" if line is None else "cannot be unpacked from here on: "
        what = f"damaged or truncated archive: {here}{error or 'it ends early'}"
        raise InputError(what, path=path, line=line, remedy=AGAIN) from None


def category_tree() -> Taxonomy:
    """Return arXiv's groups, archives and categories: 161 labels in three levels, under arXiv's own codes and names.

    Only Physics has several archives, of which four have categories below them. The other groups are one archive each
    and go by its code (``cs``), so that their categories are on the second level. Physics, the group, is
    ``grp_physics``, as arXiv calls it, because ``physics`` is the archive.
    """
    with as_file(files("hgclr.corpora") / "categories.tsv") as path:
        return Taxonomy.read(path, format="table")


class Paper(NamedTuple):
    """A paper that can be used: title and abstract, its categories, the primary one first, and its day, if asked for.

    The categories are ids of the tree; the day is that of the first version (GMT).
    """

    id: str
    text: str
    categories: tuple[str, ...]
    created: date | None

    @property
    def primary(self) -> str:
        """The category under which the paper was submitted."""
        return self.categories[0]


class PaperReader:
    """Read papers from records; ``known`` are the ids of the labels, ``dated`` says whether papers need a date."""

    def __init__(self, known: frozenset[str], *, dated: bool) -> None:
        self.unknown: Counter[str] = Counter()
        """The codes that are neither labels nor aliases, with the number of papers; they are dropped."""
        self._known = known
        self._dated = dated

    def read(self, record: dict[str, Any]) -> Paper | str:
        """Return the paper of a record, or the reason why it cannot be used."""
        title, abstract = (" ".join(record[field].split()) for field in ("title", "abstract"))
        if not abstract:
            return "no abstract"
        if WITHDRAWN.match(abstract):
            return "withdrawn"
        categories = self._categories(record["categories"])
        if not categories:
            return "no known category"
        created = None
        if self._dated:
            try:
                created = parsedate_to_datetime(record["versions"][0]["created"]).date()
            except (LookupError, TypeError, ValueError):
                return "no date of the first version"
        title += "." * bool(title and not title.endswith((".", "?", "!")))
        paper = Paper(record["id"], f"{title} {abstract}".strip(), categories, created)
        try:
            (paper.id + paper.text).encode()
        except UnicodeEncodeError:
            return "half a character in the text"
        return paper

    def _categories(self, codes: str) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for code in dict.fromkeys(codes.split()):
            label = ALIASES.get(code, code)
            if label in self._known:
                found[label] = None
            else:
                self.unknown[code] += 1
        return tuple(found)
