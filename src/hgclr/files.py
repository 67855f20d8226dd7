"""Read regular files only; write files and folders whole or not at all."""

from __future__ import annotations

import csv
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from hgclr.errors import InputError, refuse_url
from hgclr.locks import take

__all__ = [
    "HARMLESS",
    "TableWriter",
    "atomic_file",
    "atomic_folder",
    "cache_dir",
    "check_archive",
    "check_output",
    "flush",
    "json_bytes",
    "json_text",
    "open_regular",
    "read_bytes",
    "read_json",
    "recover_folder",
    "sha256",
    "write_files",
    "write_json",
]


HOLDING, OLD = ".tmp", "old"
"""What ends the name of a folder that is being written, and the name in it of the one it replaces."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the start of a formula, or passes over before one."""
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that a terminal obeys (C0, DEL, C1), or that end a line or turn its order round (bidirectional text)."""
HARMLESS = {code: " " for code in CONTROLS if chr(code) not in "\n\t"}
"""What stands for them where people read; one for one, because marks go by the places of characters."""
CONTROL = re.compile(f"[{''.join(map(chr, CONTROLS[32:]))}]")
"""Those of them that JSON's own rules do not escape."""
LARGEST = 2**28
"""Bytes that a file which is read whole may have."""
MEMBERS = 10_000
"""Files that an archive may have in it of which all are read."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
_renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None


def cache_dir() -> Path:
    """Return the user's cache folder: ``$HGCLR_CACHE``, else ``$XDG_CACHE_HOME/hgclr``, else ``~/.cache/hgclr``."""
    if chosen := os.environ.get("HGCLR_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hgclr"


@contextmanager
def atomic_file(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; rename it over ``target`` when the block succeeds.

    Raises:
        OSError: if it cannot be written; it names the target.
    """
    target = Path(target)
    with _target_named(target), _new_file(target) as temporary:
        yield temporary
        _settle(temporary)
        temporary.replace(target)
        flush(target.parent)


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """Yield a new file beside ``target``, which is removed at the end if it is still there."""
    _make_parent(target)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target``; put it in the place of ``target`` when the block succeeds.

    At every moment either the old folder is there or the new one, where the system can exchange two; elsewhere the next
    reader or writer puts the old one back (:func:`recover_folder`). Of several writers the last one wins.

    Raises:
        OSError: if it cannot be written; it names the target.
    """
    target = Path(target)
    recover_folder(target)
    with _target_named(target), _holding_folder(target) as holding:
        new = holding / "new"
        new.mkdir()
        yield new
        for path in new.rglob("*"):
            _settle(path)
        _settle(new)
        _put(new, target, holding / OLD)
        flush(target.parent)


def recover_folder(target: Path) -> None:
    """Remove what writers that died have left beside a folder; if one died while it replaced it, put the old one back.

    It is called for every folder that is written, and by those who read one that they do not find.
    """
    pattern = re.compile(re.escape(f".{target.name}.") + r"\w{8}" + re.escape(HOLDING))
    try:
        left = [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return
    for holding in left:
        with suppress(OSError), _locked(holding) as ours:
            if ours:  # else its writer is alive
                _discard(holding, target)


def _discard(holding: Path, target: Path) -> None:
    """Remove a writer's folder; an old one in it that nothing has replaced goes back to its place."""
    if (holding / OLD).exists() and not target.exists():
        with suppress(OSError):  # another writer was faster
            (holding / OLD).rename(target)
    shutil.rmtree(holding, ignore_errors=True)


@contextmanager
def _holding_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target`` that is locked for as long as we live, and removed at the end."""
    _make_parent(target)
    while True:
        holding = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=HOLDING))
        with ExitStack() as stack:
            try:
                ours = stack.enter_context(_locked(holding)) and holding.exists()
            except FileNotFoundError:
                ours = False
            if not ours:  # another writer took it for what a dead one left
                continue
            stack.callback(_discard, holding, target)
            yield holding
            return


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold a lock on a folder, which the system ends with the process; yield whether nobody else has it."""
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield take(descriptor)
    finally:
        os.close(descriptor)


def _put(new: Path, target: Path, old: Path) -> None:
    """Put a folder in the place of another, or where there is none; others may be doing the same."""
    while True:
        try:
            if _exchange(new, target):
                return
            with suppress(FileNotFoundError):
                target.rename(old)
            new.rename(target)  # which succeeds only where nothing is
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)  # another writer was faster: its folder is the old one now
            continue
        return


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places at once; return whether both are there and the system can."""
    if _renameat2 is None or not other.exists():
        return False
    sys.audit("os.rename", str(one), str(other), -1, -1)
    failed: int = _renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return not failed


def _make_parent(target: Path) -> None:
    refuse_url(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target)) from None


@contextmanager
def _target_named(target: Path) -> Iterator[None]:
    """Let errors of the file system name a target, not the temporary place beside it; a full disk names none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and f".{target.name}." not in str(error.filename)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error


def check_output(folder: Path) -> None:
    """Refuse a place where no folder can be, before any work is done."""
    refuse_url(folder)
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        what = "the output is a file" if folder.exists() else f"cannot be written: {place} is a file"
        raise InputError(what, path=folder, remedy="give a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"cannot be written: {os.strerror(errno.EACCES)}", path=folder)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read; a pipe or a device, on which a program may wait for ever, is refused at once.

    Raises:
        OSError: if it cannot be opened, or is no regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for whoever writes to it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """Return what is in a regular file.

    Raises:
        OSError: as :func:`open_regular` does, or if it has more than :data:`LARGEST` bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST:
            raise OSError(errno.EINVAL, f"more than {LARGEST:,} bytes", str(path))
        return file.read(size)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_archive(path: Path, largest: int) -> None:
    """Refuse a zip archive that unpacks to more than ``largest`` bytes, or has more than :data:`MEMBERS` files in it.

    Readers unpack no more than its directory says, which is all that is looked at here.
    """
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        sizes = [member.file_size for member in archive.infolist()]
    if sum(sizes) > largest or len(sizes) > MEMBERS:
        what = f"unpacks to {sum(sizes):,} bytes in {len(sizes):,} files"
        limit = f"more than {largest:,} bytes or {MEMBERS:,} files are not read"
        raise InputError(what, path=path, remedy=limit)


def read_json(path: Path, *, remedy: str | None = None) -> Any:
    """Read a JSON file.

    Raises:
        InputError: if it cannot be read, or is no JSON.
    """
    try:
        return json.loads(read_bytes(path).decode())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path, remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", path=path, remedy=remedy) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_files(path.parent, {path.name: json_bytes(value)})


class TableWriter:
    """Write rows of CSV, or with another ``delimiter``; what a spreadsheet would run as a formula becomes a text.

    Such cells get the apostrophe before them that people type for the same end; numbers do not. ``raw`` leaves all
    cells as they are, but for what would give orders to a terminal. ``form`` is what else :func:`csv.writer` takes.
    """

    def __init__(self, stream: IO[str], *, raw: bool = False, **form: Any) -> None:
        self._writer, self._raw, self._shown = csv.writer(stream, **form), raw, stream.isatty()

    def writerow(self, cells: Iterable[object]) -> None:
        if self._shown:
            cells = (cell.translate(HARMLESS) if isinstance(cell, str) else cell for cell in cells)
        self._writer.writerow(cells if self._raw else map(_harmless, cells))


def _harmless(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def json_text(value: Any, **form: Any) -> str:
    """Return a value as JSON that people can read, and that gives no orders to a terminal on which it is shown.

    ``form`` is what else :func:`json.dumps` takes.
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, **form))


def json_bytes(value: Any) -> bytes:
    """Return a JSON file's content, indented."""
    return (json_text(value, indent=2) + "\n").encode()


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files by name into a folder, each whole or not at all, and return their paths.

    The folder is made if it is not there; what else is in it stays.
    """
    for name, content in files.items():
        try:
            with atomic_file(folder / name) as path:
                path.write_bytes(content)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=folder / name) from error
    return [folder / name for name in files]


def _settle(path: Path) -> None:
    """Give ``path`` the mode the umask asks for (libraries and tempfile use 0600) and flush it to disk."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
    flush(path)


def flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
