"""Write an audit for a reviewer: a table to fill in, JSON for programs, a page to look at."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from hgclr.auditing.page import audit_page
from hgclr.auditing.results import Audit
from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.inference.predictions import PredictedLabel

__all__ = ["COLUMNS", "check_output", "write_audit", "write_csv", "write_json"]

COLUMNS = ("row", "text", "given", "suggested", "kind", "level", "score", "verdict")
"""Of the table; the last is empty, for the reviewer."""


def check_output(folder: Path) -> None:
    """Refuse a place where nothing can be written, before any work is done.

    Raises:
        InputError: if the place is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("the output is a file", path=folder, remedy="give a folder")


def write_audit(folder: Path, audit: Audit) -> list[Path]:
    """Write ``audit.html``, ``audit.csv`` and ``audit.json`` and return their paths; other files in the folder stay.

    Raises:
        InputError: if one cannot be written.
    """
    paths = [folder / "audit.html", folder / "audit.csv", folder / "audit.json"]
    _write(paths[0], audit_page(audit))
    write_csv(paths[1], audit)
    write_json(paths[2], audit)
    return paths


def write_csv(target: Path, audit: Audit, *, label_separator: str = "; ", path_separator: str = " > ") -> None:
    """Write the findings as a table, one document a row, the strongest contradiction first.

    The file begins with a byte order mark: without it, spreadsheets take UTF-8 for something else.

    Args:
        target: the file.
        audit: what was found.
        label_separator: between the paths of a document.
        path_separator: between the names of a path.

    Raises:
        InputError: if the file cannot be written.
    """

    def paths(labels: tuple[PredictedLabel, ...]) -> str:
        return label_separator.join(path_separator.join(label.path) for label in labels)

    try:
        with atomic_file(target) as temporary, temporary.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            writer.writerows(
                (
                    finding.row,
                    finding.text,
                    paths(finding.given),
                    paths(finding.suggested),
                    finding.kind,
                    finding.level,
                    f"{finding.score:.4f}",
                    "",
                )
                for finding in audit.findings
            )
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from error


def write_json(target: Path, audit: Audit) -> None:
    """Write everything that was found.

    Raises:
        InputError: if the file cannot be written.
    """
    _write(target, json.dumps(audit.to_json(), indent=2, ensure_ascii=False) + "\n")


def _write(target: Path, content: str) -> None:
    try:
        with atomic_file(target) as temporary:
            temporary.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from error
