"""Review queues: the rows of a file, first those that a person should look at, with suggested labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hgclr.bulk.files import read_chunks, table_cell
from hgclr.data.adding import LABEL, REASON, SUGGESTIONS
from hgclr.data.folder import DataFolder
from hgclr.data.readers import EXCEL, is_blank
from hgclr.decisions.review import NO_REASON, REASONS, TrainingDistance, best_paths, review
from hgclr.errors import InputError, require_extra
from hgclr.files import table_writer
from hgclr.inference.classifier import HierarchicalClassifier, sampled
from hgclr.taxonomy import Taxonomy

SAMPLED = 4000
"""Maximum number of training texts that texts are compared with."""
WIDTH, TEXT_WIDTH, PATH_WIDTH = 14, 80, 40
"""Widths of columns in characters."""
ADDED = {
    name: width
    for path in SUGGESTIONS.values()
    for name, width in ((path, PATH_WIDTH), (path.replace("path", "probability"), WIDTH))
} | {REASON: 26, LABEL: PATH_WIDTH}
"""The columns that a review adds, with their widths."""


@dataclass(frozen=True)
class ReviewQueue:
    """A review file that was written.

    Args:
        output: the file.
        rows: number of its rows.
        reasons: number of its rows by reason.
        left_out: number of usable rows beyond ``top``.
        bad, blank: number of unusable and of blank rows, which are not in the file.
        compared: number of training texts that the texts were compared with; 0 if they were not.
    """

    output: Path
    rows: int
    reasons: dict[str, int]
    left_out: int
    bad: int
    blank: int
    compared: int

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return asdict(self) | {"output": str(self.output)}


class _Entry(NamedTuple):
    """A row of the queue; entries sort by it, highest score first, then in the order of the file."""

    negative_score: float
    place: int
    reason: str
    paths: list[tuple[int, float]]
    cells: dict[str, Any]


def write_review(
    classifier: HierarchicalClassifier,
    source: str | Path,
    output: str | Path,
    *,
    training: DataFolder | None = None,
    text_columns: Sequence[str] = ("text",),
    top: int | None = None,
    skip_bad_rows: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ReviewQueue:
    """Write the rows of a file, sorted by :func:`hgclr.decisions.review.review`, with suggested paths, to a table.

    The columns are those of the file, ``path 1``, ``probability 1`` and so on to 3, ``reason``, and an empty column
    ``label`` to fill in; :func:`hgclr.data.adding.add_tables` reads the result. All rows of the queue are in memory.

    Args:
        classifier: the model.
        source: the texts: a file that ``hgclr predict`` reads.
        output: the file to write, ``.xlsx`` or ``.csv``.
        training: the data folder whose train split, or a random sample of 4,000 of its documents, texts are compared
            with; needs a torch model.
        text_columns: the text is in the first of these columns that the file has.
        top: number of rows to write; by default all.
        skip_bad_rows: leave bad rows out instead of raising at the first.
        progress: called with the number of texts done since the last call.

    Raises:
        InputError: at a bad row; if the file has a column that a review adds; if the output cannot be written.
    """
    source, output = Path(source), Path(output)
    if not output.name.lower().endswith((EXCEL, ".csv")):
        raise InputError("unknown format", path=output, remedy="write to a file that ends in .xlsx or .csv")
    if output.name.lower().endswith(EXCEL):
        require_extra("openpyxl", extra="data", capability=f"Writing {output.name}")
    decisions, taxonomy, distance, compared = classifier.decisions, classifier.taxonomy, None, 0
    if training is not None:
        known = [document.text for document in sampled(training, "train", SAMPLED)]
        if len(known) > 1:
            distance, compared = TrainingDistance(np.concatenate(list(classifier.vectors(known)))), len(known)
    queue: list[_Entry] = []
    columns: dict[str, int] = {}
    usable = bad = blank = 0
    for chunk in read_chunks(source, text_columns):
        if chunk.problems and not skip_bad_rows:
            raise chunk.problems[0].error()
        cells = chunk.cells()
        for name in dict.fromkeys(chain.from_iterable(cells)):
            if name in ADDED:
                what = f"the input already has a column {name!r}, which hgclr review adds"
                raise InputError(what, path=source, remedy="rename the column")
            columns[name] = TEXT_WIDTH if name in text_columns else WIDTH
        rows = [(text, row) for text, row in zip(chunk.texts, cells, strict=True) if isinstance(text, str)]
        filled = [(text, row) for text, row in rows if not is_blank(text)]
        bad, blank = bad + len(chunk.problems), blank + len(rows) - len(filled)
        if not filled:
            continue
        texts = [text for text, _ in filled]
        probabilities = classifier.predict_proba(texts)
        distances = None if distance is None else distance(np.concatenate(list(classifier.vectors(texts))))
        found = review(decisions, probabilities, distances)
        best = best_paths(probabilities, decisions.decoder, len(SUGGESTIONS))
        places = range(usable, usable + len(filled))
        own = [row for _, row in filled]
        queue += map(_Entry, (-found.score).tolist(), places, found.reason, best, own)
        queue = sorted(queue, key=lambda entry: entry[:2])[:top]
        usable += len(filled)
        if progress is not None:
            progress(len(filled))
    try:
        with table_writer(output, list((columns | ADDED).values())) as table:
            table.writerow(columns | ADDED)
            for entry in queue:
                paths = [(taxonomy.path_name(label), round(probability, 4)) for label, probability in entry.paths]
                suggested = chain.from_iterable([*paths, *[("", "")] * (len(SUGGESTIONS) - len(paths))])
                cells_of_file = (table_cell(entry.cells.get(name)) for name in columns)
                table.writerow([*cells_of_file, *suggested, entry.reason, ""])
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=output) from None
    reasons = Counter(entry.reason for entry in queue)
    counts = {reason: reasons[reason] for reason in (*REASONS, NO_REASON) if reasons[reason]}
    return ReviewQueue(output, len(queue), counts, usable - len(queue), bad, blank, compared)


def training_data(model: Path, taxonomy: Taxonomy) -> DataFolder | None:
    """Return the data folder of the run that a model is from, if it is here and has the model's label tree."""
    from hgclr.training.run_checks import CONFIG, data_folder
    from hgclr.training.settings import RunConfig

    with suppress(InputError):
        run = RunConfig.read(model.resolve().parent / CONFIG)
        if run.data.path.is_dir():
            data = data_folder(run, run.data.taxonomy)
            return data if data.taxonomy == taxonomy and "train" in data.splits else None
    return None
