"""Build a data set from ICD-10-CM, the code book of diagnoses, which installs as a Python package."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hgclr.errors import InputError, require_extra
from hgclr.files import atomic_folder
from hgclr.taxonomy import Taxonomy

__all__ = ["build_icd10cm"]

TAXONOMY = "taxonomy.json"
TRAIN, DEV, TEST = "train.jsonl.gz", "dev.jsonl.gz", "test.jsonl.gz"

CODE_RANGE = re.compile(r"\s*\(([0-9A-Z]{3}(?:-[0-9A-Z]{3})?)\)$")
"""The bracketed codes at the end of a chapter's or block's description."""

CITED_CODE = re.compile(r"\b[A-Z][0-9][0-9A-Z]\b")
"""What looks like a category code, alone or at the start of a longer code."""


def build_icd10cm(
    output: str | Path,
    *,
    categories: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write ICD-10-CM as a data folder: the wording of a diagnosis in, its place in the book out.

    **Texts** are the descriptions and inclusion terms of categories and subcategories, without the codes that
    a 7th character extends (they repeat their parent's wording and add "initial encounter" and the like).

    **Labels** are chapters (id: range of codes, as ``A00-B99``) and blocks (``A00-A09``), with the
    descriptions as names: one tree of two levels. The headings that only announce the blocks after them
    (``C00-C96``) hold no code and are left out; the book lists their blocks beside them, not below. With
    ``categories``, the 3-character categories (``A00``) are a third level, except in a block that is a single
    category under the same code: there the block is the category.

    **Repeated texts**: texts that differ only in case and white space are one document with the labels of all
    the places where they stand, in the spelling that comes first; so no text is in two splits.

    **Splits**: the first text of every label goes to train, so that each label can be learned, and so does a
    text that is the name of a label, which models that embed the names see in training anyway. All others go
    to train, dev or test (80/10/10) by a hash of the text and the seed.

    **Leakage**: the few texts that cite a code of their own block ("any condition in I00 with pericarditis")
    spell out their label and are left out. Neighbouring codes differ by a word ("right" and "left"), so test
    texts have near twins in train: scores say how well the book was learned, not how well clinical notes
    would be coded.

    Args:
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        categories: add the level of 3-character categories.
        seed: decides the split.
        progress: called with the number of chapters done and to do.

    Returns:
        The folder, with train, dev and test as gzipped JSON lines and ``taxonomy.json``.

    Raises:
        InputError: if the folder holds files that are not from an earlier build.
        MissingExtraError: if the ``icd10cm`` extra is not installed.
    """
    require_extra("simple_icd_10_cm", extra="icd10cm", capability="Building the ICD-10-CM data set")
    output = Path(output)
    _check_replaceable(output)
    book = _Book(categories=categories)
    book.read(progress)
    taxonomy = Taxonomy(book.ids, book.parents, book.names)
    with atomic_folder(output) as folder:
        taxonomy.write(folder / TAXONOMY)
        with ExitStack() as stack:
            # No time stamp and no name inside: the same book and seed give the same bytes.
            raw = {name: stack.enter_context((folder / name).open("wb")) for name in (TRAIN, DEV, TEST)}
            files = {
                name: stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)) for name, file in raw.items()
            }
            always_train = {*book.first_texts.values(), *(name.casefold() for name in taxonomy.names)}
            for key, (text, labels) in book.texts.items():
                ids = [taxonomy.ids[index] for index in taxonomy.closure(sorted(labels))]
                row = json.dumps({"text": text, "labels": ids}, ensure_ascii=False)
                split = TRAIN if key in always_train else _split(key, seed)
                files[split].write(row.encode() + b"\n")
    return output


class _Book:
    """The labels in the order of the book, and the texts, by their case-folded form, with the deepest labels.

    Args:
        categories: whether categories are labels.
    """

    def __init__(self, *, categories: bool) -> None:
        self.ids: list[str] = []
        self.names: list[str] = []
        self.parents: list[int] = []
        self.texts: dict[str, tuple[str, set[int]]] = {}
        self.first_texts: dict[int, str] = {}
        self._categories = categories

    def read(self, progress: Callable[[int, int], None] | None) -> None:
        """Gather labels and texts from the package."""
        import simple_icd_10_cm as icd

        chapters = [code for code in icd.get_all_codes() if icd.is_chapter(code)]
        for done, chapter in enumerate(chapters, 1):
            name, code_range = _name_and_range(icd.get_description(chapter))
            top = self._label(code_range or chapter, name, -1)
            for block in icd.get_children(chapter):
                self._read_block(icd, block, top)
            if progress is not None:
                progress(done, len(chapters))

    def _read_block(self, icd: Any, block: str, parent: int) -> None:
        """Gather one block, unless it is a heading."""
        codes = icd.get_children(block, prioritize_blocks=True)
        if not codes:
            return
        name, _ = _name_and_range(icd.get_description(block, prioritize_blocks=True))
        block_label = self._label(block, name, parent)
        known = set(codes)
        for category in codes:
            label = block_label
            if self._categories and category != block:
                label = self._label(category, icd.get_description(category), block_label)
            for text in _texts(icd, category):
                if known.isdisjoint(CITED_CODE.findall(text)):
                    key = text.casefold()
                    self.first_texts.setdefault(label, key)
                    self.texts.setdefault(key, (text, set()))[1].add(label)

    def _label(self, identifier: str, name: str, parent: int) -> int:
        """Add a label and return its index."""
        self.ids.append(identifier)
        self.names.append(name)
        self.parents.append(parent)
        return len(self.ids) - 1


def _texts(icd: Any, category: str) -> Iterator[str]:
    """Yield the descriptions and inclusion terms of a category and all below it, white space made single."""
    codes = [category]
    while codes:
        code = codes.pop()
        for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
            if words := text.split():
                yield " ".join(words)
        below = icd.get_children(code)
        codes.extend(child for child in reversed(below) if not icd.is_extended_subcategory(child))


def _name_and_range(description: str) -> tuple[str, str | None]:
    """Split "Tuberculosis (A15-A19)" into the name and the codes."""
    found = CODE_RANGE.search(description)
    return (description[: found.start()], found.group(1)) if found else (description, None)


def _split(text: str, seed: int) -> str:
    """Return the file that a text belongs to."""
    digest = hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest()
    tenth = int.from_bytes(digest, "big") % 10
    return {8: DEV, 9: TEST}.get(tenth, TRAIN)


def _check_replaceable(output: Path) -> None:
    """Refuse to replace a folder that holds anything but an earlier build."""
    if output.exists() and not output.is_dir():
        raise InputError("this is a file, not a folder", path=output, remedy="name another folder")
    if not output.is_dir():
        return
    foreign = sorted(path.name for path in output.iterdir() if path.name not in {TAXONOMY, TRAIN, DEV, TEST})
    if foreign:
        raise InputError(
            f"the folder holds other files, such as {foreign[0]!r}, which would be lost",
            path=output,
            remedy="name a new or empty folder",
        )
