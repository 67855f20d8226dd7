"""Files in object stores: ``s3://``, ``gs://``, ``hf://`` and all other protocols of fsspec; paths work as well.

Data folders and models are copied into the cache by fsspec (:func:`local`). Bulk prediction, whose inputs may be larger
than the disk, reads and writes single files (:func:`open_file`, :func:`new_file`).
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import hashlib
import io
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

from hgclr.errors import InputError, MissingExtraError, first_line, refuse_broken
from hgclr.files import atomic_file, cache_dir, locked, open_regular
from hgclr.urls import COPIES, holds_credentials, url_of

logger = logging.getLogger(__name__)
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "LastModified", "last_modified", "mtime", "created")
"""Fields with which stores describe a file's version; the first one present counts."""
BLOCK = 2**23
"""Bytes per request."""
CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login",
    "hf": "set HF_TOKEN, or run hf auth login",
}
NO_CREDENTIALS = ("CredentialsError", "CredentialRetrievalError", "UnauthorizedSSOTokenError", "ProfileNotFound")
NO_CONNECTION = (
    *("EndpointConnectionError", "HTTPClientError", "ClientConnectionError", "OfflineModeIsEnabled"),
    *("ConnectionError", "ConnectError", "TimeoutError", "TimeoutException", "gaierror"),
)
"""Endings of the names of errors that libraries raise without credentials or without a connection."""
LOCAL_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def local(place: str | Path, wanted: Sequence[str] = ("*",)) -> Path:
    """Return a path as it is; of a folder or file in a store, return a copy in the cache that never changes.

    fsspec's file cache fetches the files whose names match ``wanted``. A new version in the store gets a new copy, so
    that processes can read the old one to the end. Of several processes the first one fetches; the others wait.
    """
    if (url := url_of(place)) is None:
        return Path(place)
    from fsspec.implementations.cached import WholeFileCacheFileSystem

    store, root = _store(url)
    versions = _versions(url, wanted)
    home = cache_dir() / "remote" / _digest(url)
    copy = home / _digest(json.dumps(versions)) / PurePosixPath(url).name
    with locked(home.with_suffix(".lock"), "fetching", remedy=None), _reported(url):
        if not copy.exists():
            total = sum(size for size, _ in versions.values())
            logger.info("fetching %d files, %d bytes, from %s", len(versions), total, url)
        for name in versions:
            inner = name.removeprefix(root.rstrip("/")).lstrip("/")
            if inner and ({"", ".", ".."} & set(inner.split("/")) or "\\" in inner):
                raise InputError(f"{inner!r} cannot be the name of a file", path=url, remedy="rename it in the store")
            cache = WholeFileCacheFileSystem(
                fs=store,
                cache_storage=str((copy / inner).parent),
                same_names=True,
                expiry_time=False,
                skip_instance_cache=True,  # an instance forgets no file of which the fetch has failed
            )
            cache.open(name).close()
    if _versions(url, wanted) != versions:
        shutil.rmtree(copy.parent)
        raise InputError("changed while it was being fetched", path=url, remedy="start again")
    for old in sorted(home.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-2]:
        shutil.rmtree(old, ignore_errors=True)  # the last but one may still be read
    COPIES[str(copy)] = url
    return copy


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _versions(url: str, wanted: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """Return size and version of each file of a folder, or of the one file that the URL names."""
    store, root = _store(url)
    with _reported(url):
        store.invalidate_cache()
        found = sorted(store.find(root, detail=True).items())
    versions = {
        name: _version(info)
        for name, info in found
        if not name.endswith("/")  # an empty folder, as the consoles of stores mark it
        and info.get("type") != "directory"
        and any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
    }
    if not versions:
        raise _missing(url)
    return versions


def _version(info: dict[str, Any]) -> tuple[int, str | None]:
    return info["size"], next((str(info[key]) for key in VERSIONS if info.get(key)), None)


def lock_file(folder: Path, name: str) -> Path:
    """Return the lock file for a folder: in it or, for a folder in a store, in the cache of this machine."""
    if (url := url_of(folder)) is None:
        return folder / name
    place = cache_dir() / "remote" / "locks" / _digest(url)
    COPIES[str(place)] = url
    return place / name


def kind_of(place: str | Path) -> Literal["file", "folder"] | None:
    """Return what is at a path or URL; a folder of a store exists if anything is in it."""
    if (url := url_of(place)) is None:
        path = Path(place)
        return "folder" if path.is_dir() else "file" if path.exists() else None
    info = _info(url)
    return None if not info else "folder" if info["type"] == "directory" else "file"


def version_of(place: Path) -> tuple[int, Any]:
    """Return the size of a file, and a value that changes whenever the file does."""
    if (url := url_of(place)) is None:
        try:
            status = place.stat()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=place) from None
        return status.st_size, status.st_mtime_ns
    if not (info := _info(url)):
        raise _missing(url)
    return _version(info)


def _info(url: str) -> dict[str, Any]:
    """Return the store's description of a file or folder; an empty one, if it does not exist."""
    store, root = _store(url)
    with _reported(url):
        store.invalidate_cache(root.rpartition("/")[0])
        try:
            return dict(store.info(root))
        except FileNotFoundError:
            return {}


def find_files(pattern: str | Path) -> list[Path]:
    """Return the files whose names match a pattern with ``*``, ``?``, ``[…]`` or ``**``, sorted."""
    if (url := url_of(pattern)) is None:
        matches = map(Path, glob.glob(str(pattern), recursive=True))  # noqa: PTH207 - absolute patterns too
        return sorted(path for path in matches if path.is_file())
    store, root = _store(url)
    with _reported(url):
        store.invalidate_cache()
        found = store.glob(root, detail=True).values()
        return sorted(Path(store.unstrip_protocol(info["name"])) for info in found if info["type"] == "file")


def open_file(place: Path) -> BinaryIO:
    """Open a file to read, from a store block by block; a local one as :func:`~hgclr.files.open_regular` does."""
    if (url := url_of(place)) is None:
        return open_regular(place)
    store, root = _store(url)
    with _reported(url):
        # BufferedReader, because readline of fsspec's own files searches a whole block for each line.
        return io.BufferedReader(_Stream(url, store.open(root, "rb", block_size=BLOCK)), 2**18)


class _Stream(io.RawIOBase):
    """A file in a store whose failures are our errors."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _reported(self._url):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _reported(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


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
        with _reported(url):
            store.put_file(str(path), root)


def _store(url: str) -> tuple[Any, str]:
    if holds_credentials(url):
        raise InputError(
            "a URL with a password or a signature, which would be written to logs and records",
            path=url,
            remedy=f"leave it out, and {_remedy(url)}",
        )
    with _reported(url):
        from fsspec.core import url_to_fs

        store, root = url_to_fs(url)
        return store, str(root)


def _remedy(url: str) -> str:
    scheme = url.partition("://")[0]
    otherwise = "set the options of its file system in fsspec's configuration, ~/.config/fsspec"
    return CREDENTIALS.get({"s3a": "s3", "gcs": "gs"}.get(scheme, scheme), otherwise)


def _missing(url: str) -> InputError:
    return InputError("no such bucket, folder or file", path=url, remedy="check the URL and the endpoint")


def _reported(url: str) -> AbstractContextManager[None]:
    """Turn errors of fsspec and of the libraries below it into ours."""

    def refusal(error: BaseException) -> Exception:
        names = [kind.__name__ for each in (error, error.__cause__) for kind in type(each).__mro__]
        if isinstance(error, OSError) and error.errno in LOCAL_FAILURES:
            return error
        if isinstance(error, ImportError):
            return MissingExtraError("s3://", "remote") if url[:2] == "s3" else InputError(first_line(error), path=url)
        if isinstance(error, FileNotFoundError):
            return _missing(url)
        if isinstance(error, PermissionError):
            return InputError("access denied", path=url, remedy=f"check the credentials: {_remedy(url)}")
        if any(name.endswith(NO_CREDENTIALS) for name in names):
            return InputError("no credentials were found", path=url, remedy=_remedy(url))
        if any(name.endswith(NO_CONNECTION) for name in names):
            return InputError("the store cannot be reached", path=url, remedy="check the network and the endpoint")
        return InputError(f"the store reports: {first_line(error)}", path=url, remedy="check the URL")

    return refuse_broken(refusal)
