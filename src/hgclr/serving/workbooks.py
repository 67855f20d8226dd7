"""Excel workbooks from CSV and back, for the page, which reads and writes CSV itself."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

from hgclr.data.readers import LONGEST_CELL, sheet_rows
from hgclr.errors import InputError, require_extra
from hgclr.files import check_archive

CSV = "text/csv"
WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
UNPACKED = 16
"""Limit on the unpacked bytes of a workbook, and on the CSV, in bodies of the largest size."""
EXACT = 10**15
"""Excel rounds numbers from here on; they stay text."""


def to_csv(workbook: bytes, largest: int, check_wanted: Callable[[], None]) -> bytes:
    """Return the first sheet of a workbook as CSV in UTF-8.

    Raises:
        InputError: if it is damaged, or larger than ``largest`` bytes when unpacked or as CSV.
    """
    with tempfile.TemporaryDirectory(prefix="hgclr-") as folder, io.StringIO(newline="") as table:
        path = Path(folder) / "workbook.xlsx"
        path.write_bytes(workbook)
        if workbook.startswith(b"PK"):  # else sheet_rows says what is wrong
            check_archive(path, largest)
        writer = csv.writer(table)
        for cells, _ in sheet_rows(path):
            check_wanted()
            writer.writerow(cells)
            if table.tell() > largest:
                raise InputError(f"the first sheet is larger than {largest:,} bytes", remedy="save it as CSV")
        return table.getvalue().encode(errors="replace")


def to_workbook(table: bytes, check_wanted: Callable[[], None]) -> bytes:
    """Return a workbook with one sheet of the rows of a CSV table in UTF-8; numbers become numbers, all else text."""
    require_extra("openpyxl", extra="data", capability="Writing .xlsx")
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet()
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    try:
        for row in csv.reader(io.StringIO(table.decode(), newline=""), strict=True):
            check_wanted()
            cells = [WriteOnlyCell(sheet, _number(ILLEGAL_CHARACTERS_RE.sub(" ", text))) for text in row]
            for cell in cells:
                if isinstance(cell.value, str):
                    cell.data_type = "s"  # not a formula
            sheet.append(cells)
        workbook.save(content := io.BytesIO())
    except (ValueError, csv.Error) as error:
        raise InputError(f"not a CSV table in UTF-8: {error}") from None
    return content.getvalue()


def _number(text: str) -> str | int | float:
    """Return a number if exactly this text is how it is written."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and abs(value) < EXACT:
            return value
    return text
