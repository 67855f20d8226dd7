"""Read a report back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.reporting.content import KIND, VERSION

__all__ = ["FILE", "read_report"]

FILE = "report.json"
REMEDY = "give a folder that hgclr evaluate --report wrote"
ANEW = "evaluate the model anew"
NEEDED = {"model", "data", "split", "documents", "documents_digest", "decisions", "scores", "intervals", "ranking"}
NEEDED |= {"calibration", "labels", "resampled"}


def read_report(place: str | Path) -> dict[str, Any]:
    """Return what report.json holds.

    Args:
        place: the folder of a report, or its report.json.

    Raises:
        InputError: if there is no report, or none that this version can read.
    """
    path = Path(place)
    if path.is_dir():
        path = path / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"no report: {error.strerror}", path=path, remedy=REMEDY) from None
    except ValueError as error:
        raise InputError(f"broken: {error}", path=path, remedy=ANEW) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError("not a report", path=path, remedy=REMEDY)
    if content.get("version") != VERSION:
        what = f"a report of version {content.get('version')!r}, where {VERSION} is needed"
        raise InputError(what, path=path, remedy=ANEW)
    if missing := sorted(NEEDED - content.keys()):
        raise InputError(f"broken: {missing[0]!r} is missing", path=path, remedy=ANEW)
    return content
