"""``hgclr label``: the page opens for one person or several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from starlette.testclient import TestClient
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.labelling.sitting import Sitting
from hgclr.serving import server
from support.memory_sitting import MemorySitting


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the command serves, instead of serving it."""
    served: dict[str, object] = {}

    def open_sitting(output: Path, **options: object) -> MemorySitting:
        output.mkdir(exist_ok=True)
        served.update(options)
        return MemorySitting()

    monkeypatch.setattr(Sitting, "open", open_sitting)
    monkeypatch.setattr(server, "run", lambda *given: served.update(app=given[0]))
    monkeypatch.chdir(tmp_path)
    return served


def run(*arguments: str, code: int = 0) -> str:
    options = "--output", "mine", "--no-browser", "--port", "0"
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["label", *arguments, *options])
    assert found.exit_code == code, found.output
    return found.output


def test_it_starts_without_a_subcommand(served: dict[str, object]) -> None:
    printed = run("texts.csv", "--taxonomy", "tree.json")
    assert (served["texts"], served["taxonomy"]) == (["texts.csv"], Path("tree.json"))
    assert "page  http://127.0.0.1:" in printed
    client = TestClient(served["app"], base_url="http://127.0.0.1")  # type: ignore[arg-type]
    assert client.get("/progress").json()["user"] == "me"
    assert "page  http://" in run("--seed", "3")
    assert served["seed"] == 3


def test_each_person_has_a_link(served: dict[str, object], tmp_path: Path) -> None:
    printed = run("--people", "anna, bert")
    tokens = json.loads((tmp_path / "mine" / "people.json").read_text())
    assert list(tokens) == ["anna", "bert"]
    assert all(
        f"{name}  http://127.0.0.1:" in printed and f"?token={token}" in printed for name, token in tokens.items()
    )
    assert "give names with --people" in run("--host", "0.0.0.0", code=2)
