"""Find the files to label, by names, folders and patterns, and name the files that their results go to."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from hgclr.data.readers import SUFFIXES
from hgclr.errors import InputError
from hgclr.remote import exists, find_files, is_dir, is_file
from hgclr.urls import as_written, url_of

__all__ = [
    "FileFormat",
    "TextFormat",
    "find_inputs",
    "format_of",
    "is_pattern",
    "output_format",
    "pair_with_targets",
    "target_of",
]

FileFormat = Literal["jsonl", "csv", "parquet"]
"""What results can be asked for; without being asked they have the format of their input."""


class TextFormat(NamedTuple):
    """The format of one file: ``jsonl``, ``csv``, ``tsv`` or ``parquet``, and whether it is packed with gzip."""

    name: str
    gzipped: bool

    @property
    def suffix(self) -> str:
        """How the names of such files end."""
        return f".{self.name}.gz" if self.gzipped else f".{self.name}"


def format_of(path: Path) -> TextFormat:
    """Return the format of a file, which its name must tell."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise InputError("unknown format", path=path, remedy="its name must end in " + ", ".join(SUFFIXES))
    return TextFormat(name.removesuffix(".gz").rpartition(".")[2], name.endswith(".gz"))


def output_format(output: Path | None, wanted: FileFormat | None) -> TextFormat:
    """Return the format of one file of results: that which is wanted, else what its name says.

    Standard output (None) and a name without an ending have JSON lines.

    Raises:
        InputError: if the name ends in something else, or standard output is to be Parquet.
    """
    if wanted == "parquet" and output is None:
        raise InputError("Parquet is not written to standard output", remedy="name a file with --output")
    if wanted is not None:
        return TextFormat(wanted, output is not None and output.name.endswith(".gz") and wanted != "parquet")
    if output is None or not output.suffix:
        return TextFormat("jsonl", False)
    try:
        return format_of(output)
    except InputError as error:
        raise InputError(
            error.what, path=output, remedy=f"{error.remedy}, or say what to write with --format"
        ) from None


def target_of(source: Path, folder: Path, wanted: FileFormat | None) -> Path:
    """Return where the result of a file goes: a file of the same name, with another ending for another format."""
    kind = format_of(source)
    if wanted is None or wanted == kind.name:
        return folder / source.name
    stem = source.name[: -len(kind.suffix)]
    return folder / (stem + TextFormat(wanted, kind.gzipped and wanted != "parquet").suffix)


def is_pattern(name: str | Path) -> bool:
    """Tell whether a name is a pattern such as ``part-*.parquet``; a file that has that very name comes first."""
    return glob.has_magic(str(name)) and not exists(name)


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once, in the order of the names; within one of them by their own names.

    Args:
        names: files; folders, which stand for the files in them that can be read (not for those in folders below); and
            patterns with ``*``, ``?``, ``[…]`` or ``**``; all of these also as URLs in object stores.

    Raises:
        InputError: if there is no such file, or a folder or a pattern stands for none.
    """
    return list(dict.fromkeys(_whole(path) for name in names for path in _meant(name)))


def _whole(path: Path) -> Path:
    """Return an absolute path, without links; a URL as it is."""
    return path.resolve() if url_of(path) is None else path


def _meant(name: str | Path) -> list[Path]:
    path, url = Path(name), url_of(name)
    if is_file(name):
        return [path]
    if is_dir(name):
        inside = path.iterdir() if url is None else find_files(f"{glob.escape(url)}/*")
        readable = (file for file in inside if url is not None or file.is_file())
        files = sorted(file for file in readable if file.name.lower().endswith(SUFFIXES) and file.name[0] != ".")
        if not files:
            raise InputError("no files to label", path=path, remedy="their names must end in " + ", ".join(SUFFIXES))
        return files
    if not is_pattern(name):
        raise InputError("no such file or folder", path=path)
    if url is not None:
        files = find_files(url)
    else:
        files = sorted(Path(match) for match in glob.glob(str(name), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
    if not files:
        raise InputError(f"no file has a name like {as_written(name)!r}")
    return files


def pair_with_targets(
    names: Sequence[str | Path], sources: Sequence[Path], folder: Path, wanted: FileFormat | None
) -> list[tuple[Path, Path]]:
    """Return every input with the file that its result goes to.

    Two results must not have the same name, and input and results must not mix: no folder among the ``names`` that were
    asked for may hold the folder of results.
    """
    where = _whole(folder)
    if exists(where) and not is_dir(where):
        raise InputError("not a folder, and results of bulk prediction go to one", path=folder)
    for name in names:
        if where.is_relative_to(_whole(Path(name))) and is_dir(name):
            raise InputError(
                f"lies in the input folder {as_written(name)}",
                path=folder,
                remedy="give an --output outside the input folder",
            )
    pairs: dict[Path, Path] = {}
    for source in sources:
        if source.is_relative_to(where):
            raise InputError(
                f"an input lies in the output folder {as_written(folder)}",
                path=source,
                remedy="give another folder as --output",
            )
        target = target_of(source, folder, wanted)
        if target in pairs:
            raise InputError(
                f"{as_written(pairs[target])} and {as_written(source)} would both be written to {as_written(target)}",
                remedy="rename one of them, or label them into different folders",
            )
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]
