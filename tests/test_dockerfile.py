"""The container file: what it copies is there, what it runs exists, and hadolint has nothing to say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from hgclr.cli.app import app

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored


def test_every_stage_starts_from_the_one_image_that_is_held_to_a_digest() -> None:
    (image,) = re.findall(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11-slim@sha256:[0-9a-f]{64}", image)
    assert {name for name, _ in re.findall(r"^FROM (\S+)( AS \w+)?$", DOCKERFILE, re.MULTILINE)} == {"${PYTHON}"}


def test_it_does_not_run_as_root_and_tells_its_health() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    assert re.search(r"^USER 10001$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", last, re.MULTILINE)
    assert "/readyz" in last


def test_the_extras_and_variables_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[(.+)\]'", DOCKERFILE)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    known = {option.envvar for option in get_command(app).commands["serve"].params}
    assert set(re.findall(r"(HGCLR_\w+)=", DOCKERFILE)) <= known


def test_the_lock_has_the_versions_of_the_constraints_and_a_hash_for_each() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    versions = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()}
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8").strip())
    assert len(entries) > 20
    for entry in entries:
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()
        assert versions[name] == version
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry)


def test_hadolint_has_nothing_to_say() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
