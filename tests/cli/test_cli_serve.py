"""``hgclr serve``: options, environment, address and key."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

pytest.importorskip("fastapi", reason="needs the extra serve")

from hgclr.cli.console import open_classifier
from hgclr.cli.deploy import serve
from hgclr.errors import InputError
from hgclr.serving.service import Settings
from support.fake_service import make_classifier

LOCAL = Settings(hosts=("127.0.0.1",))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch):
    """Run the command on the fake model; nothing is served."""
    given: dict[str, Any] = {}

    def run(app, listener) -> None:
        given.update(settings=app.state.service.settings, name=app.state.service.name, address=listener.getsockname())

    def run_workers(app, settings, listener, count) -> None:
        given.update(app=pickle.loads(pickle.dumps(app)), settings=settings, count=count)

    def command(*arguments: str, model: str = "some/model", **environment: str) -> tuple[dict[str, Any], Result]:
        program = typer.Typer()
        program.command()(serve)
        result = CliRunner().invoke(program, [model, *arguments], env={"COLUMNS": "200", **environment})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return given, result

    monkeypatch.delenv("HGCLR_API_KEY", raising=False)
    monkeypatch.delenv("HGCLR_API_KEY_FILE", raising=False)
    monkeypatch.setattr("hgclr.serving.server.run", run)
    monkeypatch.setattr("hgclr.serving.server.run_workers", run_workers)
    monkeypatch.setattr("hgclr.cli.deploy.open_classifier", lambda _: make_classifier())
    return command


def test_options_come_before_the_environment(start, tmp_path: Path) -> None:
    (tmp_path / "first" / "model").mkdir(parents=True)
    given, result = start(
        *("--port", "0", "--max-queue", "99", "--max-wait-ms", "7", "--log-requests"),
        model=str(tmp_path / "first" / "model"),
        HGCLR_MAX_QUEUE="5",
        HGCLR_TEXTS_PER_REQUEST="3",
        HGCLR_DEADLINE="1.5",
        HGCLR_BATCH_TOKENS="77",
        HGCLR_BODY_BYTES="1234",
        HGCLR_CHARACTERS_PER_TEXT="55",
        HGCLR_GRACE="0",
        HGCLR_MAX_CONNECTIONS="44",
        HGCLR_ALLOW_HOST="one.example two.example",
        HGCLR_API_KEY="from-the-environment",
    )
    assert given["settings"] == Settings(
        max_queue=99,
        batch_tokens=77,
        max_wait=0.007,
        deadline=1.5,
        body_bytes=1234,
        texts_per_request=3,
        characters_per_text=55,
        grace=0,
        max_connections=44,
        hosts=("127.0.0.1", "one.example", "two.example"),
        key="from-the-environment",
    )
    assert given["name"] == "first"  # a run gives its model the name
    assert "from-the-environment" not in result.output


def test_a_bad_value_in_the_environment_is_named(start) -> None:
    _, result = start("--port", "0", HGCLR_MAX_QUEUE="many")
    assert result.exit_code == 2
    assert "HGCLR_MAX_QUEUE" in result.output


def test_several_workers_load_the_model_each(start, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not the fixture's, which cannot be sent to another process.
    monkeypatch.setattr("hgclr.cli.deploy.open_classifier", open_classifier)
    given, _ = start("--port", "0", "--workers", "3", "--log-requests")
    assert given["count"] == 3
    load, settings, name = given["app"].args
    assert (load.args, name) == (("some/model",), "some/model")
    assert settings == given["settings"] == LOCAL
    assert given["app"].keywords["log_requests"]


def test_an_address_that_is_taken_is_an_error_before_the_model_is_loaded(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgclr.cli.deploy.open_classifier", lambda _: pytest.fail("it was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(InputError) as error:
        start("--port", str(other.getsockname()[1]))
    assert error.value.remedy
    with pytest.raises(InputError):
        start("--port", "80", "--host", "no.such.host.invalid")
