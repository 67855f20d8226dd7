"""Locks that end with their owner: one process at a time in a folder."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hgclr.errors import InputError, refuse_url

__all__ = ["locked", "take"]

logger = logging.getLogger(__name__)
CLOCK = "%Y-%m-%d %H:%M:%S"
PAUSE = 0.1
"""Seconds between two looks at a lock that somebody else holds."""


@contextmanager
def locked(file: Path, doing: str, *, remedy: str | None) -> Iterator[None]:
    """Hold a lock while the block runs; who comes second is refused, and told who holds it since when, or waits.

    The operating system lets go of the lock when its owner ends, however it ends: the next one takes it over, and
    nobody has to guess whether the owner is dead. What is in the file is for people.

    Args:
        file: the lock, in the folder that it is for.
        doing: what its owner is doing there, such as ``training``.
        remedy: what the second one can do; without one it waits.
    """
    refuse_url(file)
    made = not file.parent.exists()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        while (descriptor := _locked_file(file)) is None and remedy is None:
            time.sleep(PAUSE)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=file) from error
    if descriptor is None:
        raise InputError(_owner(file), path=file.parent, remedy=remedy)
    try:
        owner = {"doing": doing, "process": os.getpid(), "host": socket.gethostname(), "since": time.strftime(CLOCK)}
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(owner).encode())
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # while it is ours: see _locked_file
        os.close(descriptor)
        if made:
            with suppress(OSError):
                file.parent.rmdir()  # nothing came of it


def _locked_file(file: Path) -> int | None:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not take(descriptor):
                os.close(descriptor)
                return None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), file.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # what we have locked is the file that the owner before us has deleted


def take(descriptor: int) -> bool:
    """Lock an open file, unless it is locked already."""
    try:
        import fcntl
    except ImportError:  # outside Unix
        import msvcrt

        os.lseek(descriptor, 2**30, os.SEEK_SET)  # far behind what others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
            raise
        logger.warning("this file system knows no locks: see to it that nobody else writes into the same folder")
    return True


def _owner(file: Path) -> str:
    try:
        owner = json.loads(file.read_text(encoding="utf-8"))
        return f"process {owner['process']} on {owner['host']} has been {owner['doing']} here since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just beginning, or just ending
        return "another process is at work here"
