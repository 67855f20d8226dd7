"""Draw train, dev and test from rows, and write them as they are."""

from __future__ import annotations

import datetime
import logging
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, empty_split, only_file, row_form
from hgclr.data.folder_writer import SPLITS, CorpusSummary, Progress, Readings, write_corpus
from hgclr.data.readers import is_dataset_folder, read_rows
from hgclr.data.rows import BadRow, LabelReader, Reading, RowForm, RowProblem, check_unicode, text_hash
from hgclr.errors import InputError, require_extra
from hgclr.taxonomy import Taxonomy

__all__ = ["SplitResult", "TextSurvey", "check_place", "checked_shares", "deal", "find_tree", "split_data"]

logger = logging.getLogger(__name__)
TRAIN = 0
TREES = ("*.taxonomy", "*.taxnomy", "taxonomy.*")
"""What label trees are called; the second is the spelling that HiAGM's own script for Web of Science writes."""
LARGEST_TABLE = 2**32
"""Bytes that the table of texts and labels may take, with the two copies that the algorithm makes of it."""
SECONDS_PER_CELL = 4e-10
"""Rough time for each text, label and label again: the algorithm adds up what is left of the table for each label."""
LONG = 60
"""Seconds from which a warning is due."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What became of the rows.

    Args:
        summary: the folder, the documents of each split, and the rows left out.
        labels: how many labels occur in the rows that were dealt out.
        labels_without: for each split that rows were dealt out to, how many of these labels have no document in it.
        deviation: for each such split, the mean over these labels of the difference, without its sign, between the
            share of the split's documents that have the label and the share of all documents that do.
        shared_texts: how many different texts are both in a split that was kept and among the rows dealt out.
    """

    summary: CorpusSummary
    labels: int
    labels_without: dict[str, int]
    deviation: dict[str, float]
    shared_texts: int

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return {
            "output": str(self.summary.output),
            "documents": {split: count for split, count in self.summary.documents.items() if count},
            "left_out": dict(self.summary.left_out),
            "labels": self.labels,
            "labels_without": self.labels_without,
            "deviation": self.deviation,
            "shared_texts": self.shared_texts,
        }


def split_data(
    source: str | Path,
    output: str | Path,
    *,
    dev: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    stratify: bool = True,
    taxonomy: str | Path | None = None,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
    **reading: Unpack[Reading],
) -> SplitResult:
    """Write a data folder whose splits are drawn from one file, or from the train split of a data folder.

    Rows stay as they are, with all their columns, in their order; the new folder remembers how it is read. Texts that
    are the same, as `hgclr.data.check.check` sees it, go to the same split, with the labels of all of them; so the
    shares are shares of different texts. Every label that occurs has a document in train. The same source, shares and
    seed give the same splits.

    Args:
        source: a file of documents, or a data folder.
        output: the folder to write; it may be absent, empty, or an earlier build, which is replaced.
        dev: the share for development; 0 for none, or to keep the dev split that the folder has.
        test: the share for testing, likewise.
        seed: decides the split.
        stratify: give every label the same share in each split; otherwise deal out at random.
        taxonomy: the label tree, if it is not the one beside the documents.
        skip_bad_rows: leave out and record rows that cannot be used, instead of stopping at the first.
        progress: called with the number of rows read, twice over, and with the number to read once that is known.
        **reading: how rows are read, as for `DataFolder`.

    Raises:
        InputError: if the shares make no sense, a row is bad, the folder has a split that was to be drawn, or nothing
            is left for a split.
        MissingExtraError: if ``stratify`` is asked for and the ``data`` extra is not installed.
    """
    source, output = Path(source), Path(output)
    shares = checked_shares(dev, test)
    form = row_form(source, **reading)
    files, tree = _find_files(source, taxonomy, form.path_separator)
    _check_files(source, output, files, shares)
    labels, readings = LabelReader(tree, form), Readings(progress)

    def read(path: Path) -> Iterator[SplitRow | BadRow]:
        return readings.count(_rows(path, form, labels))

    surveys = {split: _survey(path, read(path), skip_bad_rows=skip_bad_rows) for split, path in files.items()}
    dealt = deal(surveys["train"], shares, seed=seed, stratify=stratify, path=files["train"])
    settings = {"source": source, "dev": dev, "test": test, "seed": seed, "stratify": stratify}
    readings.total = 2 * readings.done
    with write_corpus(output, name="split", settings=settings, reading=asdict(form)) as writer:
        writer.taxonomy = tree
        for split, path in files.items():
            targets = iter(dealt.tolist())
            for row in read(path):
                if isinstance(row, BadRow):
                    writer.leave_out("bad row", f"{path}:{row.number}", row.reason)
                else:
                    target = SPLITS[next(targets)] if split == "train" else split
                    writer.add_row(target, row.values)
    return split_result(writer.summary, surveys, dealt)


def hold_out(documents: int, share: float, seed: int, *, least: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of documents to train on, and those of the share that is held out for dev, both shuffled.

    Only the number of documents, the share and the seed decide which ones. At least ``least`` are held out.
    """
    held_out = max(least, ceil(share * documents))
    if held_out >= documents:
        remedy = f"give more than {held_out} documents, or a dev set"
        raise InputError(f"{documents} documents are too few: {held_out} are held out for dev", remedy=remedy)
    shuffled = np.random.default_rng(seed).permutation(documents)
    return shuffled[held_out:], shuffled[:held_out]


def checked_shares(dev: float, test: float) -> NDArray[np.float64]:
    """Refuse shares that leave nothing for training or draw nothing."""
    if min(dev, test) < 0 or dev + test >= 1:
        remedy = "give shares of at least 0 that leave documents for training, such as 0.1 and 0.1"
        raise InputError(f"the shares of dev and test are {dev:g} and {test:g}", remedy=remedy)
    if not dev + test:
        raise InputError("nothing to split: the shares of dev and test are both 0", remedy="give one of them a share")
    return np.array([1 - dev - test, dev, test])


def _find_files(source: Path, taxonomy: str | Path | None, separator: str) -> tuple[dict[str, Path], Taxonomy]:
    """Return the file of each split there is, where a single file is train, and the label tree."""
    if source.is_dir() and not is_dataset_folder(source):
        folder = DataFolder(source, taxonomy=taxonomy, path_separator=separator)
        return folder.splits, folder.taxonomy
    if not source.exists():
        raise InputError("no such file or folder", path=source)
    tree = taxonomy if taxonomy is not None else find_tree(source.parent)
    if tree is None:
        raise InputError("no label tree beside the documents", path=source, remedy="name its file with --taxonomy")
    return {"train": source}, Taxonomy.read(tree, separator=separator)


def find_tree(folder: Path) -> Path | None:
    """Return the file of the label tree in a folder, if there is one; refuse several."""
    found = sorted({path for pattern in TREES for path in folder.glob(pattern) if not path.name.startswith(".")})
    return only_file(found, folder, "may be the label tree", "name it with --taxonomy") if found else None


def _check_files(source: Path, output: Path, files: Mapping[str, Path], shares: NDArray[np.float64]) -> None:
    """Refuse a source without train, one that has a split that is to be drawn, and one that would be replaced."""
    if "train" not in files:
        raise InputError("no train split to draw from", path=source, remedy=f"it has: {', '.join(files)}")
    for split, share in zip(SPLITS[1:], shares[1:], strict=True):
        if share and split in files:
            remedy = f"--{split} 0 keeps it, or split its train file alone"
            raise InputError(f"there is a {split} split already: {files[split].name}", path=source, remedy=remedy)
    check_place(source, output)


def check_place(source: Path, output: Path) -> None:
    """Refuse an output folder that would replace the source, or the folder that it is in."""
    if output.resolve() in {source.resolve(), source.resolve().parent}:
        raise InputError("the output would stand in the place of the source", path=output, remedy="name another folder")


class SplitRow(NamedTuple):
    """A row that can be written: its text, the indices of its labels, and all its cells, as JSON has them."""

    text: str
    labels: tuple[int, ...]
    values: dict[str, object]


def _rows(path: Path, form: RowForm, labels: LabelReader) -> Iterator[SplitRow | BadRow]:
    """Yield every row of a file, with all its columns, or what is wrong with it."""
    for row in read_rows(path, (form.text_column, form.label_column), all_columns=True):
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            text, found = labels.read_row(row.values)
            usable = SplitRow(text, found, {column: _plain(value, column) for column, value in row.values.items()})
        except RowProblem as problem:
            yield BadRow(path, row.number, problem.reason, row.values, problem.remedy)
        else:
            yield usable


def _plain(value: object, column: str) -> object:
    """Return a cell as JSON has it, dates as text, or raise a `RowProblem`."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return check_unicode(value, f"column {column!r}")
    if isinstance(value, list):
        return [_plain(part, column) for part in value]
    if isinstance(value, dict):
        return {_plain(key, column): _plain(part, column) for key, part in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    remedy = "turn the column into text or numbers, or drop it"
    raise RowProblem(f"wrong type: column {column!r} holds a {type(value).__name__}, which JSON lines cannot", remedy)


@dataclass(slots=True)
class TextSurvey:
    """The texts and labels of all good rows of a file, in their order."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    flat: array[int] = field(default_factory=lambda: array("q"))

    def add(self, text: int, labels: Sequence[int]) -> None:
        """Note the hash of a row's text, and the indices of its labels."""
        self.hashes.append(text)
        self.counts.append(len(labels))
        self.flat.extend(labels)

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hash of each row's text; shape (N,)."""
        return np.frombuffer(self.hashes, dtype=np.uint64)

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and the label of each label that a row has; two of shape (P,)."""
        rows = np.repeat(np.arange(len(self.counts)), np.frombuffer(self.counts, dtype=np.int64))
        return rows, np.frombuffer(self.flat, dtype=np.int64)


def _survey(path: Path, rows: Iterator[SplitRow | BadRow], *, skip_bad_rows: bool) -> TextSurvey:
    survey = TextSurvey()
    bad = 0
    for row in rows:
        if isinstance(row, SplitRow):
            survey.add(text_hash(row.text), row.labels)
        elif skip_bad_rows:
            bad += 1
        else:
            raise row.error()
    if not survey.hashes:
        raise empty_split(path, bad)
    return survey


def deal(
    survey: TextSurvey, shares: NDArray[np.float64], *, seed: int, stratify: bool, path: Path
) -> NDArray[np.int64]:
    """Return the place in `SPLITS` of each row; rows of the same text have the same."""
    texts, text_of_row = np.unique(survey.texts, return_inverse=True)
    rows, labels = survey.pairs
    used, label = np.unique(labels, return_inverse=True)
    different = np.unique(text_of_row[rows] * len(used) + label)  # a text and a label as one number
    pairs = LabelledTexts(len(texts), len(used), different // len(used), different % len(used))
    dealt = deal_evenly(pairs, shares, seed=seed) if stratify else deal_at_random(len(texts), shares, seed=seed)
    give_train_every_label(pairs, dealt)
    for place, (split, share) in enumerate(zip(SPLITS, shares, strict=True)):
        if share and not (dealt == place).any():
            raise InputError(
                f"none of the {len(texts):,} different texts is left for the split {split!r}",
                path=path,
                remedy="give it a larger share, or add documents: every label needs one in train first",
            )
    return dealt[text_of_row]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """How many texts and labels there are, numbered from 0, and which text has which label: pairs in two (P,) arrays.

    Every label occurs.
    """

    texts: int
    labels: int
    text: NDArray[np.int64]
    label: NDArray[np.int64]


def deal_evenly(pairs: LabelledTexts, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, by iterative stratification (Sechidis et al., 2011).

    Rarest label first, each text goes to the split that is furthest from its share of that label; the seed decides
    between equals. The shares of the splits add up to 1.
    """
    require_extra("iterstrat", extra="data", capability="A stratified split")
    from iterstrat.ml_stratifiers import IterativeStratification

    size = 3 * pairs.texts * pairs.labels
    if size > LARGEST_TABLE:
        raise InputError(
            f"stratifying {pairs.texts:,} texts over {pairs.labels:,} labels would take {size / 2**30:.1f} GB",
            remedy="--no-stratify splits at random",
        )
    seconds = SECONDS_PER_CELL * pairs.texts * pairs.labels**2
    if seconds > LONG:
        logger.warning(
            "stratifying %d texts over %d labels may take some %d minutes; --no-stratify splits at random, at once",
            pairs.texts,
            pairs.labels,
            np.ceil(seconds / 60),
        )
    random = np.random.default_rng(seed)
    order = random.permutation(pairs.texts)
    dealt = np.empty(pairs.texts, dtype=np.int64)
    table = np.zeros((pairs.texts, pairs.labels), dtype=np.bool_)
    table[pairs.text, pairs.label] = True
    # The function behind the library's splitters: it deals to any number of splits in one go, they to two only.
    dealt[order] = IterativeStratification(labels=table[order], r=shares, random_state=random)
    return dealt


def deal_at_random(texts: int, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, regardless of its labels; the shares of the splits add up to 1."""
    ends = np.rint(np.cumsum(shares) * texts).astype(np.int64)
    dealt = np.empty(texts, dtype=np.int64)
    dealt[np.random.default_rng(seed).permutation(texts)] = np.searchsorted(ends, np.arange(texts), side="right")
    return dealt


def give_train_every_label(pairs: LabelledTexts, dealt: NDArray[np.int64]) -> None:
    """Move one text of each label that has none in train there, in place: it could not be learned otherwise."""
    order = np.argsort(pairs.label, kind="stable")
    texts = pairs.text[order]
    starts = np.searchsorted(pairs.label[order], np.arange(pairs.labels + 1))
    trained = np.bincount(pairs.label[dealt[pairs.text] == TRAIN], minlength=pairs.labels)
    for label in np.flatnonzero(trained == 0).tolist():
        own = texts[starts[label] : starts[label + 1]]
        if (dealt[own] != TRAIN).all():  # unless a text moved for another label has this one too
            dealt[own[0]] = TRAIN


def split_result(summary: CorpusSummary, surveys: Mapping[str, TextSurvey], dealt: NDArray[np.int64]) -> SplitResult:
    """Return how the labels came out."""
    rows, labels = surveys["train"].pairs
    used, label = np.unique(labels, return_inverse=True)
    overall = np.bincount(label, minlength=len(used)) / len(dealt)
    without, deviation = {}, {}
    for place in np.unique(dealt).tolist():
        uses = np.bincount(label[dealt[rows] == place], minlength=len(used))
        without[SPLITS[place]] = int(np.count_nonzero(uses == 0))
        deviation[SPLITS[place]] = float(np.abs(uses / np.count_nonzero(dealt == place) - overall).mean())
    kept = [np.unique(survey.texts) for split, survey in surveys.items() if split != "train"]
    shared = np.intersect1d(np.concatenate(kept), surveys["train"].texts) if kept else ()
    return SplitResult(summary, len(used), without, deviation, len(shared))
