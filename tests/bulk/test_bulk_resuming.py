"""A run that was stopped goes on: finished files stay as they are, all else is labelled, nothing is mixed up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hgclr.bulk import BulkResult, inputs, predict_files
from hgclr.bulk.run import FILE, RunRecord
from hgclr.errors import InputError
from support.bulk_cases import check_lines, read_lines, write_lines, write_model

ROWS = 30


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for part in range(3):
        write_lines(folder / f"part-{part}.jsonl", ROWS * part, ROWS)
    return folder


def check(output: Path) -> None:
    for part in range(3):
        check_lines(output / f"part-{part}.jsonl", ROWS * part, ROWS)
    assert sorted(path.name for path in output.iterdir()) == [FILE, *(f"part-{part}.jsonl" for part in range(3))]


class Stop(Exception):  # noqa: N818
    pass


def run_and_stop(model: Path, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop in the middle of the second file."""
    monkeypatch.setattr(inputs, "ROWS", 8)

    def stop(progress) -> None:
        if progress.rows > 1.5 * ROWS:
            raise Stop

    with pytest.raises(Stop):
        predict_files(model, [source], output, progress=stop)


def test_finished_files_are_not_labelled_again(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    run_and_stop(model, source, output, monkeypatch)
    assert sorted(path.name for path in output.iterdir()) == [FILE, "part-0.jsonl"]  # and no half of the second
    before = (output / "part-0.jsonl").stat()
    result = predict_files(model, [source], output)
    assert result == BulkResult(
        [output / "part-1.jsonl", output / "part-2.jsonl"], [output / "part-0.jsonl"], 2 * ROWS, 0
    )
    after = (output / "part-0.jsonl").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    check(output)
    assert predict_files(model, [source], output) == BulkResult(
        [], [output / f"part-{part}.jsonl" for part in range(3)], 0, 0
    )


def test_a_result_that_was_deleted_or_whose_input_changed_is_made_again(
    model: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    predict_files(model, [source], output)
    (output / "part-0.jsonl").unlink()
    write_lines(source / "part-2.jsonl", 500, ROWS + 1)
    assert predict_files(model, [source], output).written == [output / "part-0.jsonl", output / "part-2.jsonl"]
    check_lines(output / "part-0.jsonl", 0, ROWS)
    check_lines(output / "part-2.jsonl", 500, ROWS + 1)
    assert predict_files(model, [source], output).written == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 0.9}, r"another way to decide \(--rule, --threshold, --paths, --abstain-below\)"),
        ({"abstain_below": 0.5}, r"another way to decide"),
        ({"text_column": "number"}, r"another --text-column"),
        ({"skip_bad_rows": True}, r"another choice of --skip-bad-rows"),
        ({"model": "other"}, r"another model"),
    ],
)
def test_results_of_other_settings_are_not_mixed(
    change: dict, message: str, model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    run_and_stop(model, source, output, monkeypatch)
    settings = {"model": model} | change
    if settings["model"] == "other":
        settings["model"] = write_model(tmp_path / "other", each=7.0)
    with pytest.raises(InputError, match=rf"out: the results in this folder were made with {message}.*--overwrite"):
        predict_files(inputs=[source], output=output, **settings)
    if "text_column" not in change:
        assert len(predict_files(inputs=[source], output=output, overwrite=True, **settings).written) == 3


def test_the_same_settings_in_other_words_go_on(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    run_and_stop(model, source, output, monkeypatch)
    moved = model.rename(tmp_path / "moved")
    assert len(predict_files(moved, [f"{source}/part-*"], output, threshold=0.5, rule="threshold").kept) == 1
    check(output)


def test_files_of_others_are_not_overwritten(model: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "part-1.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"part-1\.jsonl: is there already, and no result of this run; .*--overwrite"):
        predict_files(model, [source], output)
    assert (output / "part-1.jsonl").read_text(encoding="utf-8") == "mine"
    predict_files(model, [source], output, overwrite=True)
    check(output)


def test_a_file_that_changes_while_it_is_labelled_is_no_result(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "ROWS", 8)

    def grow(_) -> None:
        with (source / "part-0.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"text": "late"}\n')

    with pytest.raises(InputError, match=r"part-0\.jsonl: changed while it was being labelled; start the run again"):
        predict_files(model, [source], tmp_path / "out", progress=grow)
    assert not (tmp_path / "out" / "part-0.jsonl").exists()


def test_a_second_run_in_the_same_folder_is_refused(model: Path, source: Path, tmp_path: Path) -> None:
    """It would take the file that the first is writing for what a killed run has left, and delete it."""
    output = tmp_path / "out"
    refused: list[str] = []

    def start_another(_) -> None:
        for overwrite in (False, True):
            with pytest.raises(InputError) as error:
                predict_files(model, [source], output, overwrite=overwrite)
            refused.append(str(error.value))

    predict_files(model, [source], output, progress=start_another)
    assert all("has been labelling here since" in message for message in refused)
    assert len(refused) == 6
    check(output)


def test_a_record_that_was_cut_short_counts_up_to_there(model: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    predict_files(model, [source], output)
    record = output / FILE
    whole = record.read_text(encoding="utf-8")
    record.write_text(whole[:-15], encoding="utf-8")  # within the line that says that the last file is finished
    assert predict_files(model, [source], output).written == [output / "part-2.jsonl"]
    check(output)
    for line in read_lines(record):
        assert len({"settings", "begun", "finished"} & line.keys()) == 1


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    RunRecord(tmp_path, {"model": "a"})
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write('nonsense\n{"begun": "x"}\n')
    with pytest.raises(InputError, match=r"\.hgclr-bulk\.jsonl:2: the record of the run is broken; .*--overwrite"):
        RunRecord(tmp_path, {"model": "a"})


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(model: Path, tmp_path: Path) -> None:
    """Kill the command, whose processes must go too, and start it again."""
    source, output, files, rows = tmp_path / "texts", tmp_path / "out", 12, 3000
    source.mkdir()
    for part in range(files):
        write_lines(source / f"part-{part:02}.jsonl", rows * part, rows)
    command = [sys.executable, "-c", "from hgclr.cli.app import app; app()", "predict", str(model)]
    command += ["--input", str(source), "--output", str(output), "--engine", "local", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    finished: list[str] = []
    while process.poll() is None and len(finished) < 2:
        lines = (output / FILE).read_text(encoding="utf-8").splitlines() if (output / FILE).exists() else []
        finished = [line for line in lines if '"finished"' in line and line.endswith("}")]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    _, message = process.communicate(timeout=60)  # ends when all who can write have gone: those that label, too
    assert process.returncode == -signal.SIGKILL, message
    kept = {json.loads(line)["finished"] for line in finished}
    before = {name: (output / name).stat() for name in kept}

    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "had been finished before" in again.stderr
    for name, status in before.items():
        assert (output / name).stat().st_mtime_ns == status.st_mtime_ns
    for part in range(files):
        check_lines(output / f"part-{part:02}.jsonl", rows * part, rows)
    assert len(list(output.iterdir())) == files + 1  # nothing half is left
