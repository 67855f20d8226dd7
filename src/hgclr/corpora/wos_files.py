"""Find and read the files of Web of Science: the publisher's table, and the literature's JSON lines."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hgclr.data.folder_writer import Progress
from hgclr.data.readers import good_json_rows
from hgclr.data.sheets import sheet_rows
from hgclr.errors import InputError

__all__ = ["JSON", "Abstract", "TableRow", "compare_with_literature", "find_files", "read_json_lines", "read_table"]

logger = logging.getLogger(__name__)
SPREADSHEET, TEXT, JSON = (".xlsx",), (".txt", ".tsv"), (".json", ".jsonl")
"""How the names of the files end, by kind."""
PUBLISHED = ("Meta-data/Data.xlsx", "Data.xlsx", "Meta-data/Data.txt", "Data.txt")
TOTAL = "wos_total.json"
PARTS = ("wos_train.json", "wos_val.json", "wos_test.json")
TEXT_KEY, LABELS = "doc_token", "doc_label"
GIT_BLOBS = {
    "wos_train.json": "7b6f0e9dd5d80a6b7dd41d2219f6f36bc3783237",
    "wos_val.json": "244bd84c65b7f2781e48064af74c1fbbe7c0a3e9",
    "wos_test.json": "9e97b3c447c929f7b02e6d0a960a44db9ce2541a",
}
"""What git calls the content of the files with which the literature's figures were made."""
COLUMNS = ("Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract")


def find_files(source: Path) -> tuple[Path, ...]:
    """Return one file with all rows, or the three files of the literature's train, validation and test splits.

    A folder may hold several of them. The publisher's own come first, because only they have the names as printed.
    """
    if source.is_dir():
        files = _choose(source)
    elif not source.is_file():
        raise InputError("no such file or folder", path=source)
    elif source.name in PARTS:
        raise InputError(
            "this is one of three files, each with a split of its own",
            path=source,
            remedy=f"name the folder with {', '.join(PARTS)}",
        )
    elif not source.name.lower().endswith(SPREADSHEET + TEXT + JSON):
        raise InputError(
            "unknown format", path=source, remedy=f"its name must end in {', '.join(SPREADSHEET + TEXT + JSON)}"
        )
    else:
        files = (source,)
    for file in files:
        try:
            file.open("rb").close()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=file) from None
    return files


def _choose(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that are to be read; log which others there are."""
    single = [folder / name for name in (*PUBLISHED, TOTAL) if (folder / name).is_file()]
    parts = [folder / name for name in PARTS if (folder / name).is_file()]
    if single:
        if others := [str(path.relative_to(folder)) for path in (*single[1:], *parts)]:
            logger.warning("reading %s, not %s, which the folder holds as well", single[0], ", ".join(others))
        return (single[0],)
    if not parts:
        names = ", ".join((*PUBLISHED, TOTAL, PARTS[0]))
        raise InputError("no file of Web of Science in this folder", path=folder, remedy=f"it must hold one of {names}")
    if missing := [name for name in PARTS if folder / name not in parts]:
        raise InputError(f"no {missing[0]} beside {parts[0].name}", path=folder, remedy="all three splits are needed")
    return tuple(parts)


class Abstract(NamedTuple):
    """A document-to-be: the file and the row in it, the upper and the lower label, and the text, perhaps empty."""

    where: str
    domain: str
    area: str
    text: str


def read_json_lines(path: Path) -> Iterator[Abstract]:
    """Yield the rows of a file in order, as the literature's program cleaned their texts and merged their names."""
    for row in good_json_rows(path, (TEXT_KEY, LABELS)):
        text, labels = row.values[TEXT_KEY], row.values[LABELS]
        if not isinstance(text, str):
            raise InputError(f"{TEXT_KEY} is not a string", path=path, line=row.number)
        match labels:
            case [str(domain), str(area)] if domain.strip() and area.strip():
                pass
            case _:
                raise InputError(f"{LABELS} is {labels!r}, not a domain and an area", path=path, line=row.number)
        try:
            (text + domain + area).encode()
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape and UTF-8 cannot hold
            remedy = "correct its \\u escapes"
            raise InputError("not valid Unicode text", path=path, line=row.number, remedy=remedy) from None
        yield Abstract(f"{path.name}:{row.number}", domain.strip(), area.strip(), text.strip().lower())


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


class TableRow(NamedTuple):
    """A row as printed, with the white space around its names removed; the abstract may be empty.

    The header is row 1; the code is Y1 and Y2, the publisher's numbers of the domain and of the area in it.
    """

    number: int
    code: tuple[int, int]
    domain: str
    area: str
    abstract: str


def read_table(path: Path, progress: Progress | None = None) -> Iterator[TableRow]:
    """Yield the rows of an XLSX or tab-separated table in order; empty rows at its end are no rows.

    Raises:
        InputError: with the row, if the table is not of the publisher's form or the file is damaged.
        MissingExtraError: if the ``data`` extra is not installed and the file is a spreadsheet.
    """
    is_spreadsheet = path.name.lower().endswith(SPREADSHEET)
    empty: int | None = None
    for number, (cells, total) in enumerate(_spreadsheet_rows(path) if is_spreadsheet else _text_rows(path), 1):
        if not any(cell.strip() for cell in cells):
            empty = empty or number
            continue
        if empty is not None:
            raise InputError("an empty row between others", path=path, line=empty, remedy="delete it")
        if number == 1:
            _check_header(cells, path)
            continue
        yield _row(number, cells, path)
        if progress is not None:
            progress(number - 1, total)


def _check_header(cells: list[str], path: Path) -> None:
    found = [cell.strip() for cell in cells]
    if [name.casefold() for name in found] != [name.casefold() for name in COLUMNS]:
        raise InputError(
            f"the columns are {', '.join(found)[:200]}",
            path=path,
            line=1,
            remedy=f"they must be {', '.join(COLUMNS)}, with a tab between them in a text file",
        )


def _row(number: int, cells: list[str], path: Path) -> TableRow:
    if len(cells) != len(COLUMNS):
        raise InputError(
            f"{len(cells)} column{'s' * (len(cells) != 1)} instead of {len(COLUMNS)}",
            path=path,
            line=number,
            remedy="a cell must hold neither tabs nor line breaks",
        )
    first, second, _, domain, area, _, abstract = cells
    for name, value in (("Domain", domain), ("area", area)):
        if not value.strip():
            raise InputError(f"no {name}", path=path, line=number)
    code = (_whole_number("Y1", first, path, number), _whole_number("Y2", second, path, number))
    return TableRow(number, code, domain.strip(), area.strip(), abstract)


def _whole_number(column: str, cell: str, path: Path, number: int) -> int:
    digits = cell.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise InputError(f"{column} is {cell!r}, not a whole number", path=path, line=number)
    return int(digits)


def _spreadsheet_rows(path: Path) -> Iterator[tuple[list[str], int | None]]:
    """Yield the cells of the first sheet's rows, and how many rows the sheet says it has, without the header."""
    for cells, total in sheet_rows(path):
        yield cells + [""] * (len(COLUMNS) - len(cells)), total - 1 if total else None


def _text_rows(path: Path) -> Iterator[tuple[list[str], None]]:
    """Yield the cells of every line. Quotes mean nothing: the literature splits at every tab."""
    encoding, number = _encoding(path), 0
    try:
        with path.open(encoding=encoding) as lines:
            for line in lines:
                number += 1
                yield line.rstrip("\n").split("\t"), None
    except UnicodeError as error:
        raise InputError(f"no {encoding} text somewhere after row {number}: {error}", path=path) from None


def _encoding(path: Path) -> str:
    """Return the encoding of a text file: UTF-16 if it is marked as such, UTF-8 if it can be, else Windows'.

    The UTF-16 is what Excel saves as "Unicode text", the last what it saves as "text" on a western Windows.
    """
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            with path.open(encoding=encoding) as lines:
                for _ in lines:
                    pass
        except UnicodeDecodeError:
            continue
        if encoding == "cp1252":
            logger.warning("%s is not UTF-8: read as Windows-1252 (Western European)", path)
        return encoding
    logger.warning("%s is neither UTF-8 nor Windows-1252: read as Latin-1", path)
    return "latin-1"
