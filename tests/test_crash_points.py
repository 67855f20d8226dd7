"""The harness of crash points finds what a kill leaves behind, and passes what is written whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hgclr.files import write_json
from support.crash_points import survive_every_crash


def write_twice(place: Path) -> None:
    write_json(place / "a.json", {"a": 1})
    write_json(place / "b.json", {"b": 2})


def both_or_the_first(place: Path) -> None:
    found = {path.name: json.loads(path.read_text()) for path in place.glob("*.json")}
    assert found in ({}, {"a.json": {"a": 1}}, {"a.json": {"a": 1}, "b.json": {"b": 2}})


def test_files_that_are_renamed_into_place_survive(tmp_path: Path) -> None:
    events = survive_every_crash(write_twice, both_or_the_first, tmp_path)
    torn = survive_every_crash(write_twice, both_or_the_first, tmp_path, torn=True)
    assert [event.split()[0] for event in events].count("os.rename") == 2
    assert [event.split()[0] for event in torn] == ["os.rename"] * 2  # before that, each file was written
    assert events[-1].split()[0] == "os.remove"  # of the temporary file, which is gone already
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_file_that_is_written_in_place_does_not(tmp_path: Path) -> None:
    def write(place: Path) -> None:
        (place / "a.json").write_text('{"a": 1}')
        (place / "b.json").write_text('{"b": 2}')

    assert survive_every_crash(write, both_or_the_first, tmp_path) == ["open a.json", "open b.json"]
    with pytest.raises(AssertionError, match=r"killed at event 2, open b\.json:(?s:.)*JSONDecodeError"):
        survive_every_crash(write, both_or_the_first, tmp_path / "torn", torn=True)


def test_every_deletion_of_a_folder_is_an_event(tmp_path: Path) -> None:
    def fill(place: Path) -> None:
        (place / "old").mkdir()
        for name in ("one", "two"):
            (place / "old" / name).touch()

    def check(place: Path) -> None:
        assert (place / "old").is_dir()

    events = survive_every_crash(lambda place: shutil.rmtree(place / "old"), check, tmp_path, start=fill)
    assert sorted(events) == ["os.remove old/one", "os.remove old/two", "os.rmdir old"]


def test_work_that_fails_by_itself_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"work failed by itself\n(?s:.)*FileNotFoundError"):
        survive_every_crash(lambda place: (place / "none").unlink(), both_or_the_first, tmp_path)


def test_what_an_event_leaves_as_it_was_is_checked_once(tmp_path: Path) -> None:
    def write(place: Path) -> None:
        for text in ("one", "two"):
            (place / "folder").mkdir(exist_ok=True)
            (place / "folder").mkdir(exist_ok=True)
            (place / "folder" / "file").write_text(text)

    def check(place: Path) -> None:
        with (tmp_path / "checked").open("a") as log:
            log.write(f"{[path.name if path.is_dir() else path.read_text() for path in sorted(place.rglob('*'))]}\n")

    assert len(survive_every_crash(write, check, tmp_path / "crashes")) == 6
    assert (tmp_path / "checked").read_text().splitlines() == ["[]", "['folder']", "['folder', 'one']"]
