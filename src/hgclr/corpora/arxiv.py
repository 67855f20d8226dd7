"""Build a data set from arXiv's metadata: title and abstract in, groups, archives and categories out."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path

from hgclr.corpora.arxiv_papers import Paper, PaperReader, category_tree, records
from hgclr.data.folder_writer import CorpusSummary, CorpusWriter, Progress, write_corpus
from hgclr.data.texts import stable_hash
from hgclr.errors import InputError

__all__ = ["build_arxiv"]

logger = logging.getLogger(__name__)
HASHES = 2**64
SHARE = 0.1
"""Of dev and of test, unless the user says otherwise."""
SHOWN = 10
"""How many unknown categories the warning names."""


def build_arxiv(
    source: str | Path,
    output: str | Path,
    *,
    since: date | None = None,
    until: date | None = None,
    per_category: int | None = None,
    primary_only: bool = False,
    dev_share: float | None = None,
    test_share: float | None = None,
    dev_from: date | None = None,
    test_from: date | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write arXiv's metadata snapshot as a data folder, in flat memory.

    **Texts** are title and abstract as two sentences, white space made single. Papers without an abstract, or with a
    note of withdrawal in its place, are left out.

    **Labels** are all categories of a paper with the archives and groups above them (`category_tree`); codes of old
    archives and double codes become what they are today (`ALIASES`), and a bare ``astro-ph`` stays what it says. Codes
    that are not arXiv's are dropped with a warning.

    **Splits** are drawn by a hash of the paper's id and the seed, or made by the day of the first version.

    The arguments are the options of ``hgclr data prepare arxiv``; ``progress`` is called with the bytes read and to
    read.
    """
    source = Path(source)
    split = _splitting(dev_share, test_share, dev_from, test_from, seed)
    if since is not None and until is not None and since > until:
        raise InputError(f"no day is both since {since} and until {until}", remedy="exchange the two")
    if per_category is not None and per_category < 1:
        raise InputError(f"at most {per_category} papers of a category", remedy="give at least 1")
    tree = category_tree()
    paths = {label: tree.path(index).tolist() for index, label in enumerate(tree.ids)}
    days = {"since": since, "until": until, "dev_from": dev_from, "test_from": test_from}
    settings = {
        "source": source.name,
        **{name: None if day is None else day.isoformat() for name, day in days.items()},
        "per_category": per_category,
        "primary_only": primary_only,
        "dev_share": dev_share,
        "test_share": test_share,
        "seed": seed,
    }
    with write_corpus(output, name="arxiv", settings=settings) as writer:
        writer.taxonomy = tree
        snapshot = _Snapshot(source, frozenset(paths), days, progress, readings=1 if per_category is None else 2)
        takes = None if per_category is None else _limit(snapshot.papers(), per_category, seed)
        for paper in snapshot.papers(writer):
            if takes is not None and not takes(paper):
                continue
            categories = paper.categories[:1] if primary_only else paper.categories
            labels = sorted({label for category in categories for label in paths[category]})
            writer.add(split(paper), paper.text, [tree.ids[label] for label in labels], id=paper.id)
        if snapshot.dated and not writer.summary.documents["train"]:
            raise InputError("the dates leave no paper for training", path=source, remedy="choose other dates")
    if codes := snapshot.unknown:
        shown = ", ".join(f"{code!r} ({count:,})" for code, count in codes.most_common(SHOWN))
        more = f" and {len(codes) - SHOWN} more" if len(codes) > SHOWN else ""
        logger.warning("%s: categories that arXiv does not have were dropped: %s%s", source, shown, more)
    return writer.summary


class _Snapshot:
    """The papers of the right time, read as often as they are needed.

    Of the days, ``since`` and ``until`` bound the time, and any of them makes dates necessary. The progress is called
    with the bytes read and to read in all readings.
    """

    def __init__(
        self,
        source: Path,
        labels: frozenset[str],
        days: dict[str, date | None],
        progress: Progress | None,
        *,
        readings: int,
    ) -> None:
        self.dated = any(day is not None for day in days.values())
        self.unknown: Counter[str] = Counter()
        """By code that is not arXiv's, how many papers carry it; known after a reading."""
        self._source, self._labels, self._progress, self._readings = source, labels, progress, readings
        self._first, self._last = days["since"] or date.min, days["until"] or date.max
        self._finished = 0

    def papers(self, writer: CorpusWriter | None = None) -> Iterator[Paper]:
        """Read the file once; record what cannot be used with ``writer``, if there is one."""
        reader = PaperReader(self._labels, dated=self.dated)
        for line, record in records(self._source, self._report):
            paper = reader.read(record)
            if isinstance(paper, Paper):
                if paper.created is None or self._first <= paper.created <= self._last:
                    yield paper
            elif writer is not None:
                identifier = record["id"].encode(errors="backslashreplace").decode()  # anything may stand in JSON
                writer.leave_out(paper, f"{self._source.name}:{line}", identifier)
        self.unknown = reader.unknown
        self._finished += 1

    def _report(self, position: int) -> None:
        if self._progress is not None:
            size = self._source.stat().st_size
            self._progress(self._finished * size + position, self._readings * size)


def _splitting(
    dev_share: float | None, test_share: float | None, dev_from: date | None, test_from: date | None, seed: int
) -> Callable[[Paper], str]:
    """Return what tells the split of a paper, by hash or by date."""
    if dev_from is None and test_from is None:
        dev, test = (SHARE if share is None else share for share in (dev_share, test_share))
        if dev < 0 or test < 0 or dev + test >= 1:
            remedy = "give shares of at least 0 whose sum is below 1"
            raise InputError(f"a share of {dev:g} for dev and {test:g} for test", remedy=remedy)

        def by_hash(paper: Paper) -> str:
            place = stable_hash("split", seed, paper.id) / HASHES
            return "test" if place < test else "dev" if place < test + dev else "train"

        return by_hash
    if dev_from is None or test_from is None:
        given, missing = ("test", "dev") if dev_from is None else ("dev", "test")
        raise InputError(f"a day on which {given} begins, but none for {missing}", remedy=f"give --{missing}-from, too")
    if dev_share is not None or test_share is not None:
        raise InputError("both shares and days for the splits", remedy="give --dev-from and --test-from, or shares")
    if dev_from >= test_from:
        raise InputError(f"dev begins on {dev_from}, test on {test_from}", remedy="let dev begin before test")

    def by_date(paper: Paper) -> str:
        if paper.created is None:
            raise ValueError(f"paper {paper.id!r} was read without its date")
        return "train" if paper.created < dev_from else "dev" if paper.created < test_from else "test"

    return by_date


def _limit(papers: Iterable[Paper], size: int, seed: int) -> Callable[[Paper], bool]:
    """Return what tells, paper by paper in a second reading, which ones are taken: of each category the lowest hashes.

    In between, one number is kept for every paper that will be taken, and none for the others.
    """
    lowest: dict[str, list[int]] = {}  # by category, the hashes so far, negated: the first of each heap is the highest
    for paper in papers:
        heap = lowest.setdefault(paper.primary, [])
        value = -stable_hash("limit", seed, paper.id)
        if len(heap) < size:
            heapq.heappush(heap, value)
        else:
            heapq.heappushpop(heap, value)
    highest = {category: -heap[0] for category, heap in lowest.items()}
    room = dict.fromkeys(highest, size)

    def takes(paper: Paper) -> bool:
        if stable_hash("limit", seed, paper.id) > highest[paper.primary] or not room[paper.primary]:
            return False
        room[paper.primary] -= 1  # papers that stand in the file twice have the same hash twice
        return True

    return takes
