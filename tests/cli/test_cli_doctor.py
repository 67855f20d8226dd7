from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import typer
from huggingface_hub import constants
from typer.testing import CliRunner

from hgclr.cli import machine as doctor
from hgclr.cli.machine import HealthCheck
from hgclr.encoders import DEFAULT_ENCODER, ENCODERS
from support.tiny_encoder import put_into_cache

app = typer.Typer()
app.command()(doctor.doctor)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for everything that leaves the process."""
    monkeypatch.setattr(doctor, "_hub", lambda: HealthCheck("model hub", "ok", "answers"))
    monkeypatch.setattr(doctor, "_index", lambda: HealthCheck("package index", "ok", "answers"))
    monkeypatch.setattr(doctor, "_devices", lambda: HealthCheck("devices", "ok", "no GPU"))


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a shell script stand for the Python that runs pip or torch."""
    if os.name != "posix":
        pytest.skip("the stand-in for Python is a shell script")

    def install(script: str) -> None:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    return install


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a module seem not installed."""
    find_spec = importlib.util.find_spec

    def hide(module: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name == module else find_spec(name, *rest),
        )

    return hide


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str], dict[str, str]], dict[str, HealthCheck]]:
    """Judge made-up installed versions against made-up requirements."""

    def judge(required: list[str], installed: dict[str, str]) -> dict[str, HealthCheck]:
        def requires(name: str) -> list[str]:
            return required

        def version(name: str) -> str:
            if name not in installed:
                raise importlib.metadata.PackageNotFoundError(name)
            return installed[name]

        monkeypatch.setattr(importlib.metadata, "requires", requires)
        monkeypatch.setattr(importlib.metadata, "version", version)
        return {finding.subject: finding for finding in doctor._packages()}

    return judge


# the command


@pytest.mark.usefixtures("healthy")
def test_report_and_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--json", str(tmp_path / "report.json")])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["machine"]["packages"]["hgclr"] == importlib.metadata.version("hgclr")
    by_subject = {finding["subject"]: finding for finding in report["findings"]}
    assert f"numpy {importlib.metadata.version('numpy')}" in by_subject["base"]["detail"]
    assert by_subject["packaged encoders"]["remedy"] == f"hgclr encoders get {DEFAULT_ENCODER}"
    assert "extra dev" not in by_subject
    for finding in report["findings"]:
        assert finding["subject"] in result.output
        assert bool(finding["remedy"]) == (finding["state"] != "ok"), "a remedy beside all that is not well"
    assert f"→ hgclr encoders get {DEFAULT_ENCODER}" in result.output


@pytest.mark.usefixtures("healthy")
def test_a_problem_gives_exit_code_1_and_brackets_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = HealthCheck("devices", "problem", "torch does not work", "pip install 'hgclr[train]'")
    monkeypatch.setattr(doctor, "_devices", lambda: broken)
    result = CliRunner().invoke(app)
    assert result.exit_code == 1
    assert "✗" in result.output
    assert "→ pip install 'hgclr[train]'" in result.output


def test_the_command_runs_where_torch_is_not_installed(cache: Path) -> None:
    code = """
import sys
for name in ("torch", "transformers", "accelerate", "datasets", "yaml", "pyarrow"):
    sys.modules[name] = None  # as if not installed
import typer
from hgclr.cli import machine as doctor
doctor._hub = doctor._index = lambda: doctor.HealthCheck("network", "ok", "answers")
app = typer.Typer()
app.command()(doctor.doctor)
app()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "unknown without torch" in done.stdout
    assert "pip install 'hgclr[train]'" in done.stdout


# packages


REQUIRED = ["numpy>=2.0", "torch>=2.13; extra == 'train'", "pyyaml>=6.0; extra == 'train'"]


def test_installed_parts_are_well(packages: Callable[..., dict[str, HealthCheck]]) -> None:
    installed = {"numpy": "2.0.0", "torch": "2.13.0+cpu", "pyyaml": "6.0.3rc1"}
    assert packages(REQUIRED, installed) == {
        "base": HealthCheck("base", "ok", "numpy 2.0.0"),
        "extra train": HealthCheck("extra train", "ok", "torch 2.13.0+cpu, pyyaml 6.0.3rc1"),
    }


def test_a_missing_extra_names_its_packages_and_the_command(
    packages: Callable[..., dict[str, HealthCheck]],
) -> None:
    found = packages(REQUIRED, {"numpy": "2.4", "torch": "2.13.0"})["extra train"]
    assert found == HealthCheck("extra train", "warning", "not installed: pyyaml", "pip install 'hgclr[train]'")


@pytest.mark.parametrize("version", ["2.12.9", "2.9", "1.99", "2", "2.12.0+cpu"])
def test_a_package_below_the_bound_is_a_problem(packages: Callable[..., dict[str, HealthCheck]], version: str) -> None:
    found = packages(REQUIRED, {"numpy": "2.0", "torch": version, "pyyaml": "6.0"})["extra train"]
    detail = f"torch {version} is not >=2.13"
    assert found == HealthCheck("extra train", "problem", detail, "pip install --upgrade 'hgclr[train]'")


# devices


@pytest.mark.slow
def test_the_real_devices_are_found() -> None:
    pytest.importorskip("torch")
    assert doctor._devices().state == "ok"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'ImportError: libtorch.so' >&2; exit 1", "ImportError: libtorch.so"),
        ("kill -SEGV $$", "exit code -11"),
    ],
)
def test_a_damaged_torch_does_not_end_the_doctor(python: Callable[[str], None], script: str, reason: str) -> None:
    python(script)
    assert doctor._devices() == HealthCheck("devices", "problem", f"torch does not work: {reason}", "reinstall torch")


# the hub


class Hub(BaseHTTPRequestHandler):
    status = 200

    def do_HEAD(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub on this machine; the settings of huggingface_hub point to it."""
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield address
    server.shutdown()
    server.server_close()


def test_a_hub_that_answers(hub: str) -> None:
    assert doctor._hub() == HealthCheck("model hub", "ok", f"{hub} answers")


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "no address"])
def test_a_hub_that_is_not_there(hub: str, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    found = doctor._hub()
    assert found.state == "warning"
    assert found.detail.startswith(f"{address} does not answer (")


# the index


def test_an_index_that_answers(python: Callable[[str], None], tmp_path: Path) -> None:
    python(f'echo "$@" > {tmp_path}/arguments')
    package = ENCODERS[DEFAULT_ENCODER].requirements[0].split("==")[0]
    assert doctor._index() == HealthCheck("package index", "ok", f"answers and has {package}")
    assert f"-m pip index versions {package}" in (tmp_path / "arguments").read_text()


def test_an_index_that_cannot_be_reached(python: Callable[[str], None]) -> None:
    python("echo 'WARNING: Retrying after connection broken by ...' >&2; echo 'ERROR: No match' >&2; exit 1")
    found = doctor._index()
    assert (found.state, found.detail) == ("warning", "cannot be reached")


def test_an_index_that_takes_too_long(python: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "INDEX_SECONDS", 0.2)
    python("exec sleep 60")
    found = doctor._index()
    assert found.state == "warning"
    assert "no answer within 0.2 s" in found.detail


# the cache


def test_encoders_in_the_cache(cache: Path) -> None:
    put_into_cache(cache, DEFAULT_ENCODER)
    expected = HealthCheck("packaged encoders", "ok", f"{DEFAULT_ENCODER} in the cache")
    assert doctor._encoders(index_answers=False) == expected
