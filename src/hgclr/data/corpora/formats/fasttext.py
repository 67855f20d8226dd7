"""Prepare corpora in fastText's format: a document a line, its labels marked by ``__label__``."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from hgclr.data.corpora.formats.label_trees import label_tree
from hgclr.data.corpora.formats.labelled_lines import LabelledLine, open_lines, prepare_lines
from hgclr.data.corpora.formats.split_files import find_split_files
from hgclr.data.corpora.writing import Progress, Summary
from hgclr.errors import InputError

__all__ = ["fasttext_lines", "prepare_fasttext"]

ENDINGS = ("", ".txt", ".ft", ".ft.txt")
"""How the files end: ``cooking.train``, ``train.txt``, ``train.ft.txt``."""

SPACE = re.compile(r"[ \t\v\f\r\n\0]+")
"""What stands between words for fastText; other white space, such as that which does not break, is part of them."""


def prepare_fasttext(
    source: Path | None,
    output: str | Path,
    *,
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    path_separator: str | None = "/",
    label_prefix: str = "__label__",
    add_ancestors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write a corpus in fastText's format as a data folder.

    As fastText has it, every word of a line that begins with the prefix is a label, wherever it stands; the other words
    are the text, joined by a space. Without a label tree, the tree is drawn from the paths of all splits:
    ``__label__food/bread`` has the labels ``food`` and ``food/bread``.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the validation file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder, if any.
        path_separator: what stands between the names of a path; None if labels are plain names.
        label_prefix: what marks a label.
        add_ancestors: labels that are no paths are only the deepest ones; add the ones above. Needs a label tree.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a line that is not UTF-8, an unknown label, or one without its parent.
    """
    if not label_prefix or SPACE.search(label_prefix) or path_separator == "":
        raise InputError(
            "the label prefix and the path separator must not be empty, and the prefix holds no space",
            remedy="give the prefix that marks labels in the files; --path-separator none if labels are no paths",
        )
    files = find_split_files(source, endings=ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    return prepare_lines(
        output,
        name="fasttext",
        settings={"path_separator": path_separator, "label_prefix": label_prefix, "add_ancestors": add_ancestors},
        files=files,
        read=lambda path: fasttext_lines(path, label_prefix),
        labels=label_tree(files.taxonomy, separator=path_separator, add_ancestors=add_ancestors),
        progress=progress,
    )


def fasttext_lines(path: Path, label_prefix: str) -> Iterator[LabelledLine]:
    """Yield the documents of a file, skipping blank lines.

    Args:
        path: the file.
        label_prefix: what marks a label.

    Raises:
        InputError: with file and line, if a line is not UTF-8.
    """
    with open_lines(path) as stream:
        for number, data in enumerate(stream, 1):
            if number == 1:
                data = data.removeprefix(codecs.BOM_UTF8)
            try:
                words = [word for word in SPACE.split(data.decode()) if word]
            except UnicodeDecodeError as error:
                what = f"not UTF-8: byte 0x{data[error.start]:02x} at byte {error.start + 1} of the line"
                raise InputError(what, path=path, line=number, remedy="save the file as UTF-8") from None
            if words:
                labels = [word.removeprefix(label_prefix) for word in words if word.startswith(label_prefix)]
                text = " ".join(word for word in words if not word.startswith(label_prefix))
                yield LabelledLine(number, text, labels)
