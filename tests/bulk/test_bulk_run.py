"""Runs of bulk prediction: one process or several, stopped and continued, finished files kept, results not mixed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hgclr.bulk import BulkResult, files, predict_files
from hgclr.bulk import run as running
from hgclr.bulk.run import RECORD, Engine, RunRecord, answer, default_workers, in_process, in_processes, label_files
from hgclr.cli.app import app
from hgclr.errors import HGCLRError, InputError
from hgclr.inference import HierarchicalClassifier
from support.bulk_cases import check_lines, die, read_lines, write_lines, write_model

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
    assert sorted(path.name for path in output.iterdir()) == [RECORD, *(f"part-{part}.jsonl" for part in range(3))]


class Stop(Exception):  # noqa: N818
    pass


def run_and_stop(model: Path, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop in the middle of the second file."""
    monkeypatch.setattr(files, "ROWS", 8)

    def stop(_: Path, rows: int) -> None:
        if rows > 1.5 * ROWS:
            raise Stop

    with pytest.raises(Stop):
        predict_files(model, [source], output, progress=stop)


def test_finished_files_are_not_labelled_again(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    results = [str(output / f"part-{part}.jsonl") for part in range(3)]
    run_and_stop(model, source, output, monkeypatch)
    assert sorted(path.name for path in output.iterdir()) == [RECORD, "part-0.jsonl"]  # and no half of the second
    before = Path(results[0]).stat()
    assert predict_files(model, [source], output) == BulkResult(results[1:], results[:1], 2 * ROWS)
    assert Path(results[0]).stat().st_mtime_ns == before.st_mtime_ns
    check(output)
    assert predict_files(model, [source], output) == BulkResult([], results)


def test_a_result_that_was_deleted_or_whose_input_changed_is_made_again(
    model: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    predict_files(model, [source], output)
    (output / "part-0.jsonl").unlink()
    write_lines(source / "part-2.jsonl", 500, ROWS + 1)
    assert predict_files(model, [source], output).written == [
        str(output / name) for name in ("part-0.jsonl", "part-2.jsonl")
    ]
    check_lines(output / "part-2.jsonl", 500, ROWS + 1)


@pytest.mark.parametrize(
    "change",
    [{"threshold": 0.9}, {"text_column": "number"}, {"skip_bad_rows": True}, {"leaf_paths": True}, {"model": "other"}],
)
def test_results_of_other_settings_are_not_mixed(
    change: dict, model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    run_and_stop(model, source, output, monkeypatch)
    settings = {"model": model} | change
    if settings["model"] == "other":
        settings["model"] = write_model(tmp_path / "other", each=7.0)
    with pytest.raises(InputError) as refused:
        predict_files(inputs=[source], output=output, **settings)
    assert refused.value.path == output
    assert "--overwrite" in refused.value.remedy
    if "text_column" not in change:
        assert len(predict_files(inputs=[source], output=output, overwrite=True, **settings).written) == 3


def test_files_of_others_stay(model: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-1.jsonl").write_text("mine")
    with pytest.raises(InputError) as refused:
        predict_files(model, [source], tmp_path / "out")
    assert refused.value.path == tmp_path / "out" / "part-1.jsonl"
    assert (tmp_path / "out" / "part-1.jsonl").read_text() == "mine"


def test_a_file_that_changes_while_it_is_labelled_is_no_result(model: Path, source: Path, tmp_path: Path) -> None:
    def grow(*_: object) -> None:
        with (source / "part-0.jsonl").open("a") as file:
            file.write('{"text": "late"}\n')

    with pytest.raises(InputError) as refused:
        predict_files(model, [source], tmp_path / "out", progress=grow)
    assert refused.value.path == source / "part-0.jsonl"
    assert not (tmp_path / "out" / "part-0.jsonl").exists()


def test_a_second_run_in_the_same_folder_is_refused(model: Path, source: Path, tmp_path: Path) -> None:
    """A second run would delete the file that the first is writing as a leftover of a killed run."""
    output, refused = tmp_path / "out", []

    def start_another(*_: object) -> None:
        with pytest.raises(InputError) as error:
            predict_files(model, [source], output, overwrite=True)
        refused.append(error.value.path)

    predict_files(model, [source], output, progress=start_another)
    assert refused == [output] * 3
    check(output)


@pytest.mark.parametrize("content", [b"nonsense", b"[]", b'{"settings": {}}', b"\xff"])
def test_a_broken_record_is_named(content: bytes, tmp_path: Path) -> None:
    RunRecord(tmp_path, {"model": "a"})
    (tmp_path / RECORD).write_bytes(content)
    with pytest.raises(InputError) as refused:
        RunRecord(tmp_path, {"model": "a"})
    assert refused.value.path == tmp_path / RECORD


@pytest.mark.slow
def test_a_run_that_was_killed_continues(model: Path, tmp_path: Path) -> None:
    """Kill the command, whose workers must end too, and start it again."""
    source, output, parts, rows = tmp_path / "texts", tmp_path / "out", 12, 3000
    source.mkdir()
    for part in range(parts):
        write_lines(source / f"part-{part:02}.jsonl", rows * part, rows)
    command = [sys.executable, "-c", "from hgclr.cli.app import app; app()", "predict", str(model)]
    command += ["--input", str(source), "--output", str(output), "--engine", "local", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    finished: list[str] = []
    while process.poll() is None and len(finished) < 2:
        finished = list(json.loads((output / RECORD).read_text())["results"])[:-1] if (output / RECORD).exists() else []
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    _, message = process.communicate(timeout=60)  # ends when the workers, which can write too, have ended
    assert process.returncode == -signal.SIGKILL, message
    before = {name: (output / name).stat() for name in finished}

    subprocess.run(command, capture_output=True, text=True, check=True)
    for name, status in before.items():
        assert (output / name).stat().st_mtime_ns == status.st_mtime_ns
    for part in range(parts):
        check_lines(output / f"part-{part:02}.jsonl", rows * part, rows)
    assert len(list(output.iterdir())) == parts + 1  # no leftovers


def test_several_processes_give_what_one_gives(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 16)
    names = [write_lines(tmp_path / f"{name}.jsonl", first, 100) for name, first in (("b", 0), ("a", 100))]
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": "atom"}\n{"text": "judge"}\n{"text": 3}\n', encoding="utf-8")
    names += [tmp_path / "empty.jsonl", tmp_path / "bad.jsonl"]
    for workers, output in ((1, tmp_path / "one"), (2, tmp_path / "two")):
        with pytest.raises(InputError) as refused:
            predict_files(model, names, output, workers=workers)
        assert (refused.value.path, refused.value.line) == (tmp_path / "bad.jsonl", 3)
        assert "--skip-bad-rows" in refused.value.remedy
        check_lines(output / "b.jsonl", 0, 100)
        check_lines(output / "a.jsonl", 100, 100)
        assert (output / "empty.jsonl").read_bytes() == b""
        assert not (output / "bad.jsonl").exists()


def test_the_error_of_a_file_waits_for_its_turn(model: Path, tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", 0, 3)
    with in_process(partial(answer, HierarchicalClassifier.load(model), {})) as (submit, _):
        labelled = label_files([first, tmp_path / "missing.jsonl"], ["text"], submit, 5)
        assert [len(answers) for _, answers in [next(labelled)]] == [3]
        with pytest.raises(InputError):
            next(labelled)


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", 0, 3)
    with pytest.raises(HGCLRError, match="--workers"), in_processes(die, 1) as (submit, ahead):
        list(label_files([path], ["text"], submit, ahead))


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    large = 3 * running.BYTES_PER_WORKER
    cpu = SimpleNamespace(backend=SimpleNamespace())
    accelerator = SimpleNamespace(backend=SimpleNamespace(device=SimpleNamespace(type="cuda")))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert default_workers(cpu, large) == 4  # one for each BYTES_PER_WORKER, and one for the rest
    assert default_workers(cpu, 1) == 1
    assert default_workers(accelerator, large) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert default_workers(cpu, large) == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert default_workers(cpu, large) == 3


@pytest.mark.slow
def test_a_torch_model(make_encoder, taxonomy, tmp_path: Path) -> None:
    from support.toy import TEXTS, make_model

    trained, tokenizer = make_model(make_encoder, taxonomy)
    trained.deployed().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS), encoding="utf-8")
    predict_files(tmp_path / "model", [tmp_path / "t.jsonl"], tmp_path / "out", rule="closure")
    classifier = HierarchicalClassifier.load(tmp_path / "model")
    wanted = [each.to_json() for each in classifier.predict(TEXTS, rule="closure")]
    assert any(answer["labels"] for answer in wanted)
    assert read_lines(tmp_path / "out" / "t.jsonl") == [
        {"text": text, "prediction": answer} for text, answer in zip(TEXTS, wanted, strict=True)
    ]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(model: Path, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        path = write_lines(tmp_path / f"t{rows}.jsonl", 0, rows)
        predict_files(model, [path], tmp_path / "warm", overwrite=True)
        tracemalloc.start()
        predict_files(model, [path], tmp_path / f"out{rows}")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(12_000) < 1.3 * peak(3_000)


NAME, REVISION = "somebody/sorter", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an ONNX model into the hub's cache, and cut the connection; torch must not be required."""

    def require(module: str, **_: object) -> None:
        assert module != "torch"

    monkeypatch.setattr("hgclr.errors.require_extra", require)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(REVISION)
    return write_model(place / "snapshots" / REVISION)


def test_workers_get_the_folder_of_a_hub_name(snapshot: Path, tmp_path: Path) -> None:
    """Worker processes do not see the patched cache, so the name alone would not be found."""
    source = write_lines(tmp_path / "a.jsonl", 0, 20)
    arguments = ["predict", NAME, "--input", str(source), "--output", f"{tmp_path}/out/", "--workers", "2"]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    check_lines(tmp_path / "out" / "a.jsonl", 0, 20)


def test_nodes_of_a_cluster_get_the_hub_name(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[tuple[str, float]] = []

    @contextmanager
    def pretended(work: partial, *, on_gpu: bool, **_: object) -> Iterator[Engine]:
        assert not on_gpu  # an ONNX model
        place, _, changes = work.args
        jobs.append((place, changes["abstain_below"]))
        with in_process(partial(answer, HierarchicalClassifier.load(snapshot), changes)) as engine:
            yield engine

    monkeypatch.setattr(running, "tasks", pretended)
    source = write_lines(tmp_path / "a.jsonl", 0, 20)
    predict_files(NAME, [source], tmp_path / "out", engine="ray", abstain_below=0.1)
    check_lines(tmp_path / "out" / "a.jsonl", 0, 20)
    assert jobs == [(NAME, 0.1)]
