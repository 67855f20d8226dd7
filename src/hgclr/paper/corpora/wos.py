"""Build a data folder from Web of Science (WOS-46985), with the literature's texts, labels and splits."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import SPLITS, CorpusSummary, Progress, write_corpus
from hgclr.data.readers import good_json_rows, is_unicode, sheet_rows
from hgclr.errors import InputError, require_extra
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
ROWS = 46_985
"""Number of rows in WOS-46985."""
CONTRACTIONS = ("'s", "'ve", "n't", "'re", "'d", "'ll")
SPACES = re.compile(r"\s{2,}")
Labels = Literal["literature", "original"]

SPREADSHEET, JSON = (".xlsx",), (".json", ".jsonl")
"""File endings by kind."""
PUBLISHED = ("Meta-data/Data.xlsx", "Data.xlsx")
TOTAL = "wos_total.json"
PARTS = ("wos_train.json", "wos_val.json", "wos_test.json")
TEXT_KEY, LABELS = "doc_token", "doc_label"
GIT_BLOBS = {
    "wos_train.json": "7b6f0e9dd5d80a6b7dd41d2219f6f36bc3783237",
    "wos_val.json": "244bd84c65b7f2781e48064af74c1fbbe7c0a3e9",
    "wos_test.json": "9e97b3c447c929f7b02e6d0a960a44db9ce2541a",
}
"""Git's hashes of the files behind the literature's scores."""
COLUMNS = ("Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract")


def build_wos(
    source: Path, output: Path, *, labels: Labels = "literature", progress: Progress | None = None
) -> CorpusSummary:
    """Write Web of Science as a data folder: abstracts with domain and area; see docs/guides/corpora/wos.md.

    Labels are in the order of first appearance. A label's id is its name, or ``Domain/area`` if the name of an area is
    ambiguous. A row without an abstract counts in the literature's split (`split_rows`), and is then skipped.

    The arguments are the options of ``hgclr data prepare wos``; ``progress`` is called with the number of rows read
    and, if the file states it, of all rows.
    """
    if labels not in ("literature", "original"):
        raise InputError(f"unknown labels {labels!r}", remedy="use 'literature' or 'original'")
    files = find_files(Path(source))
    is_json = files[0].name.lower().endswith(JSON)
    if is_json and labels == "original":
        remedy = "give Data.xlsx, which has the original names"
        raise InputError("the area names in JSON lines are already merged", path=files[0], remedy=remedy)
    with write_corpus(
        output, name="wos", settings={"source": [file.name for file in files], "labels": labels}
    ) as writer:
        abstracts: list[Abstract] = []
        ends = [0]
        for file in files:
            if len(files) > 1:
                compare_with_literature(file)
            if is_json:
                for row in read_json_lines(file):
                    abstracts.append(row)
                    if progress is not None:
                        progress(len(abstracts), None)
            else:
                rows = list(read_table(file, progress))
                areas = merge_names(rows) if labels == "literature" else [row.area for row in rows]
                abstracts = [
                    Abstract(f"{file.name}:{row.number}", row.domain, area, clean_text(row.abstract))
                    for row, area in zip(rows, areas, strict=True)
                ]
            ends.append(len(abstracts))
        splits: Mapping[str, Iterable[int]]
        if len(files) > 1:
            splits = {split: range(*span) for split, span in zip(SPLITS, pairwise(ends), strict=True)}
        elif len(abstracts) < 3:
            raise InputError(f"too few rows for three splits: {len(abstracts)}", path=files[0])
        else:
            splits = split_rows(len(abstracts))
        if len(abstracts) != ROWS:
            logger.warning(
                "%s has %s rows, but WOS-46985 has %s: the split differs from that of the published scores",
                source,
                f"{len(abstracts):,}",
                f"{ROWS:,}",
            )
        writer.taxonomy, ids = label_tree((abstract.domain, abstract.area) for abstract in abstracts)
        for split, places in splits.items():
            for abstract in map(abstracts.__getitem__, places):
                if abstract.text:
                    writer.add(split, abstract.text, ids[abstract.domain, abstract.area])
                else:
                    writer.leave_out("no abstract", abstract.where)
    return writer.summary


def split_rows(count: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of ``train``, ``dev`` and ``test`` in the order of the literature's files."""
    require_extra("sklearn", extra="data", capability="The literature's split of Web of Science")
    from sklearn.model_selection import train_test_split

    rows = np.arange(count)
    np.random.RandomState(7).shuffle(rows)  # as after np.random.seed(7), without changing the global generator
    rest, test = train_test_split(rows, test_size=0.2, random_state=0)
    train, dev = train_test_split(rest, test_size=0.2, random_state=0)
    return {"train": train, "dev": dev, "test": test}


def clean_text(abstract: str) -> str:
    """Return an abstract as in the literature's files.

    White space and then double quotes are removed from both ends, a space is added before every ``'s 've n't 're 'd
    'll``, white space is collapsed, and everything is in lower case.

    Example:
        >>> clean_text('"We don\\'t  know."')
        "we do n't know."
    """
    text = abstract.strip().strip('"')
    for contraction in CONTRACTIONS:
        text = text.replace(contraction, " " + contraction)
    return SPACES.sub(" ", text).strip().lower()


def merge_names(rows: Sequence[TableRow]) -> list[str]:
    """Return the area of every row after the literature's merging.

    Some codes (Y1, Y2) have several area names. A row gets the first of the names that its code has had so far, in file
    order, that is more frequent in its domain than its own; frequencies are those of the whole file. So a name keeps
    its rows before the first row of a more frequent name.
    """
    counts = Counter((row.domain, row.area) for row in rows)
    names: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    merged = []
    for row in rows:
        seen = names[row.code]
        if row.area not in seen:
            seen.append(row.area)
        own = counts[row.domain, row.area]
        merged.append(next((name for name in seen if counts[row.domain, name] > own), row.area))
    return merged


def label_tree(labels: Iterable[tuple[str, str]]) -> tuple[Taxonomy, dict[tuple[str, str], tuple[str, str]]]:
    """Return the tree of domains and areas, in order of first appearance, and the ids of each domain and area."""
    areas: dict[str, list[str]] = {}
    pairs = list(dict.fromkeys(labels))
    for domain, area in pairs:
        areas.setdefault(domain, []).append(area)
    uses = Counter([*areas, *(area for _, area in pairs)])
    ids = {(domain, area): (domain, area if uses[area] == 1 else f"{domain}/{area}") for domain, area in pairs}
    ordered = [(number, domain, area) for number, domain in enumerate(areas) for area in areas[domain]]
    taxonomy = Taxonomy(
        [*areas, *(ids[domain, area][1] for _, domain, area in ordered)],
        [-1] * len(areas) + [number for number, _, _ in ordered],
        [*areas, *(area for _, _, area in ordered)],
    )
    return taxonomy, ids


def find_files(source: Path) -> tuple[Path, ...]:
    """Return one file with all rows, or the three files of the literature's train, validation and test splits.

    If a folder has several, the publisher's file comes first, because only it has the original names.
    """
    if source.is_dir():
        single = [source / name for name in (*PUBLISHED, TOTAL) if (source / name).is_file()]
        parts = [source / name for name in PARTS if (source / name).is_file()]
        if not single and not parts:
            remedy = f"give a folder with one of {', '.join((*PUBLISHED, TOTAL, PARTS[0]))}"
            raise InputError("this folder has no file of Web of Science", path=source, remedy=remedy)
        if not single and len(parts) < len(PARTS):
            missing = next(name for name in PARTS if source / name not in parts)
            raise InputError(f"{missing} is missing", path=source, remedy=f"give a folder with {', '.join(PARTS)}")
        if single and (others := [str(path.relative_to(source)) for path in (*single[1:], *parts)]):
            logger.warning("reading %s, and ignoring %s", single[0], ", ".join(others))
        files = tuple(single[:1] or parts)
    elif not source.is_file():
        raise InputError("no such file or folder", path=source)
    elif source.name in PARTS:
        remedy = f"give the folder with {', '.join(PARTS)}"
        raise InputError("this is only one of three splits", path=source, remedy=remedy)
    elif not source.name.lower().endswith(SPREADSHEET + JSON):
        endings = ", ".join(SPREADSHEET + JSON)
        raise InputError("unknown format", path=source, remedy=f"give a file that ends in one of {endings}")
    else:
        files = (source,)
    for file in files:
        try:
            file.open("rb").close()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    return files


class Abstract(NamedTuple):
    """An abstract: its file and row, its domain and area, and its text, perhaps empty."""

    where: str
    domain: str
    area: str
    text: str


def read_json_lines(path: Path) -> Iterator[Abstract]:
    """Yield the rows of a file in order; the literature's program has cleaned their texts and merged their names."""
    for row in good_json_rows(path, (TEXT_KEY, LABELS)):
        text, labels = row.values[TEXT_KEY], row.values[LABELS]
        if not isinstance(text, str):
            raise InputError(f"{TEXT_KEY} is not a string", path=path, line=row.number)
        match labels:
            case [str(domain), str(area)] if domain.strip() and area.strip():
                pass
            case _:
                raise InputError(f"{LABELS} is {labels!r}, not a domain and an area", path=path, line=row.number)
        if not is_unicode(text + domain + area):
            remedy = "correct its \\u escapes"
            raise InputError("not valid Unicode text", path=path, line=row.number, remedy=remedy)
        yield Abstract(f"{path.name}:{row.number}", domain.strip(), area.strip(), text.strip().lower())


def compare_with_literature(path: Path) -> None:
    """Log whether one of the three splits is the literature's file."""
    blob, known = git_blob(path), GIT_BLOBS[path.name]
    if blob == known:
        logger.info("%s is the literature's file", path)
    else:
        logger.warning("%s is not the literature's file: its git blob is %s instead of %s", path, blob, known)


def git_blob(path: Path) -> str:
    """Return git's hash of a file: the SHA-1 of ``blob``, its size, a zero byte and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


class TableRow(NamedTuple):
    """A row of the spreadsheet, with white space around its names removed; the abstract may be empty.

    The header is row 1; the code is Y1 and Y2, the publisher's numbers of the domain and of its area.
    """

    number: int
    code: tuple[int, int]
    domain: str
    area: str
    abstract: str


def read_table(path: Path, progress: Progress | None = None) -> Iterator[TableRow]:
    """Yield the rows of the publisher's spreadsheet in order, without empty rows at its end."""

    def whole_number(column: str, cell: str, line: int) -> int:
        digits = cell.strip()
        if not (digits.isascii() and digits.isdigit()):
            raise InputError(f"{column} is {cell!r}, not a whole number", path=path, line=line)
        return int(digits)

    empty: int | None = None
    for number, (cells, total) in enumerate(sheet_rows(path), 1):
        if not any(cell.strip() for cell in cells):
            empty = empty or number
            continue
        if empty is not None:
            raise InputError("the row is empty", path=path, line=empty, remedy="delete it")
        cells = cells + [""] * (len(COLUMNS) - len(cells))
        if number == 1:
            found = [cell.strip() for cell in cells]
            if [name.casefold() for name in found] != [name.casefold() for name in COLUMNS]:
                remedy = f"name them {', '.join(COLUMNS)}"
                raise InputError(f"the columns are {', '.join(found)[:200]}", path=path, line=1, remedy=remedy)
            continue
        if len(cells) != len(COLUMNS):
            what = f"{len(cells)} column{'s' * (len(cells) != 1)} instead of {len(COLUMNS)}"
            raise InputError(what, path=path, line=number, remedy="delete the extra columns")
        first, second, _, domain, area, _, abstract = cells
        for name, value in (("Domain", domain), ("area", area)):
            if not value.strip():
                raise InputError(f"{name} is empty", path=path, line=number)
        code = (whole_number("Y1", first, number), whole_number("Y2", second, number))
        yield TableRow(number, code, domain.strip(), area.strip(), abstract)
        if progress is not None:
            progress(number - 1, total - 1 if total else None)
