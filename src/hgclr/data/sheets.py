"""The rows of a spreadsheet."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

from hgclr.errors import InputError, require_extra

__all__ = ["sheet_rows"]

DAMAGE = (
    BadZipFile,
    EOFError,
    zlib.error,
    ParseError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What openpyxl and the unpacking beneath it raise over a file that is no workbook, or only part of one."""


def sheet_rows(path: Path) -> Iterator[tuple[list[str], int | None]]:
    """Yield the cells of the first sheet's rows as texts, and how many rows the sheet says it has.

    Empty cells at the end of a row, which a sheet need not store, are left out.
    """
    require_extra("openpyxl", extra="data", capability=f"Reading {path.name}")
    from openpyxl import load_workbook

    number = 0
    try:
        with closing(load_workbook(path, read_only=True, data_only=True)) as workbook:
            sheet = workbook.worksheets[0]
            total = sheet.max_row
            sheet.reset_dimensions()  # programs write wrong ones, and openpyxl would cut the rows to them
            for values in sheet.iter_rows(values_only=True):
                number += 1
                cells = [_cell_text(value) for value in values]
                while cells and not cells[-1].strip():
                    cells.pop()
                yield cells, total
    except DAMAGE as error:
        # The parser reads ahead of the rows that it hands out, so the place is not exact.
        place = f" somewhere after row {number}" if number else ""
        raise InputError(
            f"damaged, truncated or no XLSX file{place}: {error}", path=path, remedy="copy it again from its source"
        ) from None


def _cell_text(value: object) -> str:
    """Return what a cell of a sheet shows; whole numbers may be stored as 3.0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
