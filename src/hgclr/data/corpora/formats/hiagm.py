"""Prepare corpora in HiAGM's format: JSON lines with ``token`` and ``label``, and a ``.taxonomy`` file."""

from __future__ import annotations

from pathlib import Path

from hgclr.data.corpora.formats.label_trees import label_tree
from hgclr.data.corpora.formats.labelled_lines import JSON_ENDINGS, json_lines, prepare_lines
from hgclr.data.corpora.formats.split_files import find_split_files
from hgclr.data.corpora.writing import Progress, Summary
from hgclr.errors import InputError

__all__ = ["prepare_hiagm"]

KEYS = (("token", "label"), ("doc_token", "doc_label"))
"""The keys of HiAGM's programs, and those that its scripts for Web of Science and New York Times write."""


def prepare_hiagm(
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
    """Write a corpus in HiAGM's format as a data folder.

    A line is ``{"token": ["words", …], "label": ["CCAT", "C15", …]}``; the words may also be one string, and other keys
    (``doc_topic``, ``doc_keyword``) are ignored. Words are joined by a space. A label is an id in the label tree (a
    path, for New York Times), or a name that one label alone has.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the development file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder.
        add_ancestors: documents name only their deepest labels; add the ones above.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a broken line, an unknown label, or one without its parent.
    """
    files = find_split_files(source, endings=JSON_ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    if files.taxonomy is None:
        raise InputError(
            "there is no label tree beside the documents",
            path=files.splits["train"].parent,
            remedy="name the .taxonomy file with --taxonomy",
        )
    return prepare_lines(
        output,
        name="hiagm",
        settings={"add_ancestors": add_ancestors},
        files=files,
        read=lambda path: json_lines(path, KEYS),
        labels=label_tree(files.taxonomy, separator=None, add_ancestors=add_ancestors),
        progress=progress,
    )
