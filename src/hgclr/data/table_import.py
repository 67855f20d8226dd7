"""Import of a user's tables: detect columns, build the label tree, merge equal texts, draw splits."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import (
    SPLIT_NAMES,
    SPLITS,
    CorpusSummary,
    CorpusWriter,
    DataFolder,
    Progress,
    Readings,
    RowForm,
    open_tree,
    remembered,
    write_corpus,
)
from hgclr.data.layout import Layout, Raw, find_columns, find_separators, split_labels, split_names
from hgclr.data.readers import ENCODING, BadRow, RowProblem, TextForm, read_rows, read_text, text_hash
from hgclr.data.split import TextSurvey, check_place, checked_shares, deal, label_spread
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare, label_key, read_changes, with_old_ids
from hgclr.taxonomy.tree import NamePath

SAMPLE = 1000
"""Rows of each file used to detect columns."""
DRAWN = 0.1
"""Default share of dev and of test."""
PLACEHOLDER = "placeholder"
"""The reason for leaving out texts that say nothing or that recur with many different labels."""
LEFT_OUT = 0.01
"""Largest share of the rows that an import leaves out without being asked to."""
SHOWN = 10
"""Maximum number of left-out rows that the result lists."""
MANY_LABELS = 5
"""Minimum number of different labels with which a text recurs to be a placeholder, such as ``n/a`` or ``see above``.

In a table with one row per label, every text recurs. So it must also be `TIMES` the number of labels that all but a
share of `RARE` of the texts have at most. Rows with the same labels count once, and a row with a list of labels too."""
TIMES, RARE = 3, 0.05
USUAL = {"na", "nan", "nil", "none", "null", "tba", "tbd", "todo", "ka", "keineangabe"}
"""Texts that say nothing, as their letters and digits in small letters; ``k. A.`` is German for n/a."""
SEPARATORS = (" > ", " / ", " | ", " :: ")
"""Separators of the names in a label's id: the first that occurs in no name is used."""
Indices = tuple[int, ...]


class Twins(NamedTuple):
    """Labels that differ only in case or spaces: their paths with counts, most frequent first.

    The count of a label in a given tree is None.
    """

    paths: tuple[tuple[NamePath, int | None], ...]

    def summary(self, separator: str = " > ") -> str:
        """Return the labels in one line."""
        return " and ".join(
            f"{separator.join(path)!r} ({'in the tree' if count is None else f'{count:,}'})"
            for path, count in self.paths
        )


@dataclass(frozen=True)
class ImportResult:
    """An imported folder.

    Args:
        layout: the columns and separators, given or detected.
        taxonomy: the label tree, given or built.
        summary: the folder, the documents of each split, and the rows left out.
        spread: for each drawn split, the number of labels without a document, and the mean deviation of a label's
            share of documents from its overall share.
        shared_texts: distinct texts that are both in a given split and in the rows that splits were drawn from.
        rows: number of rows read.
        left_out: the first rows left out, with place and reason; without placeholders.
        placeholders: the texts left out because they have no word or many different labels, with their rows.
        merged: number of rows whose text occurs earlier in the split.
        contradictions: number of texts whose rows have different labels.
        twins: labels that differ only in case or spaces.
        twins_merged: whether they were merged.
        changes: the changes from the tree whose ids were kept, if there is one.
        encodings: the encodings, given or detected, of the tables that are not UTF-8.
    """

    layout: Layout
    taxonomy: Taxonomy
    summary: CorpusSummary
    spread: dict[str, tuple[int, float]]
    shared_texts: int
    rows: int
    left_out: list[str]
    placeholders: Counter[str]
    merged: int
    contradictions: int
    twins: list[Twins]
    twins_merged: bool
    changes: TreeChanges | None
    encodings: dict[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return {
            "output": str(self.summary.output),
            "columns": asdict(self.layout),
            "rows": self.rows,
            "documents": {split: count for split, count in self.summary.documents.items() if count},
            "left_out": dict(self.summary.left_out),
            "placeholders": dict(self.placeholders.most_common()),
            "merged": self.merged,
            "contradictions": self.contradictions,
            "levels": [len(level) for level in self.taxonomy.levels],
            "labels_without": {split: without for split, (without, _) in self.spread.items()},
            "deviation": {split: deviation for split, (_, deviation) in self.spread.items()},
            "shared_texts": self.shared_texts,
            "twins": [{" > ".join(path): count for path, count in twins.paths} for twins in self.twins],
            "twins_merged": self.twins_merged,
            "changes": None if self.changes is None else self.changes.to_json(),
            "encodings": self.encodings,
        }


def import_tables(
    files: Sequence[str | Path],
    output: str | Path,
    *,
    layout: Layout | None = None,
    taxonomy: str | Path | None = None,
    merge: bool = True,
    keep_placeholders: bool = False,
    ids_from: Taxonomy | str | Path | None = None,
    changes: str | Path | None = None,
    dev: float | Path | None = None,
    test: float | Path | None = None,
    seed: int = 0,
    stratify: bool = True,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Write a data folder from tables: CSV (with any delimiter), Excel, JSON lines, Parquet.

    Unusable rows are left out and listed with place and reason. Rows of one split with the same text, apart from case
    and white space, become one document with the labels of all. The same files, shares and seed give the same splits.

    Args:
        files: the tables, or one data folder. Files called train, dev (validation, valid, val) and test are these
            splits; other splits are drawn from train.
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        layout: known columns and separators; the others are detected.
        taxonomy: the label tree; by default it is built from the paths.
        merge: merge labels of one parent that differ only in case or spaces.
        keep_placeholders: keep texts that have no word or many different labels.
        ids_from: an earlier label tree, or its file, data folder or model folder. Labels that it has keep their ids,
            unless the new tree's file gives ids; by default, an earlier import in ``output``.
        changes: a file with the labels of that tree that were renamed, merged or split; see `read_changes`.
        dev: the share of documents to draw for dev, by default 0.1, or a file with them.
        test: the same for test.
        seed: seed of the draw.
        stratify: give every label the same share in each split; otherwise draw at random.
        encoding: encoding of CSV and JSON lines; by default UTF-8 or, for CSV that is not, detected.
        skip_bad_rows: accept that more than one row in a hundred is left out.
        progress: called with the number of rows read and, once known, the total; every row is read twice.
    """
    sources, tree = [Path(file) for file in files], None if taxonomy is None else Taxonomy.read(taxonomy)
    if ids_from is None and remembered(Path(output)).get("corpus") == "import":
        earlier: Taxonomy | None = open_tree(Path(output))
    else:
        earlier = open_tree(Path(ids_from)) if isinstance(ids_from, str | Path) else ids_from
    if changes is not None and earlier is None:
        raise InputError("no earlier label tree to change", path=output, remedy="name it with --ids-from (ids_from=)")
    if len(sources) == 1 and sources[0].is_dir():
        folder = DataFolder(sources[0], taxonomy=tree)
        sources, tree = list(folder.splits.values()), folder.taxonomy
        form = folder.form
        columns = Layout(form.text_column, (form.label_column,), False, None, form.label_separator, form.path_separator)
        layout = layout if layout is not None and (layout.text or layout.labels) else columns
    by_split, shares = _split_files(sources, {"dev": dev, "test": test})
    forms = {path: TextForm(encoding) for paths in by_split.values() for path in paths}
    tables = Tables(layout or Layout(), Readings(progress), forms, keep_placeholders)
    for path, text_form in forms.items():
        check_place(path, Path(output))
        rows = list(islice(read_rows(path, (), all_columns=True, form=text_form), SAMPLE))
        bad = [row for row in rows if isinstance(row, BadRow)]
        if bad and len(bad) == len(rows):
            raise bad[0].error()
        if sample := [row.values for row in rows if not isinstance(row, BadRow)]:
            tables.layout = find_columns(tables.layout, sample, path)
    if not tables.layout.text or not tables.layout.labels:
        raise _nothing_usable(by_split["train"][0])
    marks = {split: tables.marks(paths) for split, paths in by_split.items()}
    tables.layout = find_separators(tables.layout, list(tables.cells))
    uses = Counter(cell for _, cells in marks.values() for cell in cells)
    if not uses:
        raise _nothing_usable(by_split["train"][0], tables)
    find = draw_labels if tree is None else partial(find_labels, tree=tree)
    labels = find(tables.cells, uses, tables.layout, merge=merge)
    recurring = {} if keep_placeholders else _recurring(list(marks.values()), labels.of_cell)
    if recurring:  # labels of these texts alone are no labels
        pairs = (pair for texts, cells in marks.values() for pair in zip(texts, cells, strict=True))
        uses = Counter(cell for text, cell in pairs if text not in recurring)
        labels = find(tables.cells, uses, tables.layout, merge=merge)
    united = {split: _unite(*marks[split], labels.of_cell, recurring) for split in by_split}
    for split, paths in by_split.items():
        if not united[split].survey.hashes:
            raise _nothing_usable(paths[0], tables, labels.of_cell)
    found = None if earlier is None else _keep_ids(labels, earlier, changes)
    labels = labels if found is None else labels._replace(taxonomy=found.new)
    surveys = {split: each.survey for split, each in united.items()}
    settings: dict[str, object] = {
        "files": {split: list(map(str, paths)) for split, paths in by_split.items()},
        "columns": asdict(tables.layout),
        "taxonomy": None if taxonomy is None else str(taxonomy),
        "merge_twins": merge,
        "keep_placeholders": keep_placeholders,
        "ids_from": str(ids_from) if isinstance(ids_from, str | Path) else None,
        "changes": None if changes is None else str(changes),
    }
    dealt = np.zeros(len(surveys["train"].hashes), dtype=np.int64)
    if shares[1:].any():
        dealt = deal(surveys["train"], shares, seed=seed, stratify=stratify, path=by_split["train"][0])
        settings |= {"shares": dict(zip(SPLITS, shares.tolist(), strict=True)), "seed": seed, "stratify": stratify}
    tables.readings.total = 2 * tables.readings.done
    left_out: list[str] = []
    placeholders: Counter[str] = Counter()
    with write_corpus(
        output, name="import", settings=settings, reading=asdict(RowForm(path_separator=labels.separator))
    ) as writer:
        writer.taxonomy = labels.taxonomy
        for split, paths in by_split.items():
            places = dealt.tolist() if split == "train" else [SPLITS.index(split)] * len(surveys[split].hashes)
            _write(writer, tables.read(paths), labels, united[split], places, recurring, left_out, placeholders)
        rows_read, set_aside = tables.readings.total // 2, writer.summary.left_out.total()
        lost = set_aside - placeholders.total()
        if lost > LEFT_OUT * rows_read and not skip_bad_rows:
            what = f"{lost:,} of {rows_read:,} rows ({lost / rows_read:.0%}) cannot be used; the first, {left_out[0]}"
            remedy = ENCODING if "not UTF-8" in writer.summary.left_out else "correct them"
            raise InputError(what, remedy=f"{remedy}; or leave them out with --skip-bad-rows (skip_bad_rows=True)")
    encodings = {str(path): form.other for path, form in forms.items() if form.other is not None}
    used = rows_read - set_aside
    given = {text for split, survey in surveys.items() if split != "train" for text in survey.hashes}
    return ImportResult(
        layout=tables.layout,
        taxonomy=labels.taxonomy,
        summary=writer.summary,
        spread=label_spread(surveys["train"], dealt),
        shared_texts=len(given.intersection(surveys["train"].hashes)),
        rows=rows_read,
        left_out=left_out,
        placeholders=placeholders,
        merged=used - sum(writer.summary.documents.values()),
        contradictions=sum(len(each.contradicted) for each in united.values()),
        twins=labels.twins,
        twins_merged=merge,
        changes=found,
        encodings=encodings,
    )


def _split_files(
    files: Sequence[Path], wanted: Mapping[str, float | Path | None]
) -> tuple[dict[str, list[Path]], NDArray[np.float64]]:
    """Return the files of each split, and the shares of the splits; missing splits are drawn from train."""
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
            what = f"both a share and a file, {by_split[split][0]}, are given for {split}"
            raise InputError(what, remedy="give only one of them")
        shares[split] = 0.0 if by_split[split] else DRAWN if choice is None else choice
    if not by_split["train"]:
        raise InputError("no training file: all are called dev or test", remedy="add one, or rename one of them")
    drawn = checked_shares(**shares) if any(shares.values()) else np.array([1.0, 0.0, 0.0])
    return {split: paths for split, paths in by_split.items() if paths}, drawn


class TableRow(NamedTuple):
    """A row: its place, and either its problem or its text, its id and the number of its label cell."""

    where: str
    number: int
    problem: RowProblem | None = None
    text: str = ""
    id: str | None = None
    cell: int = -1


@dataclass(slots=True)
class Tables:
    """Reads the files twice, first to survey and then to write the rows; ``cells`` numbers distinct label cells."""

    layout: Layout
    readings: Readings
    forms: dict[Path, TextForm]
    keep_placeholders: bool
    cells: dict[Raw, int] = field(default_factory=dict)

    def read(self, paths: Sequence[Path]) -> Iterator[TableRow]:
        for path in paths:
            # A JSON object may omit keys without a value.
            needed = self.layout.labels[:1] if ".jsonl" in path.name.lower() else self.layout.labels
            rows = read_rows(path, (self.layout.text, *needed), all_columns=True, form=self.forms[path])
            for row in self.readings.count(rows):
                where = f"{path}:{row.number}"
                try:
                    if isinstance(row, BadRow):
                        raise RowProblem(row.reason, row.remedy)
                    text, raw = read_text(row.values[self.layout.text]), self.layout.raw_labels(row.values)
                    if not self.keep_placeholders and not says_something(text):
                        raise RowProblem(f"{PLACEHOLDER}: {text.strip()[:80]!r} says nothing")
                except RowProblem as problem:
                    yield TableRow(where, row.number, problem)
                    continue
                own = None if self.layout.id is None else row.values.get(self.layout.id)
                cell = self.cells.setdefault(raw, len(self.cells))
                yield TableRow(where, row.number, None, text, None if own in (None, "") else str(own), cell)

    def marks(self, paths: Sequence[Path]) -> tuple[array[int], array[int]]:
        """Return the text hash and the number of the label cell of each good row."""
        texts, cells = array("Q"), array("q")
        for row in self.read(paths):
            if row.problem is None:
                texts.append(text_hash(row.text))
                cells.append(row.cell)
        return texts, cells


def _nothing_usable(
    path: Path, tables: Tables | None = None, of_cell: Sequence[Indices | RowProblem] = ()
) -> InputError:
    """Return the error for a file without a usable row, with the problem of the first row."""
    for row in [] if tables is None else tables.read([path]):
        own = row.problem or of_cell[row.cell]
        problem = str(own) if isinstance(own, RowProblem) else PLACEHOLDER
        return InputError(f"no usable row; the first, {row.where}: {problem}", path=path)
    return InputError("no rows", path=path, remedy="add a header and at least one row")


def says_something(text: str) -> bool:
    """Return whether a text has a letter of any script, a digit or a pictograph, and is not one of `USUAL`.

    A code or an emoji may be all that a row says; ``0`` as a placeholder recurs with many labels.

    Example:
        >>> [text for text in ("-", "?!", "n/a", "T.B.D.", "404", "数", "👍") if says_something(text)]
        ['404', '数', '👍']
    """
    word = "".join(filter(str.isalnum, text)).casefold()
    return word not in USUAL and (bool(word) or any(unicodedata.category(character) == "So" for character in text))


class TableLabels(NamedTuple):
    """A table's label tree, and the separator between the names in its ids.

    ``of_cell`` has, for each cell, the sorted indices of its labels and their ancestors, or its problem.
    """

    taxonomy: Taxonomy
    separator: str
    of_cell: list[Indices | RowProblem]
    twins: list[Twins]


def draw_labels(cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, *, merge: bool) -> TableLabels:
    """Build the tree from the paths; ``merge`` merges labels that differ only in case or spaces.

    The cells are all distinct label cells; ``uses`` counts the rows of each, by the cell's number. A cell without a row
    gives no labels.
    """
    paths_of_cell: list[list[NamePath] | RowProblem] = []
    counts: Counter[NamePath] = Counter()
    for cell, raw in enumerate(cells):
        try:
            written = split_labels(raw, layout.label_separator) if cell in uses else []
            paths = [_names(label, layout) for label in written]
        except RowProblem as problem:
            paths_of_cell.append(problem)
        else:
            paths_of_cell.append(paths)
            counts.update(dict.fromkeys(paths, uses.get(cell, 0)))
    if not counts:
        first = next((f"; the first: {each.reason}" for each in paths_of_cell if isinstance(each, RowProblem)), "")
        raise InputError(f"no row has usable labels{first}")
    spelled = merge_twins(counts) if merge else {path: path for path in counts}
    names = {name for path in counts for name in path}
    separator = next((each for each in SEPARATORS if not any(each in name for name in names)), SEPARATORS[0])
    tree = Taxonomy.from_paths(spelled.values(), separator)
    closed = {path: tree.path(tree.resolve(separator.join(name), separator)).tolist() for path, name in spelled.items()}
    of_cell: list[Indices | RowProblem] = [
        paths if isinstance(paths, RowProblem) else tuple(sorted({label for path in paths for label in closed[path]}))
        for paths in paths_of_cell
    ]
    return TableLabels(tree, separator, of_cell, near_twins(counts))


def find_labels(
    cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, *, merge: bool, tree: Taxonomy
) -> TableLabels:
    """Find the labels in a tree, by id, name or path; with ``merge``, ignoring case and spaces."""
    similar: dict[NamePath, list[int]] = {}
    for place, name in enumerate(tree.names):
        for key in {path_key(tree.path_names(place)), path_key((name,))}:
            similar.setdefault(key, []).append(place)
    twins: dict[int, Counter[NamePath]] = {}

    def find(label: str | NamePath, count: int) -> int:
        names = _names(label, layout)
        path = SEPARATORS[0].join(names)
        for spelling in (label, path) if isinstance(label, str) else (path,):
            if len(found := tree.candidates(spelling)) == 1:
                return found[0]
        near = similar.get(path_key(names), [])
        if len(near) == 1:
            twins.setdefault(near[0], Counter())[names] += count
        if len(near) == 1 and merge:
            return near[0]
        try:
            return tree.resolve(label if isinstance(label, str) else path)
        except InputError as error:
            raise RowProblem(error.what, error.remedy) from None

    of_cell: list[Indices | RowProblem] = []
    for cell, raw in enumerate(cells):
        try:
            found = [find(label, uses.get(cell, 0)) for label in split_labels(raw, layout.label_separator)]
            of_cell.append(tuple(tree.closure(found).tolist()))
        except RowProblem as problem:
            of_cell.append(problem)
    pairs = [Twins(((tree.path_names(label), None), *known.most_common())) for label, known in twins.items()]
    return TableLabels(tree, SEPARATORS[0], of_cell, pairs)


def _names(label: str | NamePath, layout: Layout) -> NamePath:
    return split_names(label, layout.path_separator) if isinstance(label, str) else label


class _United(NamedTuple):
    """The distinct texts of a split in order, with the labels of all their rows, and the texts whose rows differ."""

    survey: TextSurvey
    contradicted: set[int]


def _recurring(
    marks: Sequence[tuple[array[int], array[int]]], of_cell: Sequence[Indices | RowProblem]
) -> dict[int, int]:
    """Return the hashes of texts that recur with many different labels, and the number of these; see `MANY_LABELS`."""
    first: dict[int, Indices] = {}
    differing: dict[int, set[Indices]] = {}
    for text, cell in (pair for texts, cells in marks for pair in zip(texts, cells, strict=True)):
        own = of_cell[cell]
        if not isinstance(own, RowProblem) and first.setdefault(text, own) != own:
            differing.setdefault(text, {first[text]}).add(own)
    counts = sorted(map(len, differing.values()), reverse=True)
    usual = [*counts, 1][min(int(RARE * len(first)), len(counts))]
    return {text: len(sets) for text, sets in differing.items() if len(sets) >= max(MANY_LABELS, TIMES * usual)}


def _keep_ids(labels: TableLabels, old: Taxonomy, changes: str | Path | None) -> TreeChanges:
    """Return the changes from an earlier tree to the new one, whose labels get their old ids if its ids are paths."""
    new = labels.taxonomy
    mapping = {} if changes is None else read_changes(changes, old, new)
    of_paths = all(own == new.path_name(label, labels.separator) for label, own in enumerate(new.ids))
    tree = with_old_ids(old, new, mapping) if of_paths else new
    ids = dict(zip(new.ids, tree.ids, strict=True))
    return compare(old, tree, {label: [ids[target] for target in became] for label, became in mapping.items()})


def _unite(
    texts: array[int], cells: array[int], of_cell: Sequence[Indices | RowProblem], left_out: Collection[int]
) -> _United:
    labels: dict[int, Indices] = {}
    contradicted: set[int] = set()
    for text, cell in zip(texts, cells, strict=True):
        own = of_cell[cell]
        if isinstance(own, RowProblem) or text in left_out:
            continue
        known = labels.setdefault(text, own)
        if known != own:
            labels[text] = tuple(sorted({*known, *own}))
            contradicted.add(text)
    survey = TextSurvey()
    for text, known in labels.items():
        survey.add(text, known)
    return _United(survey, contradicted)


def _write(
    writer: CorpusWriter,
    rows: Iterator[TableRow],
    labels: TableLabels,
    united: _United,
    places: Sequence[int],
    recurring: Mapping[int, int],
    left_out: list[str],
    placeholders: Counter[str],
) -> None:
    """Write each distinct text to its split, an index of ``places`` into `SPLITS`.

    List the first rows left out, and count the rows of placeholders.
    """
    ids, taxonomy, survey = labels.taxonomy.ids, labels.taxonomy, united.survey
    ends = np.cumsum(survey.counts).tolist()
    written: set[int] = set()
    differing: dict[int, tuple[str, list[tuple[str, list[str]]]]] = {}
    spelled: dict[int, str] = {}
    for row in rows:
        own = row.problem or labels.of_cell[row.cell]
        text = text_hash(row.text)
        if text in recurring and not isinstance(own, RowProblem):
            shown = spelled.setdefault(text, " ".join(row.text.split())[:80])
            own = RowProblem(f"{PLACEHOLDER}: {shown!r} recurs with {recurring[text]:,} different labels")
        if isinstance(own, RowProblem):
            reason = str(own)
            kind = re.split("[:'\"]", reason)[0].strip()  # without the values of this row
            writer.leave_out(kind, row.where, None if kind == reason else reason)
            if kind == PLACEHOLDER:
                placeholders[reason.removeprefix(f"{PLACEHOLDER}: ")] += 1
            elif len(left_out) < SHOWN:
                left_out.append(f"{row.where}: {reason}")
            continue
        if text in united.contradicted:
            _, found = differing.setdefault(text, (row.text, []))
            found.append((row.where, [ids[label] for label in taxonomy.path_ends(own)]))
        if text not in written:
            place = len(written)
            written.add(text)
            known = survey.flat[ends[place] - survey.counts[place] : ends[place]]
            writer.add(SPLITS[places[place]], row.text, [ids[label] for label in known], id=row.id)
    for contradiction in differing.values():
        writer.contradict(*contradiction)


def path_key(path: NamePath) -> NamePath:
    """Return a path with its names normalised."""
    return tuple(map(label_key, path))


def near_twins(paths: Mapping[NamePath, int]) -> list[Twins]:
    """Return groups of labels that differ only in case or spaces, usually spellings of one label.

    Labels below two spellings of a label are not listed again.

    Args:
        paths: the paths of documents, with the number of documents that have each.

    Example:
        >>> found = near_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})
        >>> found[0].summary()
        "'Mental Health' (9) and 'mental  health' (1)"
    """
    groups = _groups(paths).values()
    twins = [Twins(tuple(group.most_common())) for group in groups if len({path[-1] for path in group}) > 1]
    return sorted(twins, key=lambda found: found.paths[0][0])


def merge_twins(paths: Mapping[NamePath, int]) -> dict[NamePath, NamePath]:
    """Return each path with all names in their most frequent spelling.

    Example:
        >>> merge_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})[("mental  health", "stress")]
        ('Mental Health', 'stress')
    """
    spelled = {key: group.most_common(1)[0][0] for key, group in _groups(paths).items()}
    merged = {}
    for path in paths:
        key = path_key(path)
        merged[path] = tuple(spelled[key[:depth]][-1] for depth in range(1, len(key) + 1))
    return merged


def _groups(paths: Mapping[NamePath, int]) -> dict[NamePath, Counter[NamePath]]:
    """Return the document count of every label on the paths, grouped by key."""
    groups: defaultdict[NamePath, Counter[NamePath]] = defaultdict(Counter)
    for path, count in paths.items():
        key = path_key(path)
        for depth in range(1, len(path) + 1):
            groups[key[:depth]][path[:depth]] += count
    return groups
