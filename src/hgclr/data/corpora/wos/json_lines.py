"""Read the literature's JSON lines: ``doc_token``, the text, and ``doc_label``, its domain and area."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hgclr.data.readers import json_rows
from hgclr.data.rows import BadRow
from hgclr.errors import InputError

__all__ = ["JsonRow", "compare_with_literature", "read_json_lines"]

logger = logging.getLogger(__name__)

TEXT, LABELS = "doc_token", "doc_label"

GIT_BLOBS = {
    "wos_train.json": "7b6f0e9dd5d80a6b7dd41d2219f6f36bc3783237",
    "wos_val.json": "244bd84c65b7f2781e48064af74c1fbbe7c0a3e9",
    "wos_test.json": "9e97b3c447c929f7b02e6d0a960a44db9ce2541a",
}
"""What git calls the content of the files with which the literature's figures were made."""


class JsonRow(NamedTuple):
    """A row, its text cleaned and its names merged by the literature's program.

    Args:
        number: its line in the file, counted from 1.
        domain: the name of the domain.
        area: the name of the area.
        text: the text, which may be empty.
    """

    number: int
    domain: str
    area: str
    text: str


def read_json_lines(path: Path) -> Iterator[JsonRow]:
    """Yield the rows of a file in order.

    Raises:
        InputError: with the line, if a row is not of the literature's form.
    """
    with path.open("rb") as lines:
        for row in json_rows(lines, path, (TEXT, LABELS)):
            if isinstance(row, BadRow):
                raise InputError(row.reason, path=path, line=row.number)
            text, labels = row.values[TEXT], row.values[LABELS]
            if not isinstance(text, str):
                raise InputError(f"{TEXT} is not a string", path=path, line=row.number)
            match labels:
                case [str(domain), str(area)] if domain.strip() and area.strip():
                    pass
                case _:
                    raise InputError(f"{LABELS} is {labels!r}, not a domain and an area", path=path, line=row.number)
            _check_unicode(text + domain + area, path, row.number)
            yield JsonRow(row.number, domain.strip(), area.strip(), text.strip().lower())


def compare_with_literature(path: Path) -> None:
    """Log whether one of the three files of splits is the one that the literature uses."""
    blob = git_blob(path)
    if blob == GIT_BLOBS[path.name]:
        logger.info("%s is the literature's file", path)
    else:
        logger.warning("%s is not the literature's file: git blob %s, not %s", path, blob, GIT_BLOBS[path.name])


def git_blob(path: Path) -> str:
    """Return what git calls the content of a file: the SHA-1 of ``blob``, its size, a zero byte and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def _check_unicode(text: str, path: Path, number: int) -> None:
    """Refuse half a surrogate pair, which JSON can escape and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("not valid Unicode text", path=path, line=number, remedy="correct its \\u escapes") from None
