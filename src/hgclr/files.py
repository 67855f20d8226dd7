"""Safe reading of regular files, atomic writing of files and folders, and locks."""

from __future__ import annotations

import csv
import ctypes
import errno
import gzip
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from hgclr.errors import InputError, refuse_url, require_extra

if TYPE_CHECKING:
    from filelock import BaseFileLock

HOLDING, OLD, LOCK = ".tmp", "old", "lock"
"""Suffix of the hidden folder where a folder is written, and names of the replaced folder and the lock in it."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Prefixes of a cell that a spreadsheet runs as a formula, or skips before one."""
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that control a terminal (C0, DEL, C1), end a line, or change the direction of text."""
HARMLESS = {code: " " for code in CONTROLS if chr(code) not in "\n\t"}
"""Their replacements on a terminal; one for one, because highlighted words are found by character positions."""
CONTROL = re.compile(f"[{''.join(map(chr, CONTROLS[32:]))}]")
"""Control characters that JSON does not escape."""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML, and so a workbook, cannot hold."""
CODED = re.compile("_x([0-9A-Fa-f]{4})_")
"""A character in a workbook's text, written as its code."""
SHEET_ROWS, SHEET_COLUMNS, SHEET_CELL = 2**20, 2**14, 2**15 - 1
"""Excel's limits: rows and columns of a sheet, and characters (of UTF-16) in a cell."""
LARGEST = 2**28
"""Maximum bytes of a file that is read at once."""
MEMBERS = 10_000
"""Maximum number of files in an archive that is read at once."""
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

    An :class:`OSError` names the target, not the temporary path.
    """
    target = Path(target)
    with _target_named(target):
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        os.close(descriptor)
        temporary = Path(name)
        try:
            yield temporary
            _finish(temporary)
            temporary.replace(target)
            flush(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target``; replace ``target`` by it when the block succeeds.

    On Linux either the old or the new folder exists at every moment. Elsewhere, if a writer is killed between two
    renames, the next reader or writer restores the old folder (:func:`recover_folder`). Of several writers the last
    one wins. An :class:`OSError` names the target.
    """
    target = Path(target)
    recover_folder(target)
    with _target_named(target):
        while True:
            holding = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=HOLDING))
            lock = _try_lock(holding / LOCK)
            if lock is not None:  # else another writer deleted it as a leftover
                break
        try:
            new = holding / "new"
            new.mkdir()
            yield new
            for path in new.rglob("*"):
                _finish(path)
            _finish(new)
            _replace(new, target, holding / OLD)
            flush(target.parent)
        finally:
            _discard(holding, target, lock)


def recover_folder(target: Path) -> None:
    """Delete the temporary folders of killed writers; if one died while replacing ``target``, restore the old folder.

    Call it before writing a folder, and when a folder to read is missing.
    """
    pattern = re.compile(re.escape(f".{target.name}.") + r"\w{8}" + re.escape(HOLDING))
    try:
        left = [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return
    for holding in left:
        with suppress(OSError):
            if (lock := _try_lock(holding / LOCK)) is not None:  # else its writer is alive
                _discard(holding, target, lock)


def _try_lock(file: Path) -> BaseFileLock | None:
    """Return a lock on a file, or None if another process holds it or deletes its folder."""
    from filelock import FileLock, Timeout

    lock = FileLock(file, timeout=0)
    try:
        return lock.acquire().lock
    except (Timeout, FileExistsError, FileNotFoundError):  # the last two: its folder was deleted meanwhile
        return None


def _discard(holding: Path, target: Path, lock: BaseFileLock) -> None:
    """Delete a writer's temporary folder; restore an old folder in it if the target is missing."""
    if (holding / OLD).exists() and not target.exists():
        with suppress(OSError):  # another writer was faster
            (holding / OLD).rename(target)
    if sys.platform == "win32":  # Windows deletes no open file
        lock.release()
    shutil.rmtree(holding, ignore_errors=True)
    lock.release()


def _replace(new: Path, target: Path, old: Path) -> None:
    """Move a folder to ``target``, replacing an existing one; other processes may do the same."""
    while True:
        if _renameat2 is not None and target.exists():
            sys.audit("os.rename", str(new), str(target), -1, -1)
            if not _renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(target), RENAME_EXCHANGE):
                return
        try:
            with suppress(FileNotFoundError):
                target.rename(old)
            new.rename(target)  # fails if another writer has put a folder there
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def locked(file: Path, doing: str, *, remedy: str | None) -> Iterator[None]:
    """Hold a lock while the block runs; the operating system releases it when the process ends.

    Args:
        file: the lock file, in the locked folder. It names its owner, for the error in another process.
        doing: the owner's task, such as ``training``.
        remedy: advice in the error for a second process; with None it waits instead.
    """
    from filelock import FileLock, Timeout

    refuse_url(file)
    made = not file.parent.exists()
    # The timeout allows a second attempt if the owner deletes the file between opening and locking.
    lock = FileLock(file, timeout=-1 if remedy is None else 0.1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        owner = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        raise InputError(owner or "another process is using it", path=file.parent, remedy=remedy) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=file) from error
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner = f"process {os.getpid()} on {socket.gethostname()} has been {doing} here since {since}"
        with suppress(OSError):
            file.write_text(owner, encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # before the release: afterwards it may be another process's lock
        lock.release()
        if made:
            with suppress(OSError):
                file.parent.rmdir()  # if nothing was written


@contextmanager
def _target_named(target: Path) -> Iterator[None]:
    """Create the folder of a target; make errors of the file system name the target, not the temporary path."""
    refuse_url(target)
    try:
        with suppress(FileExistsError):  # if it is a file, the next step fails and names it
            target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and f".{target.name}." not in str(error.filename)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error


def check_output(folder: Path) -> None:
    """Raise if no folder can be written at this path, before any work is done."""
    refuse_url(folder)
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        what = "the output is a file" if folder.exists() else f"cannot be written: {place} is a file"
        raise InputError(what, path=folder, remedy="choose a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"cannot be written: {os.strerror(errno.EACCES)}", path=folder)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read; raise :class:`OSError` for a pipe or a device, where reading may block forever."""
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; raise :class:`OSError` if it has more than :data:`LARGEST` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST:
            raise OSError(errno.EINVAL, f"more than {LARGEST:,} bytes", str(path))
        return file.read(size)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_archive(path: Path, largest: int, stream: IO[bytes] | None = None) -> None:
    """Raise if a zip archive, by its directory, unpacks to more than ``largest`` bytes or :data:`MEMBERS` files.

    ``stream`` is the open archive, if it is not to be opened from ``path``.
    """
    with open_regular(path) if stream is None else nullcontext(stream) as file, zipfile.ZipFile(file) as archive:
        sizes = [member.file_size for member in archive.infolist()]
    if sum(sizes) > largest or len(sizes) > MEMBERS:
        what = f"unpacks to {sum(sizes):,} bytes in {len(sizes):,} files"
        raise InputError(what, path=path, remedy=f"reduce it to at most {largest:,} bytes and {MEMBERS:,} files")


def read_json(path: Path, *, remedy: str | None = None) -> Any:
    """Read a JSON file; raise :class:`InputError` if it cannot be read or is not JSON."""
    try:
        return json.loads(read_bytes(path).decode())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path, remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", path=path, remedy=remedy) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_files(path.parent, {path.name: json_bytes(value)})


def gzip_stream(raw: IO[bytes], mode: Literal["rb", "wb"] = "wb") -> gzip.GzipFile:
    """Return a gzip stream; its header has no name and no time, so the same content gives the same bytes."""
    return gzip.GzipFile("", mode, 6, raw, mtime=0)


class TableWriter:
    """Writes rows of CSV, with an apostrophe before a text that a spreadsheet would run as a formula.

    ``raw`` does not change such cells. ``form`` are further arguments of :func:`csv.writer`. On a terminal, control
    characters become spaces.
    """

    def __init__(self, stream: IO[str], *, raw: bool = False, **form: Any) -> None:
        self._writer, self._raw, self._shown = csv.writer(stream, **form), raw, stream.isatty()

    def writerow(self, cells: Iterable[object]) -> None:
        if self._shown:
            cells = (cell.translate(HARMLESS) if isinstance(cell, str) else cell for cell in cells)
        self._writer.writerow(cells if self._raw else map(_harmless, cells))


class SheetCell(str):
    """A number, date or truth value of a worksheet as text, with the cell's own value and format."""

    value: object
    form: str

    def __new__(cls, text: str, value: object, form: str) -> SheetCell:
        cell = super().__new__(cls, text)
        cell.value, cell.form = value, form
        return cell


class SheetWriter:
    """Writes rows of a workbook's only sheet, with the interface of `TableWriter`; see `sheet_writer`."""

    def __init__(self, sheet: Any, cell: Callable[..., Any]) -> None:
        self._sheet, self._cell, self._rows = sheet, cell, 0

    def writerow(self, cells: Iterable[object]) -> None:
        row = list(map(self._written, cells))
        self._rows += 1
        for what, count, most in (("rows", self._rows, SHEET_ROWS), ("columns", len(row), SHEET_COLUMNS)):
            if count > most:
                raise InputError(f"more than {most:,} {what}, Excel's limit", remedy="write CSV or JSON lines instead")
        self._sheet.append(row)

    def _written(self, value: object) -> object:
        """Return a text as a cell that stays a text; a number that Excel would round also becomes one."""
        if isinstance(value, SheetCell):
            cell = self._cell(self._sheet, value.value)
            cell.number_format = value.form
            return cell
        if isinstance(value, int | float) and abs(value) < 10**15:
            return value
        text = NOT_XML.sub(" ", str(value).replace("\r\n", "\n").replace("\r", "\n"))
        text = re.sub(f"_(?={CODED.pattern[1:]})", "_x005F_", text)
        if (length := len(text.encode("utf-16-le")) // 2) > SHEET_CELL:
            what = f"row {self._rows + 1} has a cell of {length:,} characters, Excel's limit is {SHEET_CELL:,}"
            raise InputError(what, remedy="write CSV or JSON lines instead")
        cell = self._cell(self._sheet, text)
        cell.data_type = "s"  # not a formula or an error value
        cell.quotePrefix = _harmless(text) != text  # still a text after it was edited
        return cell


@contextmanager
def sheet_writer(target: Path | IO[bytes], widths: Sequence[int] = ()) -> Iterator[SheetWriter]:
    """Yield a writer of a workbook with constant memory, which is saved when the block succeeds.

    With ``widths`` of columns, in characters, the first row stays visible.
    """
    require_extra("openpyxl", extra="data", capability="Writing .xlsx")
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.utils import get_column_letter

    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet()
    if widths:
        sheet.freeze_panes = "A2"
    for number, width in enumerate(widths, 1):
        sheet.column_dimensions[get_column_letter(number)].width = width
    try:
        yield SheetWriter(sheet, WriteOnlyCell)
        workbook.save(target)
    finally:
        if not sheet.closed:
            with suppress(Exception):
                sheet.close()
                sheet._writer.cleanup()  # its file in the folder for temporary files


@contextmanager
def table_writer(target: Path, widths: Sequence[int]) -> Iterator[TableWriter | SheetWriter]:
    """Yield a writer of ``.xlsx`` or else of CSV that spreadsheets read as UTF-8; the file is written atomically."""
    with atomic_file(target) as path:
        if target.suffix.lower() == ".xlsx":
            with sheet_writer(path, widths) as sheet:
                yield sheet
        else:
            with path.open("w", encoding="utf-8-sig", newline="") as stream:
                yield TableWriter(stream, lineterminator="\n")


def _harmless(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def json_text(value: Any, **form: Any) -> str:
    """Return a value as JSON with non-ASCII text, but control characters escaped; ``form`` goes to `json.dumps`."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, **form))


def json_bytes(value: Any) -> bytes:
    """Return the content of a JSON file, indented."""
    return (json_text(value, indent=2) + "\n").encode()


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files by name into a folder, each atomically, and return their paths; other files stay."""
    for name, content in files.items():
        try:
            with atomic_file(folder / name) as path:
                path.write_bytes(content)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=folder / name) from error
    return [folder / name for name in files]


def _finish(path: Path) -> None:
    """Give ``path`` the mode of the umask (libraries and tempfile use 0600) and flush it to disk."""
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
