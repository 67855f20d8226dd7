"""Table 1: the statistics of the paper's corpora, counted in data folders, beside those that the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hgclr.data.folder import DataFolder
from hgclr.data.statistics import describe
from hgclr.files import json_bytes, write_files
from hgclr.paper.corpora import other_than_literature
from hgclr.paper.summary import MISSING, csv_bytes, markdown_table
from hgclr.paper.systems import CORPORA

__all__ = ["PRINTED", "CorpusFigures", "CorpusLine", "count_corpus", "figure_cells", "write_table1"]


@dataclass(frozen=True)
class CorpusFigures:
    """A line of the table; None for a split that is not there, and labels per document with all their ancestors."""

    labels: int
    depth: int
    labels_per_document: float
    train: int | None
    dev: int | None
    test: int | None


PRINTED = {
    "wos": CorpusFigures(141, 2, 2.0, 30_070, 7_518, 9_397),
    "nyt": CorpusFigures(166, 8, 7.6, 23_345, 5_834, 7_292),
    "rcv1": CorpusFigures(103, 4, 3.24, 20_833, 2_316, 781_265),
}
"""What the paper prints."""
HEAD = ["Dataset", "|Y|", "Depth", "Avg(|y|)", "Train", "Dev", "Test"]


@dataclass(frozen=True)
class CorpusLine:
    """A corpus as the paper has it and as a data folder does; ``notes`` say where the folder was made otherwise."""

    paper: CorpusFigures
    ours: CorpusFigures
    notes: list[str]


def count_corpus(corpus: str, folder: Path, progress: Callable[[int], None] | None = None) -> CorpusLine:
    """Count a data folder as one of the paper's corpora, a key of :data:`PRINTED`."""
    counted = describe(DataFolder(folder), progress=progress)
    sizes = {split: survey.documents for split, survey in counted.splits.items()}
    ours = CorpusFigures(
        len(counted.taxonomy),
        counted.taxonomy.depth,
        counted.labels_per_document,
        *(sizes.get(split) for split in ("train", "dev", "test")),
    )
    return CorpusLine(PRINTED[corpus], ours, other_than_literature(folder))


def figure_cells(lines: Mapping[str, CorpusLine]) -> list[list[str]]:
    """Return the headings, and two rows for each corpus: the paper's and ours."""
    rows = [HEAD]
    for corpus, line in lines.items():
        for whose, figures in (("paper", line.paper), ("ours", line.ours)):
            sizes = (MISSING if size is None else f"{size:,}" for size in (figures.train, figures.dev, figures.test))
            average = f"{figures.labels_per_document:.2f}"
            rows.append([f"{CORPORA[corpus]}, {whose}", str(figures.labels), str(figures.depth), average, *sizes])
    return rows


def write_table1(lines: Mapping[str, CorpusLine], output: Path, command: str) -> list[Path]:
    """Write ``table1.md``, ``table1.csv`` and ``table1.json``, each whole or not at all, and return the files."""
    text = ["# Table 1: the paper's corpora", "", *markdown_table(figure_cells(lines)), ""]
    text += ["Labels are |Y|; Avg(|y|) is the mean number of labels of a document, ancestors counted.", ""]
    if notes := [f"- {CORPORA[corpus]}: {note}." for corpus, line in lines.items() for note in line.notes]:
        text += [*notes, ""]
    text += [f"Made by `{command}`.", ""]
    rows = [
        {"corpus": corpus, "whose": whose, **asdict(figures)}
        for corpus, line in lines.items()
        for whose, figures in (("paper", line.paper), ("ours", line.ours))
    ]
    content = {"corpora": {corpus: asdict(line) for corpus, line in lines.items()}, "command": command}
    files = {
        "table1.md": "\n".join(text).encode(),
        "table1.csv": csv_bytes(rows),
        "table1.json": json_bytes(content),
    }
    return write_files(output, files)
