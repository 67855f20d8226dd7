"""Object stores: ``s3://``, ``gs://``, ``hf://`` and whatever else fsspec knows.

Data folders and models that lie in a store are mirrored into the cache (:func:`local`), and all else is done with files
of this machine. Bulk prediction, whose inputs may be larger than the disk, opens and writes single files
(:func:`open_file`, :func:`new_file`). Everything here takes paths as well, which are left to the operating system.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from hgclr.errors import InputError, MissingExtraError, first_line, refuse_broken
from hgclr.files import atomic_file, atomic_folder, cache_dir, json_bytes, locked, open_regular, read_json
from hgclr.urls import COPIES, holds_credentials, url_of

__all__ = [
    "exists",
    "facts",
    "find_files",
    "is_dir",
    "is_file",
    "local",
    "lock_file",
    "new_file",
    "open_file",
]

logger = logging.getLogger(__name__)
LISTING = "listing.json"
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "LastModified", "last_modified", "mtime", "created")
"""What stores say of a file that is another one when the file has changed; the first one that is there counts."""
BLOCK = 2**23
"""Bytes that are asked for at a time."""
CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login",
    "hf": "set HF_TOKEN, or run hf auth login",
}
NO_CREDENTIALS = ("CredentialsError", "CredentialRetrievalError", "UnauthorizedSSOTokenError", "ProfileNotFound")
NO_CONNECTION = (
    "EndpointConnectionError",
    "HTTPClientError",
    "ClientConnectionError",
    "OfflineModeIsEnabled",
    "ConnectionError",
    "ConnectError",
    "TimeoutError",
    "TimeoutException",
    "gaierror",
)
"""How the names of errors end that libraries raise without credentials, and where nothing answers."""
LOCAL_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Given a description and a number of bytes, what shows the bytes that it is told of while they are fetched."""
show_progress: Bar = lambda _description, _total: nullcontext(lambda _bytes: None)  # noqa: E731
"""Set by the command line."""


def local(place: str | Path, wanted: Sequence[str] = ("*",)) -> Path:
    """Return a path as it is, and of a folder or file in a store a copy in the cache, which nobody changes any more.

    The store is asked what is there each time; only files that are new or have changed are fetched. Of several
    processes with one cache folder the first one fetches, and the others wait for it.

    Args:
        place: a path or a URL.
        wanted: patterns for the names of the files to fetch.
    """
    if (url := url_of(place)) is None:
        return Path(place)
    listing = _listing(url, wanted)
    home = cache_dir() / "remote" / _digest(url)
    target = home / _digest(json.dumps(listing))
    copy = target / _safe(PurePosixPath(url).name, url)
    if not copy.exists():
        with locked(home.with_suffix(".lock"), "fetching", remedy=None):
            if not copy.exists():
                _fetch(url, wanted, listing, copy)
    logger.info("%s: the copy in %s", url, copy)
    COPIES[str(copy)] = url
    return copy


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _listing(url: str, wanted: Sequence[str]) -> dict[str, list[Any]]:
    """Return size and version of each file by its path in a folder; by an empty one, if it is no folder."""
    store, root = _store(url)
    with refuse_broken(partial(_refusal, url)):
        store.invalidate_cache()
        found = store.find(root, detail=True)
    listing = {}
    for name, info in sorted(found.items()):
        inner = name.removeprefix(root.rstrip("/")).lstrip("/")
        if name.endswith("/") or info.get("type") == "directory":  # how consoles of stores mark empty folders
            continue
        if any(fnmatch.fnmatch(inner or name, pattern) for pattern in wanted):
            listing[_safe(inner, url)] = _facts(info)
    if not listing:
        raise _missing(url)
    return listing


def _facts(info: dict[str, Any]) -> list[Any]:
    version = next((str(info[key]) for key in VERSIONS if info.get(key)), None)
    return [info["size"], version]


def _safe(name: str, url: str) -> str:
    """Refuse the name of an object that as a file would be somewhere else."""
    if name and ({"", ".", ".."} & set(name.split("/")) or "\\" in name or "\0" in name):
        raise InputError(f"{name!r} is no name for a file", path=url, remedy="rename it in the store")
    return name


def _fetch(url: str, wanted: Sequence[str], listing: dict[str, list[Any]], copy: Path) -> None:
    """Make a copy of what a store has, out of the newest earlier copy as far as that goes."""
    from fsspec.callbacks import Callback

    target, home = copy.parent, copy.parent.parent
    versions = sorted(home.glob(f"*/{LISTING}"), key=lambda file: file.stat().st_mtime_ns)
    before = read_json(versions[-1]) if versions else {}
    store, root = _store(url)
    with atomic_folder(target) as new:
        sources, targets, total = [], [], 0
        for name, facts in listing.items():
            file = new / copy.name / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if facts[1] is not None and before.get(name) == facts:
                _link(versions[-1].parent / copy.name / name, file)
            else:
                sources.append(f"{root.rstrip('/')}/{name}" if name else root)
                targets.append(str(file))
                total += facts[0]
        logger.info("fetching %d of %d files, %d bytes, from %s", len(sources), len(listing), total, url)
        with show_progress(copy.name, total) as advance, refuse_broken(partial(_refusal, url)):

            class Counted(Callback):  # type: ignore[misc]
                def branched(self, *_paths: str, **_: Any) -> Callback:
                    return self  # for each file, whose bytes are counted

                def relative_update(self, inc: int = 1) -> None:
                    advance(inc)

            store.get(sources, targets, callback=Counted())
        whole = all((new / copy.name / name).stat().st_size == facts[0] for name, facts in listing.items())
        if not whole or _listing(url, wanted) != listing:
            raise InputError("changed while it was being fetched", path=url, remedy="start again")
        (new / LISTING).write_bytes(json_bytes(listing))
    for file in versions[:-1]:  # the one before may still be read
        shutil.rmtree(file.parent, ignore_errors=True)


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError:  # a file system without links
        shutil.copyfile(old, new)


def lock_file(folder: Path, name: str) -> Path:
    """Return the lock for a folder: in it, or, as stores have none, in the cache, which is for this machine."""
    if (url := url_of(folder)) is None:
        return folder / name
    place = cache_dir() / "remote" / "locks" / _digest(url)
    COPIES[str(place)] = url
    return place / name


def is_file(place: str | Path) -> bool:
    """Tell whether a place is a file."""
    return Path(place).is_file() if (url := url_of(place)) is None else _info(url).get("type") == "file"


def is_dir(place: str | Path) -> bool:
    """Tell whether a place is a folder; one in a store is there if anything is in it."""
    return Path(place).is_dir() if (url := url_of(place)) is None else _info(url).get("type") == "directory"


def exists(place: str | Path) -> bool:
    """Tell whether a place is there."""
    return Path(place).exists() if (url := url_of(place)) is None else bool(_info(url))


def facts(place: Path, *, fresh: bool = False) -> tuple[int, Any]:
    """Return the size of a file, and what tells whether it has changed; ``fresh`` asks the store once more."""
    if (url := url_of(place)) is None:
        try:
            status = place.stat()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=place) from None
        return status.st_size, status.st_mtime_ns
    if not (info := _info(url, fresh=fresh)):
        raise _missing(url)
    size, version = _facts(info)
    return size, version


def _info(url: str, *, fresh: bool = False) -> dict[str, Any]:
    """Return what a store says of a file or folder; nothing, if it is not there."""
    store, root = _store(url)
    with refuse_broken(partial(_refusal, url)):
        if fresh:
            store.invalidate_cache(root.rpartition("/")[0])
        try:
            return dict(store.info(root))
        except FileNotFoundError:
            return {}


def find_files(pattern: str) -> list[Path]:
    """Return the files in a store that have names like a pattern with ``*``, ``?``, ``[…]`` or ``**``."""
    store, root = _store(pattern)
    with refuse_broken(partial(_refusal, pattern)):
        store.invalidate_cache()
        found = store.glob(root, detail=True).values()
        return sorted(Path(store.unstrip_protocol(info["name"])) for info in found if info["type"] == "file")


def open_file(place: Path) -> BinaryIO:
    """Open a file to be read, from a store piece by piece; a local one as :func:`~hgclr.files.open_regular` does."""
    if (url := url_of(place)) is None:
        return open_regular(place)
    store, root = _store(url)
    with refuse_broken(partial(_refusal, url)):
        # Its own readline goes through a whole block for each line.
        return io.BufferedReader(_Stream(url, store.open(root, "rb", block_size=BLOCK)), 2**18)


class _Stream(io.RawIOBase):
    """A file in a store, whose failures are our errors, whoever reads it."""

    def __init__(self, url: str, file: Any) -> None:
        self._reported, self._file = partial(refuse_broken, partial(_refusal, url)), file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._reported():
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._reported():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a new local file; it is at ``target``, whole, when the block succeeds, else nothing changes there."""
    if (url := url_of(target)) is None:
        with atomic_file(target) as path:
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="hgclr-") as folder:
        yield (path := Path(folder) / target.name)
        store, root = _store(url)
        with refuse_broken(partial(_refusal, url)):
            store.put_file(str(path), root)


def _store(url: str) -> tuple[Any, str]:
    if holds_credentials(url):
        raise InputError(
            "a URL with a password or a signature in it, which would end up in logs and records",
            path=url,
            remedy=f"leave it out, and {_remedy(url)}",
        )
    with refuse_broken(partial(_refusal, url)):
        from fsspec.core import url_to_fs

        store, root = url_to_fs(url)
        return store, str(root)


def _remedy(url: str) -> str:
    otherwise = "give what its file system takes in fsspec's configuration, ~/.config/fsspec"
    return CREDENTIALS.get(_scheme(url), otherwise)


def _scheme(url: str) -> str:
    scheme = url.partition("://")[0]
    return {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)


def _missing(url: str) -> InputError:
    return InputError("no such bucket, folder or file", path=url, remedy="look for a typing error, and at the endpoint")


def _refusal(url: str, error: BaseException) -> Exception:
    """Return our error for one that fsspec or a library below it has raised."""
    names = [kind.__name__ for each in (error, error.__cause__) for kind in type(each).__mro__]
    if isinstance(error, OSError) and error.errno in LOCAL_FAILURES:
        return error
    if isinstance(error, ImportError) and _scheme(url) == "s3":
        return MissingExtraError("s3://", "remote")
    if isinstance(error, ImportError):
        return InputError(first_line(error), path=url)
    if isinstance(error, FileNotFoundError):
        return _missing(url)
    if isinstance(error, PermissionError):
        return InputError("access denied", path=url, remedy=f"see whose credentials these are: {_remedy(url)}")
    if any(name.endswith(NO_CREDENTIALS) for name in names):
        return InputError("no credentials were found", path=url, remedy=_remedy(url))
    if any(name.endswith(NO_CONNECTION) for name in names):
        return InputError("the store cannot be reached", path=url, remedy="look at the network, and at the endpoint")
    return InputError(f"the store said: {first_line(error)}", path=url, remedy="see whether the URL is right")
