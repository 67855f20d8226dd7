"""The record of a bulk run, ``.hgclr-bulk.jsonl`` in the folder of results: which files need not be labelled again."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hgclr.decisions.settings import FILE as DECISIONS
from hgclr.errors import InputError
from hgclr.inference.manifest import FILE as MANIFEST
from hgclr.inference.manifest import READ
from hgclr.remote import exists, facts, is_file, new_file, open_file
from hgclr.urls import url_of

__all__ = ["FILE", "LOCK", "RunRecord", "fingerprint", "identity"]

FILE = ".hgclr-bulk.jsonl"
LOCK = ".hgclr-bulk.lock"
"""Held while a run writes: a second one would take its unfinished files for leftovers."""
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
        self._written = json.dumps({"settings": settings}) + "\n"
        if is_file(self.path) and not overwrite:
            self._read(json.loads(json.dumps(settings)))
        else:
            self._write()

    def is_finished(self, source: Path, target: Path) -> bool:
        """Tell whether a result is there, and its input has not changed since; refuse files of others in its place."""
        if not exists(target):
            return False
        noted = self._done.get(target.name)
        if noted is None and target.name not in self._begun and not self._overwrite:
            raise InputError("is there already, and no result of this run", path=target, remedy=ANEW)
        return noted is not None and noted == identity(source)

    def begin(self, target: Path) -> None:
        """Note that a result is about to be written, and clear away what an attempt that was killed has left."""
        if url_of(target) is None:
            for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
        self._done.pop(target.name, None)
        self._append({"begun": target.name})

    def finish(self, target: Path, identity: Mapping[str, Any], rows: int, bad_rows: int) -> None:
        """Note that a result is in place, with the identity of its input before it was read."""
        self._append({"finished": target.name, "input": identity, "rows": rows, "bad_rows": bad_rows})

    def _append(self, line: Mapping[str, Any]) -> None:
        self._written += json.dumps(line) + "\n"
        if url_of(self.path) is not None:  # nothing can be added to an object
            self._write()
            return
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _write(self) -> None:
        with _writing(self.path), new_file(self.path) as path:
            path.write_text(self._written, encoding="utf-8")

    def _read(self, settings: Mapping[str, Any]) -> None:
        try:
            with open_file(self.path) as file:
                content = file.read().decode()
        except UnicodeDecodeError:
            raise InputError("the record of the run is broken", path=self.path, remedy=ANEW) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path, remedy=ANEW) from None
        whole, _, torn = content.rpartition("\n")  # the machine may have stopped in the middle of a line
        for number, line in enumerate(whole.split("\n"), 1):
            try:
                event = json.loads(line)
                if number == 1:
                    self._compare(event["settings"], settings)
                elif "begun" in event:
                    self._begun.add(event["begun"])
                    self._done.pop(event["begun"], None)
                else:
                    self._done[event["finished"]] = event["input"]
            except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
                raise InputError("the record of the run is broken", path=self.path, line=number, remedy=ANEW) from None
        self._written = whole + "\n"
        if torn:
            self._write()

    def _compare(self, earlier: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        if other := [name for name in settings if earlier.get(name, False) != settings[name]]:
            raise InputError(
                f"the results in this folder were made with another {' and another '.join(other)}",
                path=self.path.parent,
                remedy=ANEW,
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def identity(source: Path, *, fresh: bool = False) -> dict[str, Any]:
    """Return what tells whether a file is still the same: its name, size and time of change, or what a store says."""
    size, changed = facts(source, fresh=fresh)
    return {"name": source.name, "size": size, "changed": changed}


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of everything in a model's folder that its probabilities are computed from.

    How it decides is not among that: the decisions that are really taken are compared by themselves.
    """
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix.lower() in READ and path.name not in (DECISIONS, MANIFEST):
            with path.open("rb") as file:
                whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()
