"""Write the files of a report or a comparison, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.reporting.plots import require_plots

__all__ = ["check_output", "json_file"]


def check_output(folder: Path) -> None:
    """Refuse a place where nothing can be written, before any work is done.

    Raises:
        InputError: if the place is a file.
        MissingExtraError: if matplotlib is not installed.
    """
    require_plots()
    if folder.exists() and not folder.is_dir():
        raise InputError("the output is a file", path=folder, remedy="give a folder")


def json_file(content: Mapping[str, Any]) -> bytes:
    """Return a JSON file with one line for each part: thousands of numbers on lines of their own help nobody."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
