"""Check the files that a piece of work leaves if it is killed at any of its file-system events.

The work runs once, in a fork. Before each event its folder is copied: that is the state after a kill at that moment.
Then each copy that differs from the one before is put in the folder's place, and another fork checks it. With ``torn``
the files written since the event before are also cut in half: writes in C and Rust, which no event announces, end so if
the kill comes in the middle of them.

Import and load slow things in the test, so that the forks have them. Use one thread (a fork has no other), and leave
the first backward pass to a fork.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
"""Audit events that announce a change, beside renames, links and ``open`` for writing; shutil's consist of these."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DONE, FAILED = 0, 1


def survive_every_crash(
    work: Callable[[Path], None],
    check: Callable[[Path], None],
    folder: Path,
    *,
    torn: bool = False,
    start: Callable[[Path], None] | None = None,
) -> list[str]:
    """Let ``check`` look at what ``work`` leaves if it is killed at each of its events; return the events.

    Args:
        work: is given an empty folder, and does what it does in there.
        check: is given the same folder as it was before an event, in another fork; it raises if anything is wrong.
        folder: where all this happens; after a failure what led to it is there.
        torn: cut in half what was written since the event before; events before which nothing was are left out.
        start: fills the folder before work begins; nothing kills it.

    Raises:
        AssertionError: if work fails by itself, or check fails; with the event and the fork's traceback.
    """
    place, copies, log = folder / "place", folder / "copies", folder / "log"
    for path in (place, copies):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    if start is not None:
        start(place)
    assert run_forked(partial(_copy_at_events, work, place, copies, torn), log) == DONE, (
        f"work failed by itself\n{log.read_text()}"
    )
    events, checked = [], None
    for note in sorted(copies.glob("*.event")):
        events.append(note.read_text())
        left = _contents(note.with_suffix(""))
        if left == checked:
            continue
        checked = left
        shutil.rmtree(place)
        note.with_suffix("").rename(place)
        status = run_forked(partial(check, place), log)
        assert status == DONE, f"killed at event {int(note.stem)}, {events[-1]}:\n{log.read_text()}"
    shutil.rmtree(place)
    shutil.rmtree(copies)
    return events


def run_forked(work: Callable[[], object], log: Path) -> int:
    """Run ``work`` in a fork; return 0, 1 if it raised, or minus the signal that ended it; ``log`` keeps its output."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = FAILED
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        work()
        code = DONE
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)  # without the test runner's own ends


def _copy_at_events(work: Callable[[Path], None], place: Path, copies: Path, torn: bool) -> None:
    """Do the work; before each event copy its place to ``NUMBER``, and note the event in ``NUMBER.event``."""
    count, before, ours, copying = 0, _files(place), place.resolve(), False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count, before, copying
        if copying:
            return
        paths = _changed(event, arguments)
        if not any(path.is_relative_to(ours) for path in paths):
            return
        copying, count, now = True, count + 1, _files(place)
        written = [now[key] for key in now if key not in before and key.size > 1]
        if not torn or written:
            copy = copies / f"{count:04}"
            shutil.copytree(place, copy, symlinks=True)
            for path in written if torn else ():
                os.truncate(copy / path.relative_to(place), path.stat().st_size // 2)
            named = " -> ".join(str(path).removeprefix(f"{ours}/") for path in paths)
            copy.with_suffix(".event").write_text(f"{event} {named}")
        copying, before = False, now

    sys.addaudithook(watch)
    work(place)


def _changed(event: str, arguments: tuple[object, ...]) -> list[Path]:
    """Return the absolute paths that an event changes, if it is one that changes any."""
    if event == "open":
        name, _, flags = arguments
        named = [(name, -1)] if isinstance(flags, int) and flags & WRITING else []
    elif event in ("os.rename", "os.link"):
        first, second, from_folder, to_folder = arguments
        named = [(first, from_folder), (second, to_folder)]
    elif event == "os.symlink":
        named = [(arguments[1], arguments[2])]
    elif event in CHANGES:
        named = [(arguments[0], -1 if event == "os.truncate" else arguments[-1])]
    else:
        named = []
    return [_absolute(name, folder) for name, folder in named if isinstance(name, str | bytes | os.PathLike)]


def _absolute(name: str | bytes | os.PathLike[str], folder: object) -> Path:
    """Return where a name leads, which may be relative to an open folder, as those are that shutil.rmtree deletes."""
    known = isinstance(folder, int) and folder >= 0
    path = (Path(f"/proc/self/fd/{folder}").readlink() if known else Path.cwd()) / os.fsdecode(name)
    return path.parent.resolve() / path.name


def _contents(folder: Path) -> dict[Path, bytes | Path | None]:
    """Return all that is in a folder: files with what is in them, links with where they lead, folders."""
    return {
        path.relative_to(folder): path.readlink()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


class Written(NamedTuple):
    """What tells whether a file was written to, under whatever name it is found."""

    inode: int
    changed: int
    size: int


def _files(place: Path) -> dict[Written, Path]:
    found = {}
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found[Written(status.st_ino, status.st_mtime_ns, status.st_size)] = path
    return found
