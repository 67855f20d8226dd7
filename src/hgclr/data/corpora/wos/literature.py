"""What the literature does to Web of Science: clean the text, merge names of areas, split the rows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hgclr.data.corpora.wos.tables import TableRow
from hgclr.errors import require_extra

__all__ = ["clean_text", "merge_names", "split_rows"]

CONTRACTIONS = ("'s", "'ve", "n't", "'re", "'d", "'ll")

SPACES = re.compile(r"\s{2,}")


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

    Args:
        rows: all rows, in file order.
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


def split_rows(count: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of ``train``, ``dev`` and ``test`` in the order of the literature's files.

    The rows are shuffled, a fifth of them is the test split, and a fifth of the others the dev split.

    Args:
        count: how many rows there are, at least three.

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
