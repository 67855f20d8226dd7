"""File formats by their names, and the names that results get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hgclr.data.readers import SUFFIXES
from hgclr.errors import InputError

__all__ = ["FORMATS", "FileFormat", "Kind", "format_of", "target_of"]

FileFormat = Literal["jsonl", "csv", "parquet"]
"""What results can be asked for; without being asked they have the format of their input."""
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)


@dataclass(frozen=True, slots=True)
class Kind:
    """The format of one file.

    Args:
        name: ``jsonl``, ``csv``, ``tsv`` or ``parquet``.
        gzipped: whether it is packed with gzip.
    """

    name: str
    gzipped: bool

    @property
    def suffix(self) -> str:
        """Return how the names of such files end."""
        return f".{self.name}.gz" if self.gzipped else f".{self.name}"


def format_of(path: Path) -> Kind:
    """Return the format of a file, which its name tells.

    Raises:
        InputError: if it does not.
    """
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise InputError("unknown format", path=path, remedy="its name must end in " + ", ".join(SUFFIXES))
    return Kind(name.removesuffix(".gz").rpartition(".")[2], name.endswith(".gz"))


def target_of(source: Path, folder: Path, wanted: FileFormat | None) -> Path:
    """Return where the result of a file goes: a file of the same name, with another ending for another format."""
    kind = format_of(source)
    if wanted is None or wanted == kind.name:
        return folder / source.name
    stem = source.name[: -len(kind.suffix)]
    return folder / (stem + Kind(wanted, kind.gzipped and wanted != "parquet").suffix)
