"""Build a data set from ICD-10-CM, the code book of diagnoses, which installs as a Python package."""

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
"""The levels of the book that have names; those below are subcategories."""
CODE_RANGE = re.compile(r"\s*\(([0-9A-Z]{3}(?:-[0-9A-Z]{3})?)\)$")
"""The bracketed codes at the end of a chapter's or block's description."""
CITED_CODE = re.compile(r"\b[A-Z][0-9][0-9A-Z]\b")
"""What looks like a category code, alone or at the start of a longer code."""


def build_icd10cm(
    output: str | Path, *, levels: int = BLOCKS, seed: int = 0, progress: Progress | None = None
) -> CorpusSummary:
    """Write ICD-10-CM as a data folder: the wording of a diagnosis in, its place in the book out.

    What becomes a text, a label and a split, and what scores on it mean, is in docs/guides/corpora/icd10cm.md. The
    texts are the same however many levels there are; texts that differ only in case and white space are one document
    with the labels of all the places where they stand, so that no text is in two splits.

    The arguments are the options of ``hgclr data prepare icd10cm``; ``progress`` is called with the number of chapters
    done and to do.
    """
    require_extra("simple_icd_10_cm", extra="icd10cm", capability="Building the ICD-10-CM data set")
    with write_corpus(output, name="icd10cm", settings={"levels": levels, "seed": seed}) as writer:
        book = _Book(levels)
        book.read(progress)
        if not CHAPTERS <= levels <= book.depth:
            raise InputError(f"{levels} levels of a book that has {book.depth}", remedy=f"ask for 1 to {book.depth}")
        writer.taxonomy = taxonomy = Taxonomy(book.ids, book.parents, book.names)
        always_train = {*book.first_texts.values(), *(name.casefold() for name in taxonomy.names)}
        for key, (text, labels) in book.texts.items():
            ids = [taxonomy.ids[index] for index in taxonomy.closure(sorted(labels))]
            split = {8: "dev", 9: "test"}.get(stable_hash(seed, key) % 10, "train")
            writer.add("train" if key in always_train else split, text, ids)
        for code, text in book.citing:
            writer.leave_out("it cites a code of its own block", code, text)
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
        """Codes and their texts that are no documents because they spell out their label."""
        self.depth = 0
        """How many levels the book has."""
        self._levels = levels

    def read(self, progress: Progress | None) -> None:
        """Gather labels and texts from the package."""
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
        """Gather a category or subcategory and all below it.

        ``label`` is the deepest label above it, ``known`` are the categories of its block, which no text must cite.
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
    """Yield the description and the inclusion terms of a code, white space made single."""
    for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
        if words := text.split():
            yield " ".join(words)


def _name_and_range(description: str) -> tuple[str, str | None]:
    """Split "Tuberculosis (A15-A19)" into the name and the codes."""
    found = CODE_RANGE.search(description)
    return (description[: found.start()], found.group(1)) if found else (description, None)
