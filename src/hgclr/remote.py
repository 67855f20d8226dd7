"""Files in object stores: ``s3://``, ``gs://``, ``hf://`` and all other protocols of fsspec; and local paths.

Data folders and models are copied into the cache (:func:`local`). Bulk prediction, whose inputs may be larger than the
disk, reads and writes single files (:func:`open_file`, :func:`new_file`).
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import io
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, cast

from hgclr.errors import COPIES, PASSWORD, InputError, MissingExtraError, as_written, first_line, refuse_broken, url_of
from hgclr.files import atomic_file, atomic_folder, cache_dir, locked, open_regular

logger = logging.getLogger(__name__)
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "LastModified", "last_modified", "mtime", "created")
"""Fields for a file's version in different stores; the first one present is used."""
BLOCK = 2**23
"""Bytes per request."""
CHECK = (
    "check the URL, the connection and the credentials (such as AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN,"
    " or the file system's options in ~/.config/fsspec)"
)
LOCAL_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def store_errors(place: str | Path) -> AbstractContextManager[None]:
    """Turn errors of fsspec and its libraries into errors of hgclr; errors at a local path are not changed."""
    if (url := url_of(place)) is None:
        return nullcontext()

    def refusal(error: BaseException) -> Exception:
        if isinstance(error, OSError) and error.errno in LOCAL_FAILURES:
            return OSError(error.errno, error.strerror, error.filename)
        if isinstance(error, ImportError):
            return MissingExtraError("s3://", "remote") if url[:2] == "s3" else InputError(first_line(error), path=url)
        what = f"the store reports {type(error).__name__}: {PASSWORD.sub('://***@', first_line(error))}"
        if isinstance(error, FileNotFoundError):
            what = "no such bucket, folder or file"
        return InputError(what, path=url, remedy=CHECK)

    return refuse_broken(refusal)


def _store(place: str | Path) -> tuple[Any, str]:
    """Return fsspec's file system for a path or URL, with its cache cleared, and the name there."""
    url = url_of(place)
    if url is not None and as_written(url) != url:
        what = "the URL contains a password or a signature, which would be written to logs and records"
        raise InputError(what, path=url, remedy="remove it, and set the credentials in the environment")
    with store_errors(place):
        from fsspec.core import url_to_fs

        store, root = url_to_fs(url or str(place))
        store.invalidate_cache()
        return store, str(root)


def _info(place: str | Path) -> dict[str, Any]:
    """Return the description of a file or folder, or {} if it does not exist."""
    store, root = _store(place)
    with store_errors(place):
        try:
            return dict(store.info(root))
        except (FileNotFoundError, NotADirectoryError):
            return {}


def _version(info: dict[str, Any]) -> tuple[int, str | None]:
    return info["size"], next((str(info[key]) for key in VERSIONS if info.get(key)), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def local(place: str | Path, wanted: Sequence[str] = ("*",)) -> Path:
    """Return a local path unchanged; download a folder or file from a store to the cache and return the copy.

    Only files whose names match ``wanted`` are downloaded. A copy never changes: a new version in the store gets a new
    copy, so that other processes can finish reading the old one. One process downloads; the others wait.
    """
    if (url := url_of(place)) is None:
        return Path(place)

    def listed() -> dict[str, tuple[int, str | None]]:
        store, root = _store(url)
        with store_errors(url):
            return {
                name: _version(info)
                for name, info in sorted(store.find(root, detail=True).items())
                if not name.endswith("/")  # an empty folder, as web consoles create it
                and info["type"] != "directory"
                and any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
            }

    if not (versions := listed()):
        raise InputError("no such bucket, folder or file", path=url, remedy=CHECK)
    store, root = _store(url)
    home = cache_dir() / "remote" / _digest(url)
    copy = home / _digest(json.dumps(versions)) / PurePosixPath(url).name
    with locked(home.with_suffix(".lock"), "downloading", remedy=None):
        if not copy.exists():
            total = sum(size for size, _ in versions.values())
            logger.info("downloading %d files, %d bytes, from %s", len(versions), total, url)
            with atomic_folder(copy.parent) as folder:
                for name in versions:
                    inner = name.removeprefix(root.rstrip("/")).lstrip("/")
                    if inner and ({"", ".", ".."} & set(inner.split("/")) or "\\" in inner):
                        what = f"{inner!r} is not a valid file name"
                        raise InputError(what, path=url, remedy="rename it in the store")
                    target = folder / copy.name / inner
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with store_errors(url):
                        store.get_file(name, str(target))
                if listed() != versions:
                    raise InputError("changed during the download", path=url, remedy="start again")
        for old in sorted(home.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-2]:
            shutil.rmtree(old, ignore_errors=True)  # another process may still read the last but one
    COPIES[str(copy)] = url
    return copy


def lock_file(folder: Path, name: str) -> Path:
    """Return the lock file of a folder: in the folder or, for a folder in a store, in the local cache."""
    if (url := url_of(folder)) is None:
        return folder / name
    place = cache_dir() / "remote" / "locks" / _digest(url)
    COPIES[str(place)] = url
    return place / name


def kind_of(place: str | Path) -> Literal["file", "folder"] | None:
    """Return the kind of a path or URL, or None if nothing is there; a folder in a store exists if it has files."""
    info = _info(place)
    return None if not info else "folder" if info["type"] == "directory" else "file"


def version_of(place: Path) -> tuple[int, str | None]:
    """Return the size of a file, and a value that changes with the file."""
    if not (info := _info(place)):
        raise InputError("no such file", path=place)
    return _version(info)


def find_files(pattern: str | Path) -> list[Path]:
    """Return the files whose names match a pattern with ``*``, ``?``, ``[…]`` or ``**``, sorted."""
    store, root = _store(pattern)
    with store_errors(pattern):
        found = [info["name"] for info in store.glob(root, detail=True).values() if info["type"] == "file"]
    return sorted(Path(name if url_of(pattern) is None else store.unstrip_protocol(name)) for name in found)


def open_file(place: Path) -> BinaryIO:
    """Open a file to read: a local one with :func:`~hgclr.files.open_regular`, one in a store block by block."""
    if url_of(place) is None:
        return open_regular(place)
    store, root = _store(place)
    with store_errors(place):
        # BufferedReader, because readline of fsspec's files searches a whole block for each line.
        return io.BufferedReader(cast(io.RawIOBase, store.open(root, "rb", block_size=BLOCK)), 2**18)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a temporary local file; move or upload it to ``target`` when the block succeeds."""
    if url_of(target) is None:
        with atomic_file(target) as path:
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="hgclr-") as folder:
        yield (path := Path(folder) / target.name)
        store, root = _store(target)
        with store_errors(target):
            store.put_file(str(path), root)


def delete_file(place: Path) -> None:
    """Delete a file, if it exists."""
    if kind_of(place) is not None:
        store, root = _store(place)
        with store_errors(place):
            store.rm_file(root)
