"""Build a data set from Web of Science (WOS-46985), with the literature's texts, labels and splits."""

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
"""How many rows WOS-46985 has."""
CONTRACTIONS = ("'s", "'ve", "n't", "'re", "'d", "'ll")
SPACES = re.compile(r"\s{2,}")
Labels = Literal["literature", "original"]

SPREADSHEET, JSON = (".xlsx",), (".json", ".jsonl")
"""How the names of the files end, by kind."""
PUBLISHED = ("Meta-data/Data.xlsx", "Data.xlsx")
TOTAL = "wos_total.json"
PARTS = ("wos_train.json", "wos_val.json", "wos_test.json")
TEXT_KEY, LABELS = "doc_token", "doc_label"
GIT_BLOBS = {
    "wos_train.json": "7b6f0e9dd5d80a6b7dd41d2219f6f36bc3783237",
    "wos_val.json": "244bd84c65b7f2781e48064af74c1fbbe7c0a3e9",
    "wos_test.json": "9e97b3c447c929f7b02e6d0a960a44db9ce2541a",
}
"""What git calls the content of the files with which the literature's figures were made."""
COLUMNS = ("Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract")


def build_wos(
    source: Path, output: Path, *, labels: Labels = "literature", progress: Progress | None = None
) -> CorpusSummary:
    """Write Web of Science as a data folder: an abstract in, its domain and area out; see docs/guides/corpora/wos.md.

    Labels stand in the order of first appearance. A label's id is its name, or ``Domain/area`` where the name of an
    area is not the only one of its kind. A row without an abstract takes its place in the literature's split
    (`split_rows`) and is then left out.

    The arguments are the options of ``hgclr data prepare wos``; ``progress`` is called with the number of rows read
    and, where the file says so, how many there are.
    """
    if labels not in ("literature", "original"):
        raise InputError(f"labels are {labels!r}", remedy="use 'literature' or 'original'")
    files = find_files(Path(source))
    is_json = files[0].name.lower().endswith(JSON)
    if is_json and labels == "original":
        remedy = "the original ones are in Data.xlsx"
        raise InputError("the names in JSON lines are merged already", path=files[0], remedy=remedy)
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
                "%s: %s rows, not the %s of WOS-46985; this is not the split of the published figures",
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
    np.random.RandomState(7).shuffle(rows)  # as np.random.seed(7) would, without touching everyone's generator
    rest, test = train_test_split(rows, test_size=0.2, random_state=0)
    train, dev = train_test_split(rest, test_size=0.2, random_state=0)
    return {"train": train, "dev": dev, "test": test}


def clean_text(abstract: str) -> str:
    """Return an abstract as the literature has it.

    White space and then double quotes go from both ends, a space comes before every ``'s 've n't 're 'd 'll``, runs of
    white space become one space, and everything becomes lower case.

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

    Some codes (Y1, Y2) carry several names of areas. A row takes the first name among those that its code has had so
    far, in file order, that is more frequent in its domain than its own; how frequent is counted over the whole file.
    So a name keeps the rows that stand before the first of a more frequent one.
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
    """Return the tree of domains and areas, in order of first appearance, and the ids of every domain with its area."""
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

    A folder may hold several of them. The publisher's own come first, because only they have the names as printed.
    """
    if source.is_dir():
        single = [source / name for name in (*PUBLISHED, TOTAL) if (source / name).is_file()]
        parts = [source / name for name in PARTS if (source / name).is_file()]
        if not single and not parts:
            remedy = f"it must hold one of {', '.join((*PUBLISHED, TOTAL, PARTS[0]))}"
            raise InputError("no file of Web of Science in this folder", path=source, remedy=remedy)
        if not single and len(parts) < len(PARTS):
            missing = next(name for name in PARTS if source / name not in parts)
            raise InputError(f"no {missing} beside {parts[0].name}", path=source, remedy="all three splits are needed")
        if single and (others := [str(path.relative_to(source)) for path in (*single[1:], *parts)]):
            logger.warning("reading %s, not %s, which the folder holds as well", single[0], ", ".join(others))
        files = tuple(single[:1] or parts)
    elif not source.is_file():
        raise InputError("no such file or folder", path=source)
    elif source.name in PARTS:
        remedy = f"name the folder with {', '.join(PARTS)}"
        raise InputError("this is one of three files, each with its own split", path=source, remedy=remedy)
    elif not source.name.lower().endswith(SPREADSHEET + JSON):
        endings = ", ".join(SPREADSHEET + JSON)
        raise InputError("unknown format", path=source, remedy=f"its name must end in {endings}")
    else:
        files = (source,)
    for file in files:
        try:
            file.open("rb").close()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    return files


class Abstract(NamedTuple):
    """A document-to-be: the file and the row in it, the upper and the lower label, and the text, perhaps empty."""

    where: str
    domain: str
    area: str
    text: str


def read_json_lines(path: Path) -> Iterator[Abstract]:
    """Yield the rows of a file in order, as the literature's program cleaned their texts and merged their names."""
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
    """Log whether one of the three files of splits is the one that the literature uses."""
    blob, known = git_blob(path), GIT_BLOBS[path.name]
    if blob == known:
        logger.info("%s is the literature's file", path)
    else:
        logger.warning("%s is not the literature's file: git blob %s, not %s", path, blob, known)


def git_blob(path: Path) -> str:
    """Return what git calls the content of a file: the SHA-1 of ``blob``, its size, a zero byte and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


class TableRow(NamedTuple):
    """A row as printed, with the white space around its names removed; the abstract may be empty.

    The header is row 1; the code is Y1 and Y2, the publisher's numbers of the domain and of the area in it.
    """

    number: int
    code: tuple[int, int]
    domain: str
    area: str
    abstract: str


def read_table(path: Path, progress: Progress | None = None) -> Iterator[TableRow]:
    """Yield the rows of the publisher's spreadsheet in order; empty rows at its end are no rows."""

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
            raise InputError("an empty row between others", path=path, line=empty, remedy="delete it")
        cells = cells + [""] * (len(COLUMNS) - len(cells))
        if number == 1:
            found = [cell.strip() for cell in cells]
            if [name.casefold() for name in found] != [name.casefold() for name in COLUMNS]:
                remedy = f"they must be {', '.join(COLUMNS)}"
                raise InputError(f"the columns are {', '.join(found)[:200]}", path=path, line=1, remedy=remedy)
            continue
        if len(cells) != len(COLUMNS):
            what = f"{len(cells)} column{'s' * (len(cells) != 1)} instead of {len(COLUMNS)}"
            raise InputError(what, path=path, line=number, remedy="delete the others")
        first, second, _, domain, area, _, abstract = cells
        for name, value in (("Domain", domain), ("area", area)):
            if not value.strip():
                raise InputError(f"no {name}", path=path, line=number)
        code = (whole_number("Y1", first, number), whole_number("Y2", second, number))
        yield TableRow(number, code, domain.strip(), area.strip(), abstract)
        if progress is not None:
            progress(number - 1, total - 1 if total else None)
