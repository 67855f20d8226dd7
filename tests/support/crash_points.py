"""Kill a piece of work at every one of its file-system events, each time in a fork, and look at what is left.

For example, with ``work`` writing a file below the folder that it is given::

    def work(place: Path) -> None:
        write_json(place / "a.json", [1])

    def check(place: Path) -> None:
        work(place)  # a second attempt, after the kill
        assert json.loads((place / "a.json").read_text()) == [1]

    events = survive_every_crash(work, check, tmp_path)
    assert len(events) > 3

Import and load in the test itself whatever takes long: the forks have it then. Keep to one thread (a fork has no
other), and leave the first backward pass to a fork. What is killed is the process, not the machine: what was handed to
the operating system stays. With ``torn`` the file that was being written is cut in half besides, as writes in C and
Rust, which no event announces, may be when the kill comes in the middle, or the power fails before they reach the disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
"""Audit events that announce a change, beside renames, links and ``open`` for writing; shutil's consist of these."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DONE, FAILED, SAME = 0, 1, 3


def survive_every_crash(
    work: Callable[[Path], None],
    check: Callable[[Path], None],
    folder: Path,
    *,
    torn: bool = False,
    start: Callable[[Path], None] | None = None,
) -> list[str]:
    """Kill ``work`` at each event below its place and let ``check`` look at that place; return the events.

    Args:
        work: is given an empty folder, and does what it does in there.
        check: is given the same folder after the kill, in another fork; it raises if anything is wrong.
        folder: where these folders are made; that of a failure stays.
        torn: cut in half what was written last; events before which nothing was written since the one before are left
            out.
        start: fills the folder before work begins; nothing kills it.

    Raises:
        AssertionError: if work fails of itself, or check fails; with the event and the fork's traceback.
    """
    events: list[str] = []
    while True:
        number = len(events) + 1
        place = folder / f"crash-{number:03}"
        place.mkdir(parents=True)
        if start is not None:
            start(place)
        note = folder / f"crash-{number:03}.event"
        status = run_forked(partial(_work_until, work, number, place, note, torn), folder / "log")
        if status == DONE:
            shutil.rmtree(place)
            return [event for event in events if event]
        if status == SAME:
            events.append("")
            shutil.rmtree(place)
            continue
        what = note.read_text() if note.exists() else f"before event {number}"
        assert status == -signal.SIGKILL, f"{what}: work failed by itself\n{(folder / 'log').read_text()}"
        events.append(what)
        status = run_forked(partial(check, place), folder / "log")
        assert status == DONE, f"killed at event {number}, {what}:\n{(folder / 'log').read_text()}"
        shutil.rmtree(place)
        note.unlink()


def run_forked(work: Callable[[], None], log: Path) -> int:
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


def _work_until(work: Callable[[Path], None], number: int, place: Path, note: Path, torn: bool) -> None:
    """Do the work; at event ``number`` note which it is and end, as nobody can prevent."""
    count, last, ours = 0, 0, place.resolve()

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count, last
        paths = _changed(event, arguments) if count < number else []
        if not any(path.is_relative_to(ours) for path in paths):
            return
        count += 1
        if count < number:
            last = max((path.stat().st_mtime_ns for path in _files(place)), default=0) if torn else 0
            return
        if torn and not _tear(place, last):
            os._exit(SAME)
        note.write_text(f"{event} {' -> '.join(str(path).removeprefix(f'{ours}/') for path in paths)}")
        os.kill(os.getpid(), signal.SIGKILL)

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


def _files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]


def _tear(place: Path, last: int) -> bool:
    """Halve the file written last, as by a kill in the middle of writing it; not if that was before ``last``."""
    newest = max(_files(place), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None or newest.stat().st_mtime_ns <= last or not newest.stat().st_size:
        return False
    os.truncate(newest, newest.stat().st_size // 2)
    return True
