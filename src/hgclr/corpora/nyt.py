"""Build a data set from the New York Times Annotated Corpus (LDC2008T19) and the literature's lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element

from hgclr.corpora.news_files import LARGEST, Article, BrokenXml, NytFiles, parse, text_of
from hgclr.data.folder_writer import Progress, Summary, write_corpus
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.drafts import Source

__all__ = ["build_nyt", "literature_text", "read_label_list"]

LISTS = {"train": "idnewnyt_train.json", "dev": "idnewnyt_val.json", "test": "idnewnyt_test.json"}
"""The lists by split; they are plain text, whatever their names say."""
TOP, ROOTS = "Top", {"Top", "Root"}
"""What every label path starts with, and what the label list calls the root, which is no label."""
YEAR_AND_FILE = re.compile(r"(?:^|/)(\d{4}/[^/]+\.xml)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A document that a list names.

    Args:
        split: ``train``, ``dev`` or ``test``.
        key: year and file name, as ``2006/1815754.xml``, by which the document is found.
        written: the path as it stands in the list.
        path: the list.
        line: the line in it.
    """

    split: str
    key: str
    written: str
    path: Path
    line: int


def read_id_lists(folder: Path) -> tuple[list[Entry], list[Entry]]:
    """Return the documents in the order of the lists, train first, and what a list names once more.

    Raises:
        InputError: if a list is missing or empty, a line is no path of an XML file, or two lists name one document.
    """
    first: dict[str, Entry] = {}
    repeated: list[Entry] = []
    for split, name in LISTS.items():
        path = folder / name
        if not path.is_file():
            raise InputError(
                "no such file", path=path, remedy=f"--ids takes the folder with {', '.join(LISTS.values())}"
            )
        entries = _read_ids(split, path)
        if not entries:
            raise InputError("the list names no document", path=path)
        for entry in entries:
            known = first.setdefault(entry.key, entry)
            if known.split != split:
                raise InputError(
                    f"{entry.written!r} is also in {known.path.name} (line {known.line})",
                    path=path,
                    line=entry.line,
                    remedy="a document may be in one split only; delete one of the lines",
                )
            if known is not entry:
                repeated.append(entry)
    return list(first.values()), repeated


def _read_ids(split: str, path: Path) -> list[Entry]:
    """Return the documents of one list."""
    entries = []
    for line, text in Source.load(path).lines():
        written = text.strip()
        found = YEAR_AND_FILE.search(written)
        if found is None:
            raise InputError(
                f"expected a path such as 'Nytimes/2006/1815754.xml', found {written[:60]!r}", path=path, line=line
            )
        entries.append(Entry(split, found.group(1), written, path, line))
    return entries


def read_label_list(path: Path) -> Taxonomy:
    """Return the tree of the label paths in a list, in its order.

    Each line is a path below ``Top``, such as ``Top/News/Sports``; it is the label's id, its last segment the name, and
    the path without that segment the parent. Lines ``Top`` and ``Root`` stand for the root and are passed over, as are
    repeated labels.

    Raises:
        InputError: if the file cannot be read, a line is no such path, a label's parent is not in the list, or there is
            no label.
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
            raise InputError(
                f"the parent of {label!r} is not in the list", path=path, line=line, remedy=f"add a line {parent!r}"
            )
        parents.append(index[parent])
        names.append(name)
    return Taxonomy(list(lines), parents, names)


LABEL_LIST = "nyt_label.vocab"


def build_nyt(
    source: str | Path,
    output: str | Path,
    *,
    ids: str | Path | None = None,
    labels: str | Path | None = None,
    text: Literal["full", "literature"] = "full",
    progress: Progress | None = None,
) -> Summary:
    """Write the New York Times corpus as a data folder: an article in, its places in the paper's sections out.

    **Documents and splits** are those of the literature's lists, in their order. A document that one list names twice
    is taken once; one that two lists name is an error, since it would leak from train to test.

    **Texts**: see `full_text` and `literature_text`.

    **Labels** are the articles' taxonomic classifiers of at least three segments, such as ``Top/News/Sports``, with
    every path that such a one starts with, as far as they are in the label list. The id of a label is its path, its
    name the last segment. ``Top`` is no label. The tree is that of the label list, in its order.

    Documents without a text, without a label or with broken XML are left out.

    Args:
        source: the folder ``nyt_corpus`` with ``data/YYYY/MM.tgz``, or its ``data``, or either unpacked.
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        ids: the folder with ``idnewnyt_train.json``, ``idnewnyt_val.json`` and ``idnewnyt_test.json``, if it is not
            ``source``.
        labels: the label list, if it is not ``nyt_label.vocab`` beside those.
        text: ``full`` or ``literature``.
        progress: called with the number of archives (or unpacked files) done and to do.

    Raises:
        InputError: if a list is missing or wrong, a listed document is not there, an archive is damaged, or the output
            folder holds files that are not from an earlier build.
    """
    source, output = Path(source), Path(output)
    ids = source if ids is None else Path(ids)
    labels = ids / LABEL_LIST if labels is None else Path(labels)
    read_text = {"full": full_text, "literature": literature_text}[text]
    settings = {"source": source, "ids": ids, "labels": labels, "text": text}
    entries, repeated = read_id_lists(ids)
    taxonomy = read_label_list(labels)
    order = {label: index for index, label in enumerate(taxonomy.ids)}
    files = NytFiles(source, (entry.key for entry in entries))
    _check_absent(entries, files.absent(), source)
    with write_corpus(output, name="nyt", settings=settings) as writer:
        writer.taxonomy = taxonomy
        # The lists are in no order that the archives know, so all documents are kept until the last is read.
        found = {article.key: _read(article, read_text, order) for article in files.read(progress)}
        _check_absent(entries, {entry.key for entry in entries}.difference(found), source)
        for entry in entries:
            document = found.pop(entry.key)
            if isinstance(document, _Unusable):
                writer.leave_out(document.reason, document.where, document.detail)
            else:
                writer.add(entry.split, document.text, document.labels, id=Path(entry.key).stem)
        for entry in repeated:
            writer.leave_out("listed twice", f"{entry.path}:{entry.line}", entry.written)
    return writer.summary


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


@dataclass(frozen=True, slots=True)
class _Usable:
    text: str
    labels: list[str]


@dataclass(frozen=True, slots=True)
class _Unusable:
    reason: str
    where: str
    detail: str | None = None


def _read(article: Article, read_text: Callable[[Element], str], order: dict[str, int]) -> _Usable | _Unusable:
    """Return what is to be written of an article.

    Args:
        article: the file.
        read_text: takes the root of its XML.
        order: the labels and their positions.
    """
    if article.data is None:
        return _Unusable(f"larger than {LARGEST // 2**20} MB", article.where)
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
    return _Usable(text, labels)


def _check_absent(entries: list[Entry], absent: set[str], source: Path) -> None:
    """Refuse lists that name documents which are not in the source."""
    missing = [entry for entry in entries if entry.key in absent]
    if not missing:
        return
    first, others = missing[0], len(missing) - 1
    more = f", nor {'is' if others == 1 else 'are'} {others:,} more of the listed documents" if others else ""
    raise InputError(
        f"{first.written!r} is not in {source}{more}",
        path=first.path,
        line=first.line,
        remedy="check that --source holds the whole corpus, all years and months of it",
    )
