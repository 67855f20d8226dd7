"""Which checkpoints are taken for whole, which are kept, and what is left of them after a kill."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from hgclr.training.checkpoints import delete_checkpoint, delete_old, find_checkpoint, mark_complete, problem

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")


def write_checkpoint(folder: Path, step: int, best: int | None = None, files: tuple[str, ...] = FILES) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    for name in files:
        (checkpoint / name).write_text(f"{name} of {step}")
    noted = None if best is None else f"where it was before/checkpoint-{best}"
    (checkpoint / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": noted}))
    mark_complete(checkpoint)
    return checkpoint


def test_the_newest_whole_one_is_found_and_others_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert find_checkpoint(tmp_path / "none") is None
    for step in (9, 10, 100):
        write_checkpoint(tmp_path, step)
    assert find_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    (tmp_path / "checkpoint-100" / "COMPLETE").unlink()
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert "checkpoint-100" in caplog.text


@pytest.mark.parametrize("name", [*FILES, "trainer_state.json"])
def test_a_file_that_is_gone_or_changed_is_noticed(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path, 7)
    file = checkpoint / name
    content = file.read_bytes()
    assert problem(checkpoint) is None
    file.write_bytes(content[:-1])
    assert name in (problem(checkpoint) or "")
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])  # as long as before
    assert name in (problem(checkpoint) or "")
    file.unlink()
    assert name in (problem(checkpoint) or "")


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_without_a_needed_file_is_incomplete(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path, 7, files=tuple(other for other in FILES if other != name))
    assert problem(checkpoint) == f"lacks {name.removesuffix('.pth')}"


@pytest.mark.parametrize("mark", ["", "{", "[]", '{"files": []}', '{"files": {"optimizer.pt": 3}}'])
def test_a_broken_mark_is_none(tmp_path: Path, mark: str) -> None:
    checkpoint = write_checkpoint(tmp_path, 7)
    (checkpoint / "COMPLETE").write_text(mark)
    assert problem(checkpoint) is not None


def test_a_checkpoint_whose_best_is_broken_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = write_checkpoint(tmp_path, 7, best=7), write_checkpoint(tmp_path, 14, best=14)
    write_checkpoint(tmp_path, 21, best=14)
    assert find_checkpoint(tmp_path) == tmp_path / "checkpoint-21"
    (second / "model.safetensors").write_text("other weights")
    assert find_checkpoint(tmp_path) == first
    first_skipped = caplog.records[0].getMessage()
    assert all(name in first_skipped for name in ("checkpoint-14", "checkpoint-21", "model.safetensors"))
    shutil.rmtree(first)
    assert find_checkpoint(tmp_path) is None


def test_the_best_and_the_newest_are_never_deleted(tmp_path: Path) -> None:
    made = {step: write_checkpoint(tmp_path, step, best=7) for step in (7, 14, 21, 28, 35)}
    delete_old(made[28], made[7], None)
    assert all(path.exists() for path in made.values())
    delete_old(made[28], made[7], 3)
    assert [step for step, path in made.items() if path.exists()] == [7, 21, 28]  # 35 is from a future that was broken
    delete_old(made[28], made[7], 1)
    assert [step for step, path in made.items() if path.exists()] == [7, 28]
    delete_old(made[28], made[28], 2)
    assert [step for step, path in made.items() if path.exists()] == [7, 28]  # one more to fall back to


def test_deletion_unmarks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = write_checkpoint(tmp_path, 7)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before the first file is gone
    delete_checkpoint(checkpoint)
    assert find_checkpoint(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-7.deleted"]
