"""Build a data folder from the New York Times Annotated Corpus (LDC2008T19) and the literature's lists."""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

from hgclr.data.folder import CorpusSummary, Progress, write_corpus
from hgclr.errors import InputError
from hgclr.paper.corpora import BrokenXml, parse, text_of
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.entries import Source

LISTS = {"train": "idnewnyt_train.json", "dev": "idnewnyt_val.json", "test": "idnewnyt_test.json"}
"""The lists by split, which are plain text in spite of their names."""
LABEL_LIST = "nyt_label.vocab"
TOP, ROOTS = "Top", {"Top", "Root"}
"""The start of every label path, and the names of the root in the label list, which are not labels."""
YEAR_AND_FILE = re.compile(r"(?:^|/)(\d{4}/[^/]+\.xml)$")
YEAR = re.compile(r"\d{4}")
ARCHIVES = (".tgz", ".tar.gz")
LARGEST = 2**26
"""Limit on the bytes of a document; the longest articles have a few hundred thousand."""
TOO_LARGE = f"larger than {LARGEST // 2**20} MB"
SOURCE_REMEDY = "give the folder nyt_corpus of LDC2008T19 as --source"


def build_nyt(
    source: str | Path,
    output: str | Path,
    *,
    ids: str | Path | None = None,
    labels: str | Path | None = None,
    text: Literal["full", "literature"] = "full",
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write the New York Times corpus as a data folder: articles with sections; see docs/guides/corpora/nyt.md.

    Documents and splits are those of the literature's lists, in their order. A document that a list names twice is
    taken once; one in two lists is an error, because it would leak from train to test.

    The arguments are the options of ``hgclr data prepare nyt``; ``progress`` is called with the number of finished
    archives (or unpacked files) and of all.
    """
    source, output = Path(source), Path(output)
    ids = source if ids is None else Path(ids)
    labels = ids / LABEL_LIST if labels is None else Path(labels)
    read_text = {"full": full_text, "literature": literature_text}[text]
    settings = {"source": source, "ids": ids, "labels": labels, "text": text}
    listed, repeated = read_id_lists(ids)
    taxonomy = read_label_list(labels)
    order = {label: index for index, label in enumerate(taxonomy.ids)}
    keys = dict.fromkeys(one.key for one in listed)
    with write_corpus(output, name="nyt", settings=settings) as writer:
        writer.taxonomy = taxonomy
        # Lists and archives have different orders, so all documents are kept until the last is read.
        found = {article.key: _read(article, read_text, order) for article in read_articles(source, keys, progress)}
        if missing := [one for one in listed if one.key not in found]:
            first, others = missing[0], len(missing) - 1
            more = f" and {others:,} more documents are" if others else " is"
            raise InputError(
                f"{first.written!r}{more} not in {source}",
                path=first.path,
                line=first.line,
                remedy="check that --source has all years and months of the corpus",
            )
        for one in listed:
            document = found.pop(one.key)
            if isinstance(document, _Unusable):
                writer.leave_out(*document)
            else:
                writer.add(one.split, *document, id=Path(one.key).stem)
        for one in repeated:
            writer.leave_out("listed twice", f"{one.path}:{one.line}", one.written)
    return writer.summary


class ListedArticle(NamedTuple):
    """A document of a list, with its path in the list, and the list's file and line.

    The key identifies a document by year and file name, as ``2006/1815754.xml``.
    """

    split: str
    key: str
    written: str
    path: Path
    line: int


def read_id_lists(folder: Path) -> tuple[list[ListedArticle], list[ListedArticle]]:
    """Return the documents in the order of the lists, train first, and repeated entries."""
    first: dict[str, ListedArticle] = {}
    repeated: list[ListedArticle] = []
    for split, name in LISTS.items():
        path = folder / name
        if not path.is_file():
            remedy = f"give the folder with {', '.join(LISTS.values())} as --ids"
            raise InputError("no such file", path=path, remedy=remedy)
        line = 0
        for line, text in Source.load(path).lines():
            written = text.strip()
            key = YEAR_AND_FILE.search(written)
            if key is None:
                what = f"expected a path such as 'Nytimes/2006/1815754.xml', found {written[:60]!r}"
                raise InputError(what, path=path, line=line)
            one = ListedArticle(split, key.group(1), written, path, line)
            known = first.setdefault(one.key, one)
            if known.split != split:
                raise InputError(
                    f"{written!r} is also in {known.path.name} (line {known.line})",
                    path=path,
                    line=line,
                    remedy="delete one of the lines: a document belongs to one split",
                )
            if known is not one:
                repeated.append(one)
        if not line:
            raise InputError("the list has no document", path=path)
    return list(first.values()), repeated


def read_label_list(path: Path) -> Taxonomy:
    """Return the tree of the label paths in a list, in its order.

    Each line is a path below ``Top``, such as ``Top/News/Sports``: it is the label's id, its last segment the name, and
    the rest the parent's id. The lines ``Top`` and ``Root``, for the root, and repeated labels are skipped.
    """
    lines: dict[str, int] = {}
    for line, text in Source.load(path).lines():
        label = text.strip()
        if label in ROOTS:
            continue
        top, *segments = label.split("/")
        if top != TOP or not all(segments) or not segments:
            raise InputError(
                f"expected a label path such as 'Top/News/Sports', found {label[:60]!r}", path=path, line=line
            )
        lines.setdefault(label, line)
    if not lines:
        raise InputError("the list has no label", path=path)
    index = {label: position for position, label in enumerate(lines)} | {TOP: -1}
    parents, names = [], []
    for label, line in lines.items():
        parent, _, name = label.rpartition("/")
        if parent not in index:
            remedy = f"add a line {parent!r}"
            raise InputError(f"the parent of {label!r} is not in the list", path=path, line=line, remedy=remedy)
        parents.append(index[parent])
        names.append(name)
    return Taxonomy(list(lines), parents, names)


class _Unusable(NamedTuple):
    reason: str
    where: str
    detail: str | None = None


def _read(
    article: Article, read_text: Callable[[Element], str], order: dict[str, int]
) -> tuple[str, list[str]] | _Unusable:
    """Return text and labels of an article; ``order`` is the index of each label in the tree."""
    if article.data is None:
        return _Unusable(TOO_LARGE, article.where)
    try:
        root = parse(article.data)
    except BrokenXml as error:
        return _Unusable("broken XML", article.where, str(error))
    text = read_text(root)
    if not text:
        return _Unusable("no text", article.where)
    paths = label_paths(root)
    labels = sorted(paths & order.keys(), key=order.__getitem__)
    if not labels:
        return _Unusable("no label in the label list", article.where, ", ".join(sorted(paths)) or None)
    return text, labels


def full_text(root: Element) -> str:
    """Return all paragraphs of an article (abstract, lead, full text), joined by spaces.

    The files have the lead twice, alone and as the beginning of the full text. A paragraph outside the full text is
    skipped if the full text, or an earlier paragraph outside, has the same text.
    """
    body = {element for block in root.iterfind(".//block[@class='full_text']") for element in block.iter("p")}
    seen = {text_of(element) for element in body}
    texts = []
    for element in root.iter("p"):
        text = text_of(element)
        if text and (element in body or text not in seen):
            texts.append(text)
            seen.add(text)
    return " ".join(texts)


def literature_text(root: Element) -> str:
    """Return the paragraphs of an article without the first, joined without spaces.

    The literature's program drops the first ``<p>``, which is the abstract or else the lead, and reads the others up to
    their first markup. Here the text after markup is kept, and white space is collapsed, which BERT's tokenizers do
    anyway.
    """
    elements = list(root.iter("p"))[1:]
    return " ".join("".join(piece for element in elements for piece in element.itertext()).split())


def label_paths(root: Element) -> set[str]:
    """Return the taxonomic classifiers of at least three segments with all their prefixes except ``Top``."""
    paths: set[str] = set()
    for element in root.iter("classifier"):
        segments = text_of(element).split("/")
        if element.get("type") == "taxonomic_classifier" and len(segments) >= 3:
            paths.update("/".join(segments[:length]) for length in range(1, len(segments) + 1))
    return paths - {TOP}


class Article(NamedTuple):
    """A file: its key, its path, and its content, or None if that is larger than `LARGEST`.

    A path in an archive is written ``data/2006/12.tgz:12/24/1815754.xml``.
    """

    key: str
    where: str
    data: bytes | None


def read_articles(source: Path, keys: Iterable[str], progress: Progress | None = None) -> Iterator[Article]:
    """Yield the files of the corpus with these keys, such as ``2006/1815754.xml``, each once; missing ones are skipped.

    A file is identified by its year and its name; folders and archives in between do not matter. So ``2006/12.tgz``
    with ``12/24/1815754.xml`` in it, ``2006/12/24/1815754.xml`` and ``2006/1815754.xml`` are the same. Of several
    copies, a single file precedes one in an archive, and otherwise the first counts.

    An archive is read as a stream to its end, so that damage anywhere is noticed, and nothing is unpacked; archives
    that are no longer needed are not read. ``progress`` is called with the number of finished files and archives, and
    of all.
    """
    if not source.is_dir():
        raise InputError("no such folder", path=source, remedy=SOURCE_REMEDY)
    # The literature's program writes Nytimes.
    for folder in (source, source / "data", source / "Nytimes"):
        if folder.is_dir() and any(YEAR.fullmatch(path.name) and path.is_dir() for path in folder.iterdir()):
            break
    else:
        what = "neither this folder nor its folder 'data' has a folder for a year, such as 1987"
        raise InputError(what, path=source, remedy=SOURCE_REMEDY)
    wanted: dict[str, set[str]] = {}
    for key in keys:
        year, _, name = key.partition("/")
        wanted.setdefault(year, set()).add(name)
    places: list[tuple[str, Path]] = []  # for each year: single files, then archives
    for year, names in sorted(wanted.items()):
        loose: dict[str, Path] = {}
        archives: list[Path] = []
        for parent, folders, found in os.walk(folder / year):
            folders.sort()
            for name in sorted(found):
                if name in names:
                    loose.setdefault(name, Path(parent, name))
                elif name.endswith(ARCHIVES) and not name.startswith("."):
                    archives.append(Path(parent, name))
        places += [(year, path) for path in (*loose.values(), *archives)]
    for done, (year, path) in enumerate(places, 1):
        missing = wanted[year]
        if path.name in missing:
            missing.discard(path.name)
            try:
                data = path.read_bytes() if path.stat().st_size <= LARGEST else None
            except OSError as error:
                raise InputError(f"the file cannot be read: {error.strerror}", path=path) from error
            yield Article(f"{year}/{path.name}", str(path), data)
        elif missing:
            for name, where, data in _read_archive(path, missing):
                missing.discard(name)
                yield Article(f"{year}/{name}", where, data)
        if progress is not None:
            progress(done, len(places))


def _read_archive(path: Path, wanted: set[str]) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield name, path and content of the wanted members; the caller removes found members from ``wanted``."""
    place = "before the first member"
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive, 1):
                name = member.name.rpartition("/")[2]
                if name in wanted and member.isreg() and (content := archive.extractfile(member)) is not None:
                    data = content.read() if member.size <= LARGEST else None
                    yield name, f"{path}:{member.name}", data
                place = f"after member {number:,}, {member.name!r}"
            while stream.read(2**20):  # the checksum is at the end
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        remedy = "copy it again"
        raise InputError(f"the archive is damaged or truncated {place}: {error}", path=path, remedy=remedy) from error
