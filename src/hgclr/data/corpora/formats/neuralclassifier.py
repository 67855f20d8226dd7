"""Prepare corpora in the format of Tencent's NeuralClassifier: JSON lines with labels such as ``A--B--C``."""

from __future__ import annotations

from pathlib import Path

from hgclr.data.corpora.formats.label_trees import label_tree
from hgclr.data.corpora.formats.labelled_lines import JSON_ENDINGS, json_lines, prepare_lines
from hgclr.data.corpora.formats.split_files import find_split_files
from hgclr.data.corpora.writing import Progress, Summary

__all__ = ["prepare_neuralclassifier"]

KEYS = (("doc_token", "doc_label"),)
SEPARATOR = "--"
"""What stands between the names of a path; the program knows no other."""


def prepare_neuralclassifier(
    source: Path | None,
    output: str | Path,
    *,
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    add_ancestors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write a corpus in NeuralClassifier's format as a data folder.

    A line is ``{"doc_token": ["words", …], "doc_label": ["Computer--MachineLearning", …]}``; ``doc_keyword`` and
    ``doc_topic`` are ignored. A label is a path and brings the labels above it. Without a label tree, the tree is drawn
    from the paths of all splits: a label's id is its path as written, its name the last part. With one, a label
    may also be a single id or name, as in the program's flat files.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the development file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder, if any.
        add_ancestors: labels that are no paths are only the deepest ones; add the ones above. Needs a label tree.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a broken line, an unknown label, or one without its parent.
    """
    files = find_split_files(source, endings=JSON_ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    return prepare_lines(
        output,
        name="neuralclassifier",
        settings={"add_ancestors": add_ancestors},
        files=files,
        read=lambda path: json_lines(path, KEYS),
        labels=label_tree(files.taxonomy, separator=SEPARATOR, add_ancestors=add_ancestors),
        progress=progress,
    )
