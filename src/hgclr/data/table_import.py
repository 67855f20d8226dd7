"""Make a data folder of tables of one's own: find texts and labels, draw the tree, merge equal texts, draw splits."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import SPLITS as SPLIT_NAMES
from hgclr.data.folder_writer import SPLITS, CorpusWriter, Progress, Readings, write_corpus
from hgclr.data.layout import Layout, Raw, find_columns, find_separators, split_labels, split_names
from hgclr.data.readers import read_rows
from hgclr.data.rows import BadRow, RowForm, RowProblem, read_text, text_hash
from hgclr.data.split import SplitResult, TextSurvey, check_place, checked_shares, deal, split_result
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import NamePath

__all__ = ["ImportResult", "import_tables"]

SAMPLE = 1000
"""Rows of each file by which columns are found."""
DRAWN = 0.1
"""The share of dev, and that of test, if nothing else is said."""
SHOWN = 10
"""Rows that were left out, and contradictions, of which the result tells more than the number."""

SEPARATORS = (" > ", " / ", " | ", " :: ")
"""What may stand between the names in a label's id: the first that no name holds."""
Indices = tuple[int, ...]


class Twins(NamedTuple):
    """Labels that differ only in case or spaces: their paths with how often each occurs, the most frequent first.

    Of a label that stands in a tree that was given, it is not counted how often it occurs.
    """

    paths: tuple[tuple[NamePath, int | None], ...]

    def summary(self, separator: str = " > ") -> str:
        """Return the labels in a line."""
        return " and ".join(
            f"{separator.join(path)!r} ({'in the tree' if count is None else f'{count:,}'})"
            for path, count in self.paths
        )


class Contradiction(NamedTuple):
    """A text that stands in several rows with different labels: the place of each row, and the ends of its paths."""

    text: str
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class ImportResult:
    """What became of the tables.

    Args:
        layout: the columns and separators, as told or found.
        taxonomy: the label tree, as given or drawn.
        split: the folder with its documents, what was left out, and how labels are spread over the splits.
        rows: the rows read.
        left_out: the first rows that were left out, with place and reason.
        merged: the rows whose text an earlier row of the split has.
        contradictions: how many texts have rows with different labels, of which none is above the others in the tree.
        first_contradictions: some of them.
        twins: labels that differ only in case or spaces.
        twins_merged: whether they are one label now.
    """

    layout: Layout
    taxonomy: Taxonomy
    split: SplitResult
    rows: int
    left_out: list[str]
    merged: int
    contradictions: int
    first_contradictions: list[Contradiction]
    twins: list[Twins]
    twins_merged: bool

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return {
            "columns": asdict(self.layout),
            "rows": self.rows,
            "merged": self.merged,
            "contradictions": self.contradictions,
            "levels": [len(level) for level in self.taxonomy.levels],
            "twins": [{" > ".join(path): count for path, count in twins.paths} for twins in self.twins],
            "twins_merged": self.twins_merged,
            **self.split.to_json(),
        }


def import_tables(
    files: Sequence[str | Path],
    output: str | Path,
    *,
    layout: Layout | None = None,
    taxonomy: str | Path | None = None,
    merge: bool = False,
    dev: float | Path | None = None,
    test: float | Path | None = None,
    seed: int = 0,
    stratify: bool = True,
    progress: Progress | None = None,
) -> ImportResult:
    """Write a data folder of tables: CSV (with any delimiter), Excel, JSON lines, Parquet.

    Rows that cannot be used are left out, with place and reason. Rows of one split with the same text, as
    `hgclr.data.check.check` sees it, become one document with the labels of all of them.

    Args:
        files: the tables. Files that are called train, dev (validation, valid, val) and test are these splits.
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        layout: what is known of columns and separators; the rest is found.
        taxonomy: the label tree; without it, it is drawn from the paths.
        merge: make one label of those that differ only in case or spaces.
        dev: the share of documents to draw for development, by default a tenth, or a file with them.
        test: the same for testing.
        seed: decides what is drawn.
        stratify: give every label the same share in each split; otherwise draw at random.
        progress: called with the number of rows read, twice over, and with the number to read once that is known.
    """
    by_split, shares = _split_files([Path(file) for file in files], {"dev": dev, "test": test})
    for path in (path for paths in by_split.values() for path in paths):
        check_place(path, Path(output))
    readings = Readings(progress)
    tables = _Tables(_columns(layout or Layout(), by_split), readings)
    marks = {split: tables.marks(paths) for split, paths in by_split.items()}
    tables.layout = find_separators(tables.layout, list(tables.cells))
    if not any(mark.texts for mark in marks.values()):
        raise _nothing_usable(by_split["train"], tables, [])
    uses = Counter(cell for mark in marks.values() for cell in mark.cells)
    if taxonomy is None:
        labels = draw_labels(tables.cells, uses, tables.layout, merge=merge)
    else:
        labels = find_labels(tables.cells, uses, tables.layout, Taxonomy.read(taxonomy), merge=merge)
    united = {split: _unite(marks[split], labels.of_cell) for split in by_split}
    for split, paths in by_split.items():
        if not united[split].survey.hashes:
            raise _nothing_usable(paths, tables, labels.of_cell)
    surveys = {split: each.survey for split, each in united.items()}
    drawn = bool(shares[1:].any())
    dealt = np.zeros(len(surveys["train"].hashes), dtype=np.int64)
    if drawn:
        dealt = deal(surveys["train"], shares, seed=seed, stratify=stratify, path=by_split["train"][0])
    settings: dict[str, object] = {
        "files": {split: list(map(str, paths)) for split, paths in by_split.items()},
        "columns": asdict(tables.layout),
        "taxonomy": None if taxonomy is None else str(taxonomy),
        "merge_twins": merge,
    }
    if drawn:
        settings |= {"shares": dict(zip(SPLITS, shares.tolist(), strict=True)), "seed": seed, "stratify": stratify}
    readings.total = 2 * readings.done
    found = _Found()
    reading = asdict(RowForm(path_separator=labels.separator))
    with write_corpus(output, name="import", settings=settings, reading=reading) as writer:
        writer.taxonomy = labels.taxonomy
        for split, paths in by_split.items():
            places = dealt.tolist() if split == "train" else [SPLITS.index(split)] * len(surveys[split].hashes)
            found.write(writer, tables.read(paths), labels, united[split], places)
    return ImportResult(
        layout=tables.layout,
        taxonomy=labels.taxonomy,
        split=split_result(writer.summary, surveys, dealt),
        rows=readings.total // 2,
        left_out=found.left_out,
        merged=found.merged,
        contradictions=found.contradictions,
        first_contradictions=found.first,
        twins=labels.twins,
        twins_merged=merge,
    )


def _split_files(
    files: Sequence[Path], wanted: Mapping[str, float | Path | None]
) -> tuple[dict[str, list[Path]], NDArray[np.float64]]:
    """Return the files of each split, those to draw from being train, and the shares of the splits."""
    by_split: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for file in files:
        stem = file.name.partition(".")[0].casefold()
        named = next((split for split, names in SPLIT_NAMES.items() if stem in names), "train")
        by_split[named if len(files) > 1 else "train"].append(file)
    shares: dict[str, float] = {}
    for split, choice in wanted.items():
        if isinstance(choice, Path):
            by_split[split].append(choice)
            choice = None
        elif by_split[split] and choice:
            remedy = "give one of them"
            raise InputError(f"a share for {split} is given as well as a file, {by_split[split][0]}", remedy=remedy)
        shares[split] = 0.0 if by_split[split] else DRAWN if choice is None else choice
    if not by_split["train"]:
        raise InputError("no file to train on: all are called dev or test", remedy="add one, or rename one of them")
    drawn = checked_shares(**shares) if any(shares.values()) else np.array([1.0, 0.0, 0.0])
    return {split: paths for split, paths in by_split.items() if paths}, drawn


def _columns(layout: Layout, by_split: Mapping[str, Sequence[Path]]) -> Layout:
    """Find the columns by the first rows of each file."""
    for path in (path for paths in by_split.values() for path in paths):
        rows = islice((row for row in read_rows(path, (), all_columns=True) if not isinstance(row, BadRow)), SAMPLE)
        if sample := [row.values for row in rows]:
            layout = find_columns(layout, sample, path)
    if not layout.text or not layout.labels:
        raise _no_rows(by_split["train"][0])
    return layout


class TableLabels(NamedTuple):
    """A table's labels in a tree, in whose ids the separator stands between the names.

    For each cell there are the sorted indices of its labels and of those above them, or what is wrong with it; twins
    are labels that differ only in case or spaces.
    """

    taxonomy: Taxonomy
    separator: str
    of_cell: list[Indices | RowProblem]
    twins: list[Twins]


def draw_labels(cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, *, merge: bool) -> TableLabels:
    """Draw the tree from the paths; ``merge`` makes one label of those that differ only in case or spaces.

    The cells are all different labels of rows; ``uses`` has, by a cell's number, how many rows have its labels.
    """
    paths_of_cell: list[list[NamePath] | RowProblem] = []
    for raw in cells:
        try:
            labels = split_labels(raw, layout.label_separator)
            paths_of_cell.append([_names(label, layout) for label in labels])
        except RowProblem as problem:
            paths_of_cell.append(problem)
    counts: Counter[NamePath] = Counter()
    for cell, paths in enumerate(paths_of_cell):
        if not isinstance(paths, RowProblem):
            counts.update(dict.fromkeys(paths, uses.get(cell, 0)))
    if not counts:
        first = next((each for each in paths_of_cell if isinstance(each, RowProblem)), None)
        what = "no row has labels that can be used"
        raise InputError(what if first is None else f"{what}; the first: {first.reason}")
    spelled = merge_twins(counts) if merge else {path: path for path in counts}
    names = {name for path in counts for name in path}
    separator = next((each for each in SEPARATORS if not any(each in name for name in names)), SEPARATORS[0])
    tree = Taxonomy.from_paths(spelled.values(), separator)
    index = {label: place for place, label in enumerate(tree.ids)}
    closed = {path: tree.path(index[separator.join(name)]).tolist() for path, name in spelled.items()}
    of_cell: list[Indices | RowProblem] = [
        paths if isinstance(paths, RowProblem) else tuple(sorted({label for path in paths for label in closed[path]}))
        for paths in paths_of_cell
    ]
    return TableLabels(tree, separator, of_cell, near_twins(counts))


def find_labels(
    cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, tree: Taxonomy, *, merge: bool
) -> TableLabels:
    """Find the labels in a tree, by id, name or path; with ``merge``, whatever their case and spaces."""
    similar: dict[str, list[int]] = {}
    for place, name in enumerate(tree.names):
        for key in {label_key(*tree.path_names(place)), label_key(name)}:
            similar.setdefault(key, []).append(place)
    twins: dict[int, Counter[NamePath]] = {}
    of_cell: list[Indices | RowProblem] = []
    for cell, raw in enumerate(cells):
        found: set[int] = set()
        try:
            for label in split_labels(raw, layout.label_separator):
                names = _names(label, layout)
                try:
                    index = _resolve(tree, label, names)
                except InputError as error:
                    near = similar.get(label_key(*names), [])
                    if len(near) == 1:
                        twins.setdefault(near[0], Counter())[names] += uses.get(cell, 0)
                    if len(near) != 1 or not merge:
                        raise RowProblem(error.what, error.remedy) from None
                    index = near[0]
                found.update(tree.path(index).tolist())
        except RowProblem as problem:
            of_cell.append(problem)
        else:
            of_cell.append(tuple(sorted(found)))
    pairs = [Twins(((tree.path_names(label), None), *known.most_common())) for label, known in twins.items()]
    return TableLabels(tree, SEPARATORS[0], of_cell, pairs)


def _names(label: str | NamePath, layout: Layout) -> NamePath:
    return split_names(label, layout.path_separator) if isinstance(label, str) else label


def _resolve(tree: Taxonomy, label: str | NamePath, names: NamePath) -> int:
    """Return the label that is meant by what is written, or by the names in it as a path."""
    path = SEPARATORS[0].join(names)
    for spelling in (label, path) if isinstance(label, str) else (path,):
        if len(found := tree.candidates(spelling)) == 1:
            return found[0]
    return tree.resolve(label if isinstance(label, str) else path)


class _Row(NamedTuple):
    """A row: where it is, and either what is wrong with it or its text, its id and the number of its labels' cell."""

    where: str
    problem: str | None = None
    text: str = ""
    id: str | None = None
    cell: int = -1


class _Marks(NamedTuple):
    """The good rows of a split: the hash of each text, and the number of the labels' cell."""

    texts: array[int]
    cells: array[int]


@dataclass(slots=True)
class _Tables:
    """Reads files, once for texts and labels and once more to write the rows."""

    layout: Layout
    readings: Readings
    cells: dict[Raw, int] = field(default_factory=dict)
    """All different labels of rows, numbered."""

    def read(self, paths: Sequence[Path]) -> Iterator[_Row]:
        for path in paths:
            # An object of JSON need not have the keys of which it has no value.
            lines = ".jsonl" in path.name.lower()
            columns = (self.layout.text, *self.layout.labels[: 1 if lines else None])
            for row in self.readings.count(read_rows(path, columns, all_columns=True)):
                where = f"{path}:{row.number}"
                yield _Row(where, row.reason) if isinstance(row, BadRow) else self._row(where, row.values)

    def _row(self, where: str, values: Mapping[str, object]) -> _Row:
        try:
            text = read_text(values[self.layout.text])
            raw = self.layout.raw_labels(values)
        except RowProblem as problem:
            return _Row(where, problem.reason)
        own = None if self.layout.id is None else values.get(self.layout.id)
        cell = self.cells.setdefault(raw, len(self.cells))
        return _Row(where, None, text, None if own is None or own == "" else str(own), cell)

    def marks(self, paths: Sequence[Path]) -> _Marks:
        marks = _Marks(array("Q"), array("q"))
        for row in self.read(paths):
            if row.problem is None:
                marks.texts.append(text_hash(row.text))
                marks.cells.append(row.cell)
        return marks


class _United(NamedTuple):
    """The different texts of a split in their order, with the labels of all their rows, and those whose rows differ."""

    survey: TextSurvey
    contradicted: set[int]


def _unite(marks: _Marks, of_cell: Sequence[tuple[int, ...] | RowProblem]) -> _United:
    labels: dict[int, tuple[int, ...]] = {}
    contradicted: set[int] = set()
    for text, cell in zip(marks.texts, marks.cells, strict=True):
        own = of_cell[cell]
        if isinstance(own, RowProblem):
            continue
        known = labels.setdefault(text, own)
        if known != own:
            labels[text] = tuple(sorted({*known, *own}))
            contradicted.add(text)
    survey = TextSurvey()
    for text, known in labels.items():
        survey.add(text, known)
    return _United(survey, contradicted)


def _nothing_usable(
    paths: Sequence[Path], tables: _Tables, of_cell: Sequence[tuple[int, ...] | RowProblem]
) -> InputError:
    """Return the error for files without a usable row, with what is wrong with the first."""
    for row in tables.read(paths):
        problem = row.problem or str(of_cell[row.cell])
        return InputError(f"no row can be used; the first, {row.where}: {problem}", path=paths[0])
    return _no_rows(paths[0])


def _no_rows(path: Path) -> InputError:
    return InputError("no rows", path=path, remedy="a table needs a header and at least one row")


@dataclass(slots=True)
class _Found:
    """What is met when the rows are written."""

    left_out: list[str] = field(default_factory=list)
    merged: int = 0
    contradictions: int = 0
    first: list[Contradiction] = field(default_factory=list)

    def write(
        self, writer: CorpusWriter, rows: Iterable[_Row], labels: TableLabels, united: _United, places: Sequence[int]
    ) -> None:
        """Write the documents of a split to where they belong, ``places`` in `SPLITS`."""
        ids, taxonomy = labels.taxonomy.ids, labels.taxonomy
        ends = np.cumsum(united.survey.counts).tolist()
        written: set[int] = set()
        differing: dict[int, Contradiction] = {}
        for row in rows:
            own = labels.of_cell[row.cell] if row.problem is None else ()
            if row.problem is not None or isinstance(own, RowProblem):
                self._leave_out(writer, row.where, row.problem or str(own))
                continue
            text = text_hash(row.text)
            if text in united.contradicted:
                kept = differing.setdefault(text, Contradiction(row.text, []))
                kept.rows.append((row.where, [ids[label] for label in taxonomy.path_ends(own)]))
            if text in written:
                self.merged += 1
                continue
            place = len(written)
            written.add(text)
            known = united.survey.flat[ends[place] - united.survey.counts[place] : ends[place]]
            writer.add(SPLITS[places[place]], row.text, [ids[label] for label in known], id=row.id)
        self.contradictions += len(differing)
        self.first += list(differing.values())[: SHOWN - len(self.first)]
        for contradiction in differing.values():
            writer.contradict(*contradiction)

    def _leave_out(self, writer: CorpusWriter, where: str, reason: str) -> None:
        kind = re.split("[:'\"]", reason)[0].strip()  # what stands after it is of this row only
        writer.leave_out(kind, where, None if kind == reason else reason)
        if len(self.left_out) < SHOWN:
            self.left_out.append(f"{where}: {reason}")


def label_key(*names: str) -> str:
    """Return what is left of a path when case, spaces and the composition of characters do not count."""
    return "".join(unicodedata.normalize("NFKC", ">".join(names)).casefold().split())


def near_twins(paths: Mapping[NamePath, int]) -> list[Twins]:
    """Find labels that differ only in case or spaces, most of which are one label written in two ways.

    Only the top-most are named: what hangs under two spellings of a label is not listed again.

    Args:
        paths: the paths of documents, with the number of documents that have each.

    Example:
        >>> found = near_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})
        >>> found[0].summary()
        "'Mental Health' (9) and 'mental  health' (1)"
    """
    groups = _groups(paths)
    twins = [Twins(tuple(group.most_common())) for group in groups.values() if len({path[-1] for path in group}) > 1]
    return sorted(twins, key=lambda found: found.paths[0][0])


def merge_twins(paths: Mapping[NamePath, int]) -> dict[NamePath, NamePath]:
    """Return each path with the names by which it goes once twins are one label: the most frequent spelling of each.

    Example:
        >>> merge_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})[("mental  health", "stress")]
        ('Mental Health', 'stress')
    """
    spelled = {key: group.most_common(1)[0][0] for key, group in _groups(paths).items()}
    merged = {}
    for path in paths:
        chosen = spelled[label_key(*path)]
        merged[path] = tuple(spelled[label_key(*chosen[:depth])][-1] for depth in range(1, len(chosen) + 1))
    return merged


def _groups(paths: Mapping[NamePath, int]) -> dict[str, Counter[NamePath]]:
    """Return all labels on the paths by their keys, with how many documents have each."""
    groups: defaultdict[str, Counter[NamePath]] = defaultdict(Counter)
    for path, count in paths.items():
        for depth in range(1, len(path) + 1):
            groups[label_key(*path[:depth])][path[:depth]] += count
    return groups
