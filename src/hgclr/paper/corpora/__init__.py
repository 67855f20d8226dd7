"""Corpora that others publish, turned into data folders.

Everything here raises :class:`~hgclr.errors.InputError`, with file and place, for input that cannot be used.
"""

from __future__ import annotations

from pathlib import Path

from hgclr.data.folder import remembered

__all__ = ["LITERATURE", "other_than_literature"]

LITERATURE = {
    "wos": {"labels": "literature"},
    "nyt": {"text": "literature"},
    "rcv1": {"text": "literature", "label_names": "codes"},
}
"""Options of ``hgclr data prepare`` with which published figures were made, by corpus."""


def other_than_literature(folder: Path) -> list[str]:
    """Return where ``hgclr data prepare`` made one of the paper's corpora otherwise than for published figures.

    Nothing is known of a folder that something else made.
    """
    wanted, settings = LITERATURE.get(str(remembered(folder).get("corpus")), {}), remembered(folder, "settings")
    return [
        f"prepared with --{option.replace('_', '-')} {settings.get(option)}; published figures are of {value}"
        for option, value in wanted.items()
        if settings and settings.get(option) != value
    ]
