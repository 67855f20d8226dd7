"""Bulk prediction on this machine: in one process or in several, with the same results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgclr.bulk import Progress, engine, inputs, predict_files
from hgclr.bulk.engine import BulkJob
from hgclr.errors import HGCLRError, InputError
from hgclr.inference import HierarchicalClassifier
from support.bulk_cases import check_lines, die, read_lines, write_lines, write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_several_processes_give_what_one_gives(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "ROWS", 16)
    names = [write_lines(tmp_path / f"{name}.jsonl", first, 100) for name, first in (("b", 0), ("a", 100))]
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": "atom"}\n{"text": "judge"}\n{"text": 3}\n', encoding="utf-8")
    names += [tmp_path / "empty.jsonl", tmp_path / "bad.jsonl"]
    for workers, output in ((1, tmp_path / "one"), (2, tmp_path / "two")):
        with pytest.raises(InputError, match=r"bad\.jsonl:3: column 'text'"):
            predict_files(model, names, output, workers=workers)
        check_lines(output / "b.jsonl", 0, 100)
        check_lines(output / "a.jsonl", 100, 100)
        assert (output / "empty.jsonl").read_bytes() == b""
        assert not (output / "bad.jsonl").exists()


def test_what_is_wrong_with_a_file_is_said_when_it_is_its_turn(model: Path, tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", 0, 3)
    with engine.in_processes(BulkJob(str(model), [first, tmp_path / "missing.jsonl"]), 1) as label:
        assert [len(answers) for _, answers in label(first)] == [3]
        with pytest.raises(InputError, match=r"missing\.jsonl: no such file"):
            list(label(tmp_path / "missing.jsonl"))


def test_a_process_that_dies_is_one_line(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", 0, 3)
    monkeypatch.setattr(engine, "_answers", die)
    with (
        pytest.raises(HGCLRError, match=r"a process that labels was killed.*fewer than 1 --workers"),
        engine.in_processes(BulkJob(str(model), [path]), 1) as label,
    ):
        list(label(path))


def test_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * 3 * engine.BYTES_PER_WORKER)
    cpu = SimpleNamespace(backend=SimpleNamespace())
    accelerator = SimpleNamespace(backend=SimpleNamespace(device=SimpleNamespace(type="cuda")))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert engine.choose_workers(cpu, [large, small], None) == 4  # one for each BYTES_PER_WORKER, and one for the rest
    assert engine.choose_workers(cpu, [small], None) == 1
    assert engine.choose_workers(cpu, [small], 5) == 5
    assert engine.choose_workers(accelerator, [large], None) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert engine.choose_workers(cpu, [large], None) == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert engine.choose_workers(cpu, [large], None) == 3


def test_progress_tells_rows_and_files(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "ROWS", 6)
    names = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for name in names:
        name.write_text('{"text": "atom"}\n' * 10, encoding="utf-8")
    seen: list[Progress] = []
    predict_files(model, names, tmp_path / "out", progress=seen.append)
    assert [(told.rows, told.expected, told.file.name, told.number, told.files) for told in seen] == [
        (6, 20, "a.jsonl", 1, 2),  # the second file is as large, so it must have as many rows
        (10, 20, "a.jsonl", 1, 2),
        (16, 20, "b.jsonl", 2, 2),
        (20, 20, "b.jsonl", 2, 2),
    ]


def test_a_torch_model_works_too(make_encoder, taxonomy, tmp_path: Path) -> None:
    from support.toy import TEXTS, make_model

    trained, tokenizer = make_model(make_encoder, taxonomy)
    trained.deployed().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS), encoding="utf-8")
    predict_files(tmp_path / "model", [tmp_path / "t.jsonl"], tmp_path / "out", rule="closure")
    classifier = HierarchicalClassifier.load(tmp_path / "model")
    wanted = [prediction.to_json() for prediction in classifier.predict(TEXTS, rule="closure")]
    assert any(answer["predictions"] for answer in wanted)
    assert read_lines(tmp_path / "out" / "t.jsonl") == [
        {"text": text} | answer for text, answer in zip(TEXTS, wanted, strict=True)
    ]
