"""The rows of a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hgclr.errors import InputError, first_line, refuse_broken, require_extra
from hgclr.files import check_archive, open_regular

__all__ = ["sheet_rows"]

LARGEST = 2**29
"""Bytes that a workbook may unpack to; openpyxl holds all of its texts in memory."""


def sheet_rows(path: Path) -> Iterator[tuple[list[str], int | None]]:
    """Yield the cells of the first sheet's rows as texts, and how many rows the sheet says it has.

    Empty cells at the end of a row, which a sheet need not store, are left out.

    Raises:
        InputError: if the file is no workbook, only part of one, or unpacks to more than :data:`LARGEST` bytes.
    """
    require_extra("openpyxl", extra="data", capability=f"Reading {path.name}")
    from openpyxl import load_workbook

    number = 0

    def refusal(error: BaseException) -> InputError:
        # The parser reads ahead of the rows that it hands out, so the place is not exact.
        place = f" somewhere after row {number}" if number else ""
        what = f"damaged, truncated or no XLSX file{place}: {first_line(error)}"
        return InputError(what, path=path, remedy="copy it again from its source")

    with refuse_broken(refusal):
        check_archive(path, LARGEST)
        with open_regular(path) as file, closing(load_workbook(file, read_only=True, data_only=True)) as workbook:
            sheet = workbook.worksheets[0]
            total = sheet.max_row
            sheet.reset_dimensions()  # programs write wrong ones, and openpyxl would cut the rows to them
            for values in sheet.iter_rows(values_only=True):
                number += 1
                cells = [_cell_text(value) for value in values]
                while cells and not cells[-1].strip():
                    cells.pop()
                yield cells, total


def _cell_text(value: object) -> str:
    """Return what a cell of a sheet shows; whole numbers may be stored as 3.0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
