"""Errors that say what is wrong, where, and how to fix it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)|PytorchStreamWriter failed writing|file write failed")
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space, or choose another folder"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder that you may write to"),
    errno.EIO: "check the disk or the network before you continue",
}
"""Remedies by the system's error number."""
URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)  # a single letter would be a Windows drive
PASSWORD = re.compile(r"://[^/@\s]*:(?!\d+/)[^@\s]*@")
SIGNATURE = re.compile(r"(https?://[^?]*)\?.*", re.DOTALL)
COPIES: dict[str, str] = {}
"""Paths in the cache of copies and locks for files in object stores, with their URLs."""


def url_of(place: str | Path) -> str | None:
    """Return the URL in ``place``, or None if it is a path; pathlib turns the two slashes of a URL into one.

    Example:
        >>> url_of(Path("s3://bucket/data")), url_of("my-data")
        ('s3://bucket/data', None)
    """
    match = URL.fullmatch(place.as_posix() if isinstance(place, Path) else place)
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{match[2].rstrip('/')}"


def as_written(place: str | Path) -> str:
    """Return a path or a URL as people write it, without secrets; the URL for a copy in the cache.

    Example:
        >>> as_written(Path("s3://bucket/data")), as_written("s3://id:secret@bucket/data")
        ('s3://bucket/data', 's3://***@bucket/data')
    """
    if (url := url_of(place)) is not None:
        return SIGNATURE.sub(r"\1", PASSWORD.sub("://***@", url))
    text = str(place)
    owners = (copy for copy in COPIES if f"{text}{os.sep}".startswith(copy + os.sep))
    return next((COPIES[copy] + text[len(copy) :] for copy in owners), text)


class HGCLRError(Exception):
    """An error that the user can fix; the command line prints it without a traceback and exits with 2."""


class InputError(HGCLRError):
    """Bad input, with its location and a remedy.

    Args:
        what: the problem, with the offending value.
        path: the file it is in, or its URL.
        line: the line or row in that file, counted from 1.
        remedy: how to fix it, in the imperative.

    Example:
        >>> print(InputError("label 'A' has two parents", path="tree.tsv", line=3, remedy="delete one"))
        tree.tsv:3: label 'A' has two parents; delete one
    """

    def __init__(
        self, what: str, *, path: str | Path | None = None, line: int | None = None, remedy: str | None = None
    ) -> None:
        self.what, self.path, self.line, self.remedy = what, path, line, remedy
        name = None if path is None else as_written(path)
        place = "" if name is None else f"{name}: " if line is None else f"{name}:{line}: "
        super().__init__(place + what + (f"; {remedy}" if remedy else ""))


def refuse_url(output: str | Path) -> None:
    """Raise if the output is in an object store; only bulk prediction writes there."""
    if url_of(output) is not None:
        raise InputError(
            "only hgclr predict writes to an object store",
            path=output,
            remedy="give a local folder, and upload it when it is finished",
        )


@contextmanager
def refuse_broken(
    refusal: str | Callable[[BaseException], Exception], *, path: str | Path | None = None, remedy: str | None = None
) -> Iterator[None]:
    """Turn any exception that a library raises while reading a user's file into an error of hgclr.

    Libraries raise exceptions of any class at a damaged file, and Rust libraries panic, which is not even an
    :class:`Exception`. ``refusal`` returns the new error, or is its text, to which the library's reason is appended.
    """
    try:
        yield
    except HGCLRError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(refusal, str):
            raise InputError(f"{refusal}: {first_line(error)}", path=path, remedy=remedy) from error
        raise refusal(error) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its name if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line.rstrip(".:") for line in lines if line), type(error).__name__)


def system_failure(error: BaseException) -> str | None:
    """Return one line about a failure of the machine (disk full, no permission, no memory), None for other errors.

    Libraries in other languages report such failures only in the text of their errors.
    """
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory; close other programs, or process less at a time"
    place = None
    if isinstance(error, OSError):
        number, place, what = error.errno, error.filename, error.strerror or first_line(error)
    elif hidden := SYSTEM_ERROR.search(str(error)):
        number = int(hidden[1] or errno.ENOSPC)
        what = os.strerror(number) if hidden[1] else "a file could not be written completely"
    else:
        return None
    remedy = REMEDIES.get(number or 0, "check that the path exists and that you may access it")
    return f"{place}: {what}; {remedy}" if place else f"{what}; {remedy}"


class MissingExtraError(HGCLRError):
    """A capability whose optional dependency is not installed."""

    def __init__(self, capability: str, extra: str) -> None:
        install = f"run pip install -c constraints.txt '.[{extra}]' in the checkout of hgclr"
        super().__init__(f"{capability} needs the extra {extra!r}; {install}")


def require_extra(module: str, *, extra: str, capability: str) -> None:
    """Raise `MissingExtraError` unless ``module`` can be imported; ``capability`` is the subject of its sentence."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(capability, extra)
