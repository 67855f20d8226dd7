"""Data set from ICD-10-CM, the code book of diagnoses, which is available as a Python package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hgclr.data.folder import CorpusSummary, Progress, write_corpus
from hgclr.data.readers import stable_hash
from hgclr.errors import InputError, require_extra
from hgclr.taxonomy import Taxonomy

__all__ = ["build_icd10cm"]

CHAPTERS, BLOCKS, CATEGORIES = 1, 2, 3
"""The named levels of the book; those below are subcategories."""
CODE_RANGE = re.compile(r"\s*\(([0-9A-Z]{3}(?:-[0-9A-Z]{3})?)\)$")
"""The codes in parentheses at the end of a chapter's or block's description."""
CITED_CODE = re.compile(r"\b[A-Z][0-9][0-9A-Z]\b")
"""A category code, alone or at the start of a longer code."""


def build_icd10cm(
    output: str | Path, *, levels: int = BLOCKS, seed: int = 0, progress: Progress | None = None
) -> CorpusSummary:
    """Write ICD-10-CM as a data folder: texts are wordings of diagnoses, labels their places in the book.

    docs/guides/corpora/icd10cm.md describes texts, labels, splits and the meaning of scores. The texts are the same
    for any number of levels. Texts that differ only in case and white space are one document with the labels of all
    their places, so that no text is in two splits.

    The arguments are the options of ``hgclr data prepare icd10cm``; ``progress`` gets the chapters done and in total.
    """
    require_extra("simple_icd_10_cm", extra="icd10cm", capability="Building the ICD-10-CM data set")
    with write_corpus(output, name="icd10cm", settings={"levels": levels, "seed": seed}) as writer:
        book = _Book(levels)
        book.read(progress)
        if not CHAPTERS <= levels <= book.depth:
            raise InputError(f"{levels} levels, but the book has {book.depth}", remedy=f"choose 1 to {book.depth}")
        writer.taxonomy = taxonomy = Taxonomy(book.ids, book.parents, book.names)
        always_train = {*book.first_texts.values(), *(name.casefold() for name in taxonomy.names)}
        for key, (text, labels) in book.texts.items():
            ids = [taxonomy.ids[index] for index in taxonomy.closure(sorted(labels))]
            split = {8: "dev", 9: "test"}.get(stable_hash(seed, key) % 10, "train")
            writer.add("train" if key in always_train else split, text, ids)
        for code, text in book.citing:
            writer.leave_out("the text contains a code of its block", code, text)
    return writer.summary


class _Book:
    """The labels in the order of the book, and the texts, by their case-folded form, with the deepest labels."""

    def __init__(self, levels: int) -> None:
        self.ids: list[str] = []
        self.names: list[str] = []
        self.parents: list[int] = []
        self.texts: dict[str, tuple[str, set[int]]] = {}
        self.first_texts: dict[int, str] = {}
        self.citing: list[tuple[str, str]] = []
        """Codes and texts that are left out because the text cites a code of its block."""
        self.depth = 0
        """The number of levels of the book."""
        self._levels = levels

    def read(self, progress: Progress | None) -> None:
        """Collect labels and texts from the package."""
        import simple_icd_10_cm as icd

        chapters = [code for code in icd.get_all_codes() if icd.is_chapter(code)]
        for done, chapter in enumerate(chapters, 1):
            name, code_range = _name_and_range(icd.get_description(chapter))
            top = self._label(code_range or chapter, name, -1)
            for block in icd.get_children(chapter):
                label, categories = top, icd.get_children(block, prioritize_blocks=True)
                if categories and self._levels >= BLOCKS:
                    name, _ = _name_and_range(icd.get_description(block, prioritize_blocks=True))
                    label = self._label(block, name, top)
                for category in categories:
                    self._read_code(icd, category, CATEGORIES, label, block, set(categories))
            if progress is not None:
                progress(done, len(chapters))

    def _read_code(self, icd: Any, code: str, level: int, label: int, block: str, known: set[str]) -> None:
        """Collect a category or subcategory and all below it.

        ``label`` is its deepest ancestor, ``known`` are the categories of its block, which no text must cite.
        """
        self.depth = max(self.depth, level)
        if level <= self._levels and code != block:
            label = self._label(code, icd.get_description(code), label)
        for text in _texts(icd, code):
            if not known.isdisjoint(CITED_CODE.findall(text)):
                self.citing.append((code, text))
                continue
            key = text.casefold()
            self.first_texts.setdefault(label, key)
            self.texts.setdefault(key, (text, set()))[1].add(label)
        for below in icd.get_children(code):
            if not icd.is_extended_subcategory(below):
                self._read_code(icd, below, level + 1, label, block, known)

    def _label(self, identifier: str, name: str, parent: int) -> int:
        self.ids.append(identifier)
        self.names.append(name)
        self.parents.append(parent)
        return len(self.ids) - 1


def _texts(icd: Any, code: str) -> Iterator[str]:
    """Yield the description and the inclusion terms of a code, with single spaces."""
    for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
        if words := text.split():
            yield " ".join(words)


def _name_and_range(description: str) -> tuple[str, str | None]:
    """Split "Tuberculosis (A15-A19)" into the name and the codes."""
    found = CODE_RANGE.search(description)
    return (description[: found.start()], found.group(1)) if found else (description, None)
