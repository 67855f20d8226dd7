"""Errors that say what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HIDDEN = re.compile(r"\(os error (\d+)\)|PytorchStreamWriter failed writing|file write failed")
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space, or choose another place"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a place that you may write to"),
    errno.EIO: "check the disk or the network before you continue",
}
"""Remedies by the system's error number."""
URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)  # one letter before a colon is a drive
PASSWORD = re.compile(r"://[^/@\s]*:(?!\d+/)[^@\s]*@")
SIGNATURE = re.compile(r"(https?://[^?]*)\?.*", re.DOTALL)
COPIES: dict[str, str] = {}
"""The copies and locks that this process keeps in the cache for things in object stores, each with its URL."""


def url_of(place: str | Path) -> str | None:
    """Return the URL that a place is, or None for a path; pathlib turns the two slashes of a URL into one.

    Example:
        >>> url_of(Path("s3://bucket/data")), url_of("my-data")
        ('s3://bucket/data', None)
    """
    match = URL.fullmatch(place.as_posix() if isinstance(place, Path) else place)
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{match[2].rstrip('/')}"


def as_written(place: str | Path) -> str:
    """Return a path or a URL as people write it, without secrets; of a copy in the cache, its URL.

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
    """Anything the user can fix; the command line prints it without a traceback and exits with 2."""


class InputError(HGCLRError):
    """Bad input, with its place and a remedy.

    Args:
        what: what is wrong, naming the offending value.
        path: the file it is in, or its URL.
        line: the line or row in that file, counted from 1.
        remedy: what the user can do about it.

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
    """Refuse to write to an object store; only bulk prediction does that."""
    if url_of(output) is not None:
        raise InputError(
            "only hgclr predict writes to an object store",
            path=output,
            remedy="give a folder here, and upload it when it is finished",
        )


@contextmanager
def refuse_broken(
    refusal: str | Callable[[BaseException], Exception], *, path: str | Path | None = None, remedy: str | None = None
) -> Iterator[None]:
    """Turn any exception that a library raises over a user's file into our error.

    Over a damaged file libraries raise exceptions of any class, and those written in Rust panic, which is not even an
    :class:`Exception`. ``refusal`` returns our error for theirs; if it is a text, their reason is appended to it.
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

    Libraries written in other languages put it into the text of their errors.
    """
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory; close other programs, or process less at a time"
    place = None
    if isinstance(error, OSError):
        number, place, what = error.errno, error.filename, error.strerror or first_line(error)
    elif hidden := HIDDEN.search(str(error)):
        number = int(hidden[1] or errno.ENOSPC)
        what = os.strerror(number) if hidden[1] else "a file could not be written to its end"
    else:
        return None
    remedy = REMEDIES.get(number or 0, "check that the place exists and may be used")
    return f"{place}: {what}; {remedy}" if place else f"{what}; {remedy}"


class MissingExtraError(HGCLRError):
    """A capability whose optional dependency is not installed."""

    def __init__(self, capability: str, extra: str) -> None:
        super().__init__(
            f"{capability} needs the extra {extra!r}; run pip install '.[{extra}]' in the checkout of hgclr"
        )


def require_extra(module: str, *, extra: str, capability: str) -> None:
    """Raise the one-line hint for ``extra`` unless ``module`` can be imported.

    ``capability`` is what the user was about to do, as the start of a sentence.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(capability, extra)
