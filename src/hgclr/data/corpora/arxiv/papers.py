"""Turn records of arXiv's snapshot into documents: text, categories, date."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Any

from hgclr.data.corpora.arxiv.categories import ALIASES

__all__ = ["Paper", "PaperReader"]

NOTICE = r"(?:(?:this|the|our)\s+)?(?:paper|article|manuscript|submission|preprint|work|note|report|letter|version)\s+"
WITHDRAWN = re.compile(
    rf"""\W*(?:
        {NOTICE} (?:(?:has|have)\s+(?:now\s+)?been | was | is (?:\s+now|\s+being)?)
        \s+(?:\w+ly\s+)? (?:withdrawn|retracted)\b
      | (?:{NOTICE})? (?:withdrawn|retracted) (?:\s+(?:by|due|because|for|as|pending)\b | \W*$)
      | (?:the\s+)? authors?\s+(?:has|have)\s+(?:withdrawn|retracted)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""How the notices begin that stand in the place of an abstract. That the word occurs is not enough: samples, money and
claims are withdrawn, too."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper that can be used.

    Args:
        id: arXiv's.
        text: title and abstract.
        categories: ids of its categories in the tree, the primary one first.
        created: the day of the first version (GMT), if it was asked for.
    """

    id: str
    text: str
    categories: tuple[str, ...]
    created: date | None

    @property
    def primary(self) -> str:
        """The category under which the paper was submitted."""
        return self.categories[0]


class PaperReader:
    """Read papers from records.

    Args:
        known: ids of the labels.
        dated: whether papers need a date.
    """

    def __init__(self, known: frozenset[str], *, dated: bool) -> None:
        self.unknown: Counter[str] = Counter()
        """The codes that are neither labels nor aliases, with the number of papers; they are dropped."""
        self._known = known
        self._dated = dated

    def read(self, record: dict[str, Any]) -> Paper | str:
        """Return the paper of a record, or the reason why it cannot be used."""
        title, abstract = (" ".join(record[field].split()) for field in ("title", "abstract"))
        if not abstract:
            return "no abstract"
        if WITHDRAWN.match(abstract):
            return "withdrawn"
        categories = self._categories(record["categories"])
        if not categories:
            return "no known category"
        created = None
        if self._dated:
            try:
                created = parsedate_to_datetime(record["versions"][0]["created"]).date()
            except (LookupError, TypeError, ValueError):
                return "no date of the first version"
        paper = Paper(record["id"], _joined(title, abstract), categories, created)
        try:
            (paper.id + paper.text).encode()
        except UnicodeEncodeError:
            return "half a character in the text"
        return paper

    def _categories(self, codes: str) -> tuple[str, ...]:
        """Return the labels that codes stand for, each once, in their order."""
        found: dict[str, None] = {}
        for code in dict.fromkeys(codes.split()):
            label = ALIASES.get(code, code)
            if label in self._known:
                found[label] = None
            else:
                self.unknown[code] += 1
        return tuple(found)


def _joined(title: str, abstract: str) -> str:
    """Join title and abstract as two sentences."""
    if not title:
        return abstract
    return f"{title} {abstract}" if title.endswith((".", "?", "!")) else f"{title}. {abstract}"
