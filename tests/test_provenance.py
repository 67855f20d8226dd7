"""The precision to train in, and the record of the machine."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hgclr import provenance
from hgclr.errors import InputError
from hgclr.provenance import machine
from hgclr.training.recipe import choose_precision

torch = pytest.importorskip("torch", reason="precision is torch's business")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_commit", "_version"):  # tests of other files compute them once
        monkeypatch.setattr(provenance, name, getattr(provenance, name).__wrapped__)


@pytest.mark.parametrize(
    ("kind", "native", "expected"),
    [
        ("cuda", True, {"auto": "bf16", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}),
        ("cuda", False, {"auto": "fp32", "fp32": "fp32", "bf16": None, "fp16": "fp16"}),
        ("mps", False, {"auto": "fp32", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}),
        ("cpu", False, {"auto": "fp32", "fp32": "fp32", "bf16": "bf16", "fp16": None}),
    ],
)
def test_precision(monkeypatch: pytest.MonkeyPatch, kind: str, native: bool, expected: dict[str, str | None]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: kind == "cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind != "cpu")
    for requested, chosen in expected.items():
        if chosen is None:
            with pytest.raises(InputError) as refused:
                choose_precision(requested)
            assert refused.value.remedy
        else:
            assert choose_precision(requested) == chosen


def test_machine_is_plain_json_with_versions_of_missing_packages_as_null(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provenance, "MAIN_PACKAGES", ("numpy", "no-such-package"))
    found = machine()
    assert json.loads(json.dumps(found)) == found
    assert found["packages"] == {
        "hgclr": importlib.metadata.version("hgclr"),
        "numpy": importlib.metadata.version("numpy"),
        "no-such-package": None,
    }
    assert found["python"] == ".".join(str(part) for part in sys.version_info[:3])


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "hgclr"
    package.mkdir(parents=True)
    (package / "provenance.py").write_text("")
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))

    def found() -> tuple[object, object]:
        known = machine()
        return known["commit"], known["modified"]

    assert found() == (None, None), "no repository"
    results = tmp_path / "benchmarks" / "results" / "table.md"
    results.parent.mkdir(parents=True)
    results.write_text("")
    git(tmp_path, "init", "--quiet")
    assert found() == (None, None), "no commit"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit = git(tmp_path, "log", "-1", "--format=%H")
    (tmp_path / "untracked").write_text("")
    results.write_text("one more row")
    assert found() == (commit, False)
    (package / "provenance.py").write_text("changed")
    assert found() == (commit, True)
    monkeypatch.setenv("PATH", "")
    assert found() == (None, None), "no git"
