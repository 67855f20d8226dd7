"""Excel workbooks from CSV and back, for the page, which reads and writes CSV itself."""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Callable
from pathlib import Path

from hgclr.data.readers import LONGEST_CELL, sheet_rows
from hgclr.errors import InputError
from hgclr.files import check_archive, sheet_writer

CSV = "text/csv"
WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
UNPACKED = 16
"""Limit on the unpacked bytes of a workbook, and on the CSV, in bodies of the largest size."""


def to_csv(workbook: bytes, largest: int, check_wanted: Callable[[], None]) -> bytes:
    """Return the first sheet of a workbook as CSV in UTF-8.

    Raises:
        InputError: if it is damaged, or larger than ``largest`` bytes when unpacked or as CSV.
    """
    name, stream = Path("workbook.xlsx"), io.BytesIO(workbook)
    if zipfile.is_zipfile(stream):  # else sheet_rows says what is wrong
        check_archive(name, largest, stream)
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    for cells, _ in sheet_rows(name, stream):
        check_wanted()
        writer.writerow(cells)
        if table.tell() > largest:
            raise InputError(f"the first sheet is larger than {largest:,} bytes", remedy="save it as CSV")
    return table.getvalue().encode(errors="replace")


def to_workbook(table: bytes, check_wanted: Callable[[], None]) -> bytes:
    """Return a workbook with one sheet of the rows of a CSV table in UTF-8; numbers become numbers, all else text.

    Raises:
        InputError: if it is not such a table, or exceeds a limit of Excel.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    content = io.BytesIO()
    try:
        with sheet_writer(content) as sheet:
            for row in csv.reader(io.StringIO(table.decode(), newline=""), strict=True):
                check_wanted()
                sheet.writerow(map(_number, row))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a CSV table in UTF-8: {error}") from None
    return content.getvalue()


def _number(text: str) -> str | int | float:
    """Return a number if exactly this text is how it is written."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return value
    return text
