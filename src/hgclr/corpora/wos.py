"""Build a data set from Web of Science (WOS-46985), with the literature's texts, labels and splits."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.corpora.wos_files import (
    JSON,
    Abstract,
    TableRow,
    compare_with_literature,
    find_files,
    read_json_lines,
    read_table,
)
from hgclr.data.folder_writer import SPLITS, CorpusSummary, Progress, write_corpus
from hgclr.errors import InputError, require_extra
from hgclr.taxonomy import Taxonomy

__all__ = ["build_wos", "clean_text", "label_tree", "merge_names", "split_rows"]

logger = logging.getLogger(__name__)
ROWS = 46_985
"""How many rows WOS-46985 has."""
CONTRACTIONS = ("'s", "'ve", "n't", "'re", "'d", "'ll")
SPACES = re.compile(r"\s{2,}")
Labels = Literal["literature", "original"]


def build_wos(
    source: Path, output: Path, *, labels: Labels = "literature", progress: Progress | None = None
) -> CorpusSummary:
    """Write Web of Science as a data folder: an abstract in, its domain and area out.

    **Texts** are cleaned as in the literature (`clean_text`).

    **Labels** are the domain and the area. With ``literature``, areas that share a code are merged as the published
    figures have it (`merge_names`); with ``original``, they keep the names that the publisher gave them. The order is
    that of first appearance. A label's id is its name, or ``Domain/area`` where the name of an area is not the only
    one of its kind.

    **Splits** are the literature's (`split_rows`), in its order. A row without an abstract takes its place in them and
    is then left out.

    The arguments are the options of ``hgclr data prepare wos``; ``progress`` is called with the number of rows read
    and, where the file says so, how many there are.

    Raises:
        MissingExtraError: if the ``data`` extra is not installed.
    """
    if labels not in ("literature", "original"):
        raise InputError(f"labels are {labels!r}", remedy="use 'literature' or 'original'")
    files = find_files(Path(source))
    is_json = files[0].name.lower().endswith(JSON)
    if is_json and labels == "original":
        raise InputError(
            "the names in JSON lines are merged already",
            path=files[0],
            remedy="the original ones are in Data.xlsx and Data.txt",
        )
    with write_corpus(
        output, name="wos", settings={"source": [file.name for file in files], "labels": labels}
    ) as writer:
        abstracts, splits = _read_json(files, progress) if is_json else _read_table(files[0], labels, progress)
        if len(abstracts) != ROWS:
            logger.warning(
                "%s: %s rows, not the %s of WOS-46985; this is not the split of the published figures",
                source,
                f"{len(abstracts):,}",
                f"{ROWS:,}",
            )
        writer.taxonomy, ids = label_tree((abstract.domain, abstract.area) for abstract in abstracts)
        for split, rows in splits.items():
            for abstract in map(abstracts.__getitem__, rows):
                if abstract.text:
                    writer.add(split, abstract.text, ids[abstract.domain, abstract.area])
                else:
                    writer.leave_out("no abstract", abstract.where)
    return writer.summary


def _read_table(
    path: Path, labels: Labels, progress: Progress | None
) -> tuple[list[Abstract], Mapping[str, Iterable[int]]]:
    rows = list(read_table(path, progress))
    areas = merge_names(rows) if labels == "literature" else [row.area for row in rows]
    abstracts = [
        Abstract(f"{path.name}:{row.number}", row.domain, area, clean_text(row.abstract))
        for row, area in zip(rows, areas, strict=True)
    ]
    return abstracts, _split(abstracts, path)


def _read_json(files: Sequence[Path], progress: Progress | None) -> tuple[list[Abstract], Mapping[str, Iterable[int]]]:
    abstracts: list[Abstract] = []
    ends = [0]
    for file in files:
        if len(files) > 1:
            compare_with_literature(file)
        for row in read_json_lines(file):
            abstracts.append(row)
            if progress is not None:
                progress(len(abstracts), None)
        ends.append(len(abstracts))
    if len(files) == 1:
        return abstracts, _split(abstracts, files[0])
    return abstracts, {split: range(*rows) for split, rows in zip(SPLITS, pairwise(ends), strict=True)}


def _split(abstracts: Sequence[Abstract], path: Path) -> Mapping[str, Iterable[int]]:
    if len(abstracts) < 3:
        raise InputError(f"too few rows for three splits: {len(abstracts)}", path=path)
    return split_rows(len(abstracts))


def split_rows(count: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of ``train``, ``dev`` and ``test`` in the order of the literature's files.

    The rows are shuffled, a fifth of them is the test split, and a fifth of the others the dev split.

    Raises:
        MissingExtraError: if the ``data`` extra is not installed.
    """
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
