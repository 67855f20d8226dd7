"""Build a data set from the New York Times Annotated Corpus (LDC2008T19) and the literature's lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element

from hgclr.data.corpora.news_xml import BrokenXml, parse, text_of
from hgclr.data.corpora.nyt.files import LARGEST, Article, NytFiles
from hgclr.data.corpora.nyt.lists import TOP, Entry, read_id_lists, read_label_list
from hgclr.data.corpora.writing import Progress, Summary, write_corpus
from hgclr.errors import InputError

__all__ = ["build_nyt", "full_text", "label_paths", "literature_text"]

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
