"""A model by its hub name: looked up once, and known for what it is, on this machine and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.bulk import on_ray, predict_files
from hgclr.bulk.engine import BulkJob, Label, in_process
from hgclr.cli.app import app
from hgclr.inference import HierarchicalClassifier
from support.bulk_cases import check_lines, write_lines, write_model

NAME, REVISION = "somebody/sorter", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an ONNX model into the hub's cache, and cut the connection; torch is not to be asked for."""

    def require(module: str, **_: object) -> None:
        assert module != "torch"

    monkeypatch.setattr("hgclr.errors.require_extra", require)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(REVISION)
    return write_model(place / "snapshots" / REVISION)


def test_processes_get_the_folder(tmp_path: Path) -> None:
    """They know nothing of the cache here, so the name would be none to them."""
    source = write_lines(tmp_path / "a.jsonl", 0, 20)
    predict_files(NAME, [source], tmp_path / "out", workers=2)
    check_lines(tmp_path / "out" / "a.jsonl", 0, 20)


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", 0, 20)
    arguments = ["predict", NAME, "--input", str(source), "--output", f"{tmp_path}/out/"]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    check_lines(tmp_path / "out" / "a.jsonl", 0, 20)


def test_nodes_of_a_cluster_get_the_name_and_need_no_gpu(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[BulkJob] = []

    @contextmanager
    def pretended(job: BulkJob, **_: object) -> Iterator[Label]:
        jobs.append(job)
        with in_process(job, HierarchicalClassifier.load(snapshot)) as label:
            yield label

    monkeypatch.setattr(on_ray, "on_ray", pretended)
    source = write_lines(tmp_path / "a.jsonl", 0, 20)
    predict_files(NAME, [source], tmp_path / "out", engine="ray", abstain_below=0.1)
    check_lines(tmp_path / "out" / "a.jsonl", 0, 20)
    assert [(job.model, job.onnx, job.changes["abstain_below"]) for job in jobs] == [(NAME, True, 0.1)]
    assert on_ray._resources(jobs[0], {"CPU": 4.0, "GPU": 1.0}) == {"num_cpus": 1}
