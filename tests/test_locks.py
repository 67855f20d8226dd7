"""The lock of a folder: one owner at a time, named to the second, and gone with its process."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.files import locked
from support.crash_points import run_forked


def test_the_second_one_is_told_who_is_there(tmp_path: Path) -> None:
    lock = tmp_path / "run" / ".lock"
    with locked(lock, "training", remedy="wait"):
        owner = (
            rf"{re.escape(str(tmp_path / 'run'))}: process {os.getpid()} on \S+ has been training here since \d{{4}}-"
        )
        with pytest.raises(InputError, match=owner + ".*; wait$"), locked(lock, "evaluating", remedy="wait"):
            pass
        assert lock.exists()
    assert not (tmp_path / "run").exists()  # nothing came of it
    with locked(lock, "training", remedy="wait"):
        (tmp_path / "run" / "result").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["result"]


def test_a_lock_is_taken_over_from_a_dead_owner(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"

    def die() -> None:
        with locked(lock, "training", remedy="wait"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_forked(die, tmp_path / "log") == -signal.SIGKILL
    assert lock.exists()
    with locked(lock, "training", remedy="wait"):
        assert str(os.getpid()) in lock.read_text()


def test_a_living_process_is_not_robbed(tmp_path: Path) -> None:
    def try_it() -> None:
        with locked(tmp_path / ".lock", "training", remedy="wait"):
            pass

    with locked(tmp_path / ".lock", "training", remedy="wait"):
        assert run_forked(try_it, tmp_path / "log") == 1
    assert f"process {os.getpid()} on" in (tmp_path / "log").read_text()
    assert run_forked(try_it, tmp_path / "log") == 0


def test_a_file_that_its_owner_deletes_in_between_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before the owner goes, locked after: what is locked has no name, and a third could lock another."""
    import fcntl

    lock, flock = tmp_path / ".lock", fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        locked(lock, "training", remedy="wait"),
        pytest.raises(InputError, match="has been training"),
        locked(lock, "training", remedy="wait"),
    ):
        pass


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), locked(tmp_path / "file" / "lock", "a", remedy="b"):
        pass
