"""Read arXiv's metadata snapshot record by record, in flat memory: plain, gzipped, or zipped as Kaggle hands it out."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from hgclr.errors import InputError

__all__ = ["records"]

FIELDS = ("id", "title", "abstract", "categories")
"""What every record must have, as text."""

LONGEST_LINE = 2**24
"""Bytes; the longest records, of papers with thousands of authors, have some hundred thousand. A file without line
ends would otherwise be pulled into memory whole."""

REPORT_EVERY = 1000
BUFFER = 2**18
AGAIN = "get the file again and compare its size with the publisher's"


def records(path: Path, report: Callable[[int], None] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the fields of every record.

    Args:
        path: the snapshot; the name ends in ``.gz`` or ``.zip`` if it is packed.
        report: called now and then, and at the end, with the bytes of the file that have been read.

    Raises:
        InputError: with the line, if the file is damaged, truncated, or something else.
    """
    number = 0
    with _opened(path) as (stream, file):
        while True:
            with _damage_reported(path, number + 1):
                line = stream.readline(LONGEST_LINE + 1)
            if not line:
                break
            number += 1
            if line.strip():
                yield number, _record(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, path, number)
            if report is not None and number % REPORT_EVERY == 0:
                report(file.tell())
        if report is not None:
            report(path.stat().st_size)


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the fields of one line."""
    if len(line) > LONGEST_LINE:
        raise InputError(
            f"no line end in {LONGEST_LINE:,} bytes",
            path=path,
            line=number,
            remedy="the snapshot has one record a line",
        )
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            what = "truncated: the file ends in the middle of a record"
            raise InputError(what, path=path, line=number, remedy=AGAIN) from None
        raise InputError(f"broken record: {error}", path=path, line=number, remedy=AGAIN) from None
    for field in FIELDS:
        if not isinstance(record, dict) or not isinstance(record.get(field), str):
            raise InputError(
                f"the record has no text {field!r}",
                path=path,
                line=number,
                remedy="the file must be arXiv's metadata snapshot, one JSON record a line",
            )
    return cast(dict[str, Any], record)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the snapshot; give the unpacked stream and the file underneath, whose place tells how far reading is."""
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "no such file"
        raise InputError(what, path=path, remedy="name arxiv-metadata-oai-snapshot.json, or its .gz or .zip")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        stream: BinaryIO = file
        name = path.name.lower()
        if name.endswith(".gz"):
            stream = _buffered(stack.enter_context(gzip.GzipFile(fileobj=file)))
        elif name.endswith(".zip"):
            with _damage_reported(path, None):
                archive = stack.enter_context(zipfile.ZipFile(file))
                stream = _buffered(stack.enter_context(archive.open(_only_member(archive, path))))
        yield stream, file


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the one JSON file in an archive."""
    members = [member for member in archive.infolist() if member.filename.lower().endswith(".json")]
    if len(members) != 1:
        found = ", ".join(repr(member.filename) for member in members[:3]) or "none"
        raise InputError(f"{len(members)} JSON files in the archive ({found})", path=path, remedy="unpack the snapshot")
    return members[0]


def _buffered(stream: object) -> BinaryIO:
    """Give a stream whose lines are found in C."""
    return io.BufferedReader(cast(io.RawIOBase, stream), BUFFER)


@contextmanager
def _damage_reported(path: Path, line: int | None) -> Iterator[None]:
    """Turn what gzip and zip raise into an error that names the place."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        here = "" if line is None else "cannot be unpacked from here on: "
        what = f"damaged or truncated archive: {here}{error or 'it ends early'}"
        raise InputError(what, path=path, line=line, remedy=AGAIN) from None
    except (NotImplementedError, RuntimeError) as error:  # a packing that Python does not know, or a password
        raise InputError(f"the archive cannot be unpacked: {error}", path=path, remedy="unpack it yourself") from None
