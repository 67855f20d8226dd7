"""Build a data set from the New York Times Annotated Corpus (LDC2008T19) and the literature's lists."""

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
"""The lists by split; they are plain text, whatever their names say."""
LABEL_LIST = "nyt_label.vocab"
TOP, ROOTS = "Top", {"Top", "Root"}
"""What every label path starts with, and what the label list calls the root, which is no label."""
YEAR_AND_FILE = re.compile(r"(?:^|/)(\d{4}/[^/]+\.xml)$")
YEAR = re.compile(r"\d{4}")
ARCHIVES = (".tgz", ".tar.gz")
LARGEST = 2**26
"""Bytes a document may have. The longest articles have a few hundred thousand."""
TOO_LARGE = f"larger than {LARGEST // 2**20} MB"
SOURCE_REMEDY = "--source takes the folder nyt_corpus of LDC2008T19"


def build_nyt(
    source: str | Path,
    output: str | Path,
    *,
    ids: str | Path | None = None,
    labels: str | Path | None = None,
    text: Literal["full", "literature"] = "full",
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write the New York Times corpus as a data folder: an article in, its places in the paper's sections out.

    Documents and splits are those of the literature's lists, in their order. A document that one list names twice is
    taken once; one that two lists name is an error, since it would leak from train to test. What becomes a text and a
    label is in docs/guides/corpora/nyt.md.

    The arguments are the options of ``hgclr data prepare nyt``; ``progress`` is called with the number of archives (or
    unpacked files) done and to do.
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
        # The lists are in no order that the archives know, so all documents are kept until the last is read.
        found = {article.key: _read(article, read_text, order) for article in read_articles(source, keys, progress)}
        if missing := [one for one in listed if one.key not in found]:
            first, others = missing[0], len(missing) - 1
            more = f", nor {'is' if others == 1 else 'are'} {others:,} more of the listed documents" if others else ""
            raise InputError(
                f"{first.written!r} is not in {source}{more}",
                path=first.path,
                line=first.line,
                remedy="check that --source holds the whole corpus, all years and months of it",
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
    """A document that a list names, with the path as written there, the list, and the line in it.

    The key by which the document is found is year and file name, as ``2006/1815754.xml``.
    """

    split: str
    key: str
    written: str
    path: Path
    line: int


def read_id_lists(folder: Path) -> tuple[list[ListedArticle], list[ListedArticle]]:
    """Return the documents in the order of the lists, train first, and what a list names once more."""
    first: dict[str, ListedArticle] = {}
    repeated: list[ListedArticle] = []
    for split, name in LISTS.items():
        path = folder / name
        if not path.is_file():
            remedy = f"--ids takes the folder with {', '.join(LISTS.values())}"
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
                    remedy="a document may be in one split only; delete one of the lines",
                )
            if known is not one:
                repeated.append(one)
        if not line:
            raise InputError("the list names no document", path=path)
    return list(first.values()), repeated


def read_label_list(path: Path) -> Taxonomy:
    """Return the tree of the label paths in a list, in its order.

    Each line is a path below ``Top``, such as ``Top/News/Sports``; it is the label's id, its last segment the name, and
    the path without that segment the parent. Lines ``Top`` and ``Root`` stand for the root and are passed over, as are
    repeated labels.
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
        raise InputError("the list names no label", path=path)
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
    """Return text and labels of an article; ``order`` is the position of each label of the tree."""
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
        return _Unusable("no label of the list", article.where, ", ".join(sorted(paths)) or None)
    return text, labels


def full_text(root: Element) -> str:
    """Return all paragraphs of an article (its abstract, its lead, its full text), joined by a space.

    The lead comes twice in the files, alone and as the beginning of the full text. A paragraph outside the full text
    is left out if one of the full text, or an earlier one outside, reads the same.
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
    """Return the paragraphs of an article without the first, joined by nothing.

    The literature's program drops the first ``<p>``, which is the abstract where there is one and else the lead, and
    reads the others up to the first markup inside; here markup inside is dropped and the text behind it kept, and white
    space is made single. No tokenizer of BERT's kind sees the latter.
    """
    elements = list(root.iter("p"))[1:]
    return " ".join("".join(piece for element in elements for piece in element.itertext()).split())


def label_paths(root: Element) -> set[str]:
    """Return the taxonomic classifiers of at least three segments and all paths they start with, but ``Top``."""
    paths: set[str] = set()
    for element in root.iter("classifier"):
        segments = text_of(element).split("/")
        if element.get("type") == "taxonomic_classifier" and len(segments) >= 3:
            paths.update("/".join(segments[:length]) for length in range(1, len(segments) + 1))
    return paths - {TOP}


class Article(NamedTuple):
    """A file as it was found: its key, its place, and what is in it, or None if that is more than `LARGEST`.

    A place in an archive is ``data/2006/12.tgz:12/24/1815754.xml``.
    """

    key: str
    where: str
    data: bytes | None


def read_articles(source: Path, keys: Iterable[str], progress: Progress | None = None) -> Iterator[Article]:
    """Yield the wanted files of the corpus, given as ``2006/1815754.xml``, as far as they are there, each once.

    A file is identified by its year and its name; folders and archives in between do not matter. So ``2006/12.tgz``
    with ``12/24/1815754.xml`` in it, ``2006/12/24/1815754.xml`` and ``2006/1815754.xml`` are all the same. Where a file
    is there more than once, a single file precedes one in an archive, and otherwise the first counts.

    An archive is read as a stream, to its end, so that damage is noticed wherever it is, and nothing is unpacked;
    archives that are no longer needed are not read. The progress is called with the number of files and archives done
    and to do.
    """
    if not source.is_dir():
        raise InputError("no such folder", path=source, remedy=SOURCE_REMEDY)
    # Of the three, the last is what the literature's program leaves.
    for folder in (source, source / "data", source / "Nytimes"):
        if folder.is_dir() and any(YEAR.fullmatch(path.name) and path.is_dir() for path in folder.iterdir()):
            break
    else:
        what = "there is no folder of a year, such as 1987, in it or in its folder 'data'"
        raise InputError(what, path=source, remedy=SOURCE_REMEDY)
    wanted: dict[str, set[str]] = {}
    for key in keys:
        year, _, name = key.partition("/")
        wanted.setdefault(year, set()).add(name)
    places: list[tuple[str, Path]] = []  # of each year: its single files, then its archives
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
    """Yield name, place and content of the members that are wanted; the caller removes those that have been found."""
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
        remedy = "copy it again"
        raise InputError(f"the archive is damaged or cut short {place}: {error}", path=path, remedy=remedy) from error
