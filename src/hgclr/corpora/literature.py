"""How the paper's corpora were prepared, and whether a data folder was."""

from __future__ import annotations

import logging
from pathlib import Path

from hgclr.data.folder_writer import RECORD
from hgclr.files import read_json

__all__ = ["LITERATURE", "warn_unless_literature"]

logger = logging.getLogger(__name__)
LITERATURE = {
    "wos": {"labels": "literature"},
    "nyt": {"text": "literature"},
    "rcv1": {"text": "literature", "label_names": "codes"},
}
"""Options of ``hgclr data prepare`` with which published figures were made, by corpus."""


def warn_unless_literature(folder: Path) -> None:
    """Warn if ``hgclr data prepare`` made one of the paper's corpora otherwise than it was made for published figures.

    Of a folder that something else made nothing is known.
    """
    record = folder / RECORD
    if not record.is_file():
        return
    made = read_json(record)
    settings = made.get("settings", {})
    for option, wanted in LITERATURE.get(made.get("corpus"), {}).items():
        if settings.get(option) != wanted:
            name = f"--{option.replace('_', '-')}"
            logger.warning(
                "%s was prepared with %s %s; the paper's figures are of %s %s",
                folder,
                name,
                settings.get(option),
                name,
                wanted,
            )
