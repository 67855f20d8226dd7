"""Atomic files and folders at every moment; a lock has one owner and ends with its process."""

from __future__ import annotations

import csv
import io
import os
import posix
import signal
from functools import partial
from pathlib import Path

import pytest

import hgclr.files
from hgclr.errors import InputError
from hgclr.files import TableWriter, atomic_folder, locked, open_regular, read_bytes, read_json, recover_folder
from support.crash_points import run_forked, survive_every_crash

NAMES = ("a", "b/c")
WRITERS, ROUNDS = 4, 30


@pytest.fixture(autouse=True)
def _flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Really flush here; tests of other modules skip it to save time."""
    monkeypatch.setattr(os, "fsync", posix.fsync)


@pytest.fixture(params=["exchanged", "renamed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the system can exchange two folders, and where it cannot."""
    if request.param == "renamed":
        monkeypatch.setattr(hgclr.files, "_renameat2", None)
    elif hgclr.files._renameat2 is None:
        pytest.skip("this system cannot exchange folders")
    return request.param


def write(content: str, place: Path) -> None:
    with atomic_folder(place / "model") as folder:
        for name in NAMES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)


def content_of(folder: Path) -> set[str]:
    return {(folder / name).read_text() for name in NAMES}


def test_at_every_moment_the_old_folder_is_there_or_the_new_one(way: str, tmp_path: Path) -> None:
    def check(place: Path) -> None:
        if way == "renamed":
            recover_folder(place / "model")
        assert content_of(place / "model") in ({"old"}, {"new"})
        write("newer", place)
        assert content_of(place / "model") == {"newer"}
        assert [path.name for path in place.iterdir()] == ["model"]  # what the dead writer left is gone

    events = survive_every_crash(partial(write, "new"), check, tmp_path, start=partial(write, "old"))
    assert len(events) > 8
    assert sum(event.startswith("os.rename") for event in events) == (1 if way == "exchanged" else 2)


def test_a_first_folder_is_there_whole_or_not_at_all(way: str, tmp_path: Path) -> None:
    def check(place: Path) -> None:
        assert not (place / "model").exists() or content_of(place / "model") == {"new"}
        write("newer", place)
        assert [path.name for path in place.iterdir()] == ["model"]

    assert len(survive_every_crash(partial(write, "new"), check, tmp_path)) > 5


def test_four_writers_leave_one_whole_folder(way: str, tmp_path: Path) -> None:
    def work(number: int) -> None:
        for turn in range(ROUNDS):
            write(f"{number} {turn}", tmp_path)

    writers = []
    for number in range(WRITERS):
        if (process := os.fork()) == 0:
            os._exit(run_forked(partial(work, number), tmp_path / f"log-{number}"))
        writers.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in writers]
    assert codes == [0] * WRITERS, "\n".join(path.read_text() for path in tmp_path.glob("log-*"))
    (content,) = content_of(tmp_path / "model")
    assert content.endswith(f" {ROUNDS - 1}")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("log-")) == ["model"]


def test_a_write_that_fails_leaves_the_old_folder(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("old", tmp_path)

    def stop(_new: Path, target: Path, old: Path) -> None:
        target.rename(old)
        raise KeyboardInterrupt

    monkeypatch.setattr(hgclr.files, "_replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write("new", tmp_path)
    assert content_of(tmp_path / "model") == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    for name in (".model.copy.abcdefgh.tmp", ".model.tmp", "model.abcdefgh.tmp"):
        (tmp_path / name / "old").mkdir(parents=True)
    recover_folder(tmp_path / "model")
    assert len(list(tmp_path.iterdir())) == 3
    with atomic_folder(tmp_path / "model"):
        recover_folder(tmp_path / "model")  # its writer, this process, is alive
    assert (tmp_path / "model").is_dir()


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "pipe.json")
    with pytest.raises(InputError):
        read_json(tmp_path / "pipe.json")
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)


def test_cells_that_a_spreadsheet_would_run_become_texts() -> None:
    cells = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1", "-1.5", "+7", "-", "a=1", "", 5, -5]
    expected = ["'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "'＝1", "-1.5", "+7", "'-", "a=1", ""]
    rows = {}
    for raw in (False, True):
        stream = io.StringIO(newline="")
        TableWriter(stream, raw=raw).writerow(cells)
        (rows[raw],) = csv.reader(io.StringIO(stream.getvalue(), newline=""))
    assert rows[False] == [*expected, "5", "-5"]
    assert rows[True] == [str(cell) for cell in cells]


def test_a_second_process_is_refused_and_learns_who_is_there(tmp_path: Path) -> None:
    lock = tmp_path / "run" / ".lock"

    def try_it() -> None:
        with locked(lock, "training", remedy="wait"):
            pass

    with locked(lock, "training", remedy="wait"):
        with pytest.raises(InputError, match=f"process {os.getpid()} on ") as refused, locked(lock, "x", remedy="wait"):
            pass
        assert (refused.value.path, refused.value.remedy) == (lock.parent, "wait")
        assert run_forked(try_it, tmp_path / "log") == 1
    assert not lock.parent.exists()  # nothing was written
    with locked(lock, "training", remedy="wait"):
        (lock.parent / "result").touch()
    assert [path.name for path in lock.parent.iterdir()] == ["result"]


def test_a_lock_is_taken_over_from_a_dead_owner(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"

    def die() -> None:
        with locked(lock, "training", remedy="wait"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_forked(die, tmp_path / "log") == -signal.SIGKILL
    assert lock.exists()
    with locked(lock, "training", remedy="wait"):
        assert str(os.getpid()) in lock.read_text()


def test_a_file_that_its_owner_deletes_in_between_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before the owner ends, locked after: a third process could lock a new file of that name."""
    import fcntl

    lock, flock = tmp_path / ".lock", fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(lock, "training", remedy="wait"), pytest.raises(InputError), locked(lock, "training", remedy="wait"):
        pass


def test_a_lock_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError), locked(tmp_path / "file" / "lock", "a", remedy="b"):
        pass
