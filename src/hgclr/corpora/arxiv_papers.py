"""Turn records of arXiv's snapshot into documents: text, categories, date."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import date
from email.utils import parsedate_to_datetime
from importlib.resources import as_file, files
from typing import Any

from hgclr.taxonomy import Taxonomy

__all__ = ["ALIASES", "Paper", "PaperReader", "category_tree"]

ALIASES = {
    # Archives that became categories of others.
    "acc-phys": "physics.acc-ph",
    "adap-org": "nlin.AO",
    "alg-geom": "math.AG",
    "ao-sci": "physics.ao-ph",
    "atom-ph": "physics.atom-ph",
    "bayes-an": "physics.data-an",
    "chao-dyn": "nlin.CD",
    "chem-ph": "physics.chem-ph",
    "cmp-lg": "cs.CL",
    "comp-gas": "nlin.CG",
    "dg-ga": "math.DG",
    "funct-an": "math.FA",
    "mtrl-th": "cond-mat.mtrl-sci",
    "patt-sol": "nlin.PS",
    "plasm-ph": "physics.plasm-ph",
    "q-alg": "math.QA",
    "solv-int": "nlin.SI",
    "supr-con": "cond-mat.supr-con",
    # Categories that stand in two archives under two codes; papers carry both.
    "cs.NA": "math.NA",
    "cs.SY": "eess.SY",
    "math.IT": "cs.IT",
    "math.MP": "math-ph",
    "q-fin.EC": "econ.GN",
    "stat.TH": "math.ST",
}
"""By code that is not in the tree, the one that means the same. Every value is a label of `category_tree`."""


def category_tree() -> Taxonomy:
    """Return arXiv's groups, archives and categories: 161 labels in three levels, under arXiv's own codes and names.

    Only Physics has several archives, of which four have categories below them. The other groups are one archive each
    and go by its code (``cs``), so that their categories are on the second level. Physics, the group, is
    ``grp_physics``, as arXiv calls it, because ``physics`` is the archive.
    """
    with as_file(files("hgclr.corpora") / "categories.tsv") as path:
        return Taxonomy.read(path, format="table")


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
