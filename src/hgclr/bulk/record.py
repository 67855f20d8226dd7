"""The record of a run in its folder of results: what it was told, and which files are finished.

It is a file of JSON lines. The first says what decides the results. Then, for each file, one line when it is begun and
one when its result is in place; a line is on the disk before the next step is taken.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.files import atomic_file

__all__ = ["FILE", "RunRecord", "identity"]

FILE = ".hgclr-bulk.jsonl"
ANEW = "give another folder as --output, or label everything anew with --overwrite"


class RunRecord:
    """Know which files need not be labelled again.

    Args:
        folder: the folder of results.
        settings: all that decides what the results are, in plain Python types, under names that a message can use.
        overwrite: forget an earlier run.

    Raises:
        InputError: if an earlier run had other settings, or its record cannot be read.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = folder / FILE
        self._overwrite = overwrite
        self._begun: set[str] = set()
        self._done: dict[str, dict[str, Any]] = {}
        if self.path.is_file() and not overwrite:
            self._read(json.loads(json.dumps(settings)))
        else:
            with _writing(self.path), atomic_file(self.path) as path:
                path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")

    def finished(self, source: Path, target: Path) -> dict[str, Any] | None:
        """Return what was noted when a result was finished; None if it is not, or its input has changed since.

        Raises:
            InputError: if there is a file in its place that is no result of this run.
        """
        noted = self._done.get(target.name)
        if not target.exists():
            return None
        if noted is None and target.name not in self._begun and not self._overwrite:
            raise InputError("is there already, and no result of this run", path=target, remedy=ANEW)
        return noted if noted is not None and noted["input"] == identity(source) else None

    def begin(self, target: Path) -> None:
        """Note that a result is about to be written, and clear away what an attempt that was killed has left."""
        for leftover in target.parent.glob(f".{_literal(target.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
        self._done.pop(target.name, None)
        self._append({"begun": target.name})

    def finish(self, target: Path, identity: Mapping[str, Any], rows: int, bad_rows: int) -> None:
        """Note that a result is in place.

        Args:
            target: the result.
            identity: of its input, before it was read.
            rows: how many there are.
            bad_rows: how many of them have no labels because they could not be labelled.
        """
        self._append({"finished": target.name, "input": identity, "rows": rows, "bad_rows": bad_rows})

    def _append(self, line: Mapping[str, Any]) -> None:
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, settings: Mapping[str, Any]) -> None:
        try:
            content = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path, remedy=ANEW) from None
        whole, _, torn = content.rpartition("\n")  # the machine may have stopped in the middle of a line
        lines = whole.split("\n")
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line), first=number == 1, settings=settings)
            except (ValueError, KeyError, TypeError):
                raise InputError("the record of the run is broken", path=self.path, line=number, remedy=ANEW) from None
        if torn:
            with atomic_file(self.path) as path:
                path.write_text(whole + "\n", encoding="utf-8")

    def _take(self, line: dict[str, Any], *, first: bool, settings: Mapping[str, Any]) -> None:
        if first:
            earlier = line["settings"]
            if other := [name for name in settings if earlier[name] != settings[name]]:
                raise InputError(
                    f"the results in this folder were made with another {' and another '.join(other)}",
                    path=self.path.parent,
                    remedy=ANEW,
                )
        elif "begun" in line:
            self._begun.add(line["begun"])
            self._done.pop(line["begun"], None)
        else:
            self._done[line["finished"]] = {name: line[name] for name in ("input", "rows", "bad_rows")}


def identity(source: Path) -> dict[str, Any]:
    """Return what tells whether a file is still the same: its name, size and time of change."""
    try:
        status = source.stat()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=source) from None
    return {"name": source.name, "size": status.st_size, "changed": status.st_mtime_ns}


def _literal(name: str) -> str:
    """Return a pattern that stands for just this name."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None
