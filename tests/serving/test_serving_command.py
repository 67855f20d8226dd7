"""``hgclr serve``: options, environment, and what it says."""

from __future__ import annotations

import inspect
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from hgclr.cli.console import open_classifier
from hgclr.cli.serve import serve
from hgclr.errors import InputError
from hgclr.serving.settings import Settings
from support.fake_service import TREE, make_classifier


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch):
    """Run the command on the fake model; what would run the service only says that it has started."""
    given: dict[str, Any] = {}

    def run(app, listener, *, started) -> None:
        given.update(settings=app.state.service.settings, name=app.state.service.name, address=listener.getsockname())
        started()

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
    monkeypatch.setattr("hgclr.cli.console.open_classifier", lambda _: make_classifier())
    return command


def test_the_defaults_are_those_of_the_settings(start) -> None:
    given, result = start("--port", "0")
    assert given["settings"] == Settings(hosts=())
    assert given["address"][0] == "127.0.0.1"
    assert given["name"] == "some/model"  # a hub name, as it is
    assert result.exit_code == 0


def test_options_come_before_the_environment(start, tmp_path: Path) -> None:
    given, _ = start(
        *("--port", "0", "--max-queue", "99", "--max-wait-ms", "7", "--log-requests"),
        model=str(tmp_path),
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
        hosts=("one.example", "two.example"),
        key="from-the-environment",
    )
    assert given["name"] == tmp_path.name


def test_a_run_gives_its_model_the_name(start, tmp_path: Path) -> None:
    (tmp_path / "first" / "model").mkdir(parents=True)
    assert start("--port", "0", model=str(tmp_path / "first" / "model"))[0]["name"] == "first"


def test_a_bad_value_in_the_environment_is_named(start) -> None:
    _, result = start("--port", "0", HGCLR_MAX_QUEUE="many")
    assert result.exit_code == 2
    assert "HGCLR_MAX_QUEUE" in result.output


def test_it_says_where_it_is_and_who_may_use_it(start) -> None:
    given, result = start("--port", "0")
    assert f"http://127.0.0.1:{given['address'][1]}/docs" in result.stderr
    assert f"{len(TREE)} labels" in result.stderr
    assert "none; only this machine can reach the service" in result.stderr
    assert result.stdout == ""

    _, result = start("--port", "0", HGCLR_API_KEY="very-secret-key")
    assert "needed: Authorization: Bearer" in result.stderr
    assert "very-secret-key" not in result.output

    given, result = start("--port", "0", "--host", "0.0.0.0")
    assert given["settings"].hosts is None
    assert "none: whoever reaches this address can use it" in result.stderr


def test_several_workers_load_the_model_each_for_itself(start, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_workers(deployment, listener, count, *, started) -> None:
        assert pickle.loads(pickle.dumps(deployment)).load.args == ("some/model",)
        given.update(deployment=deployment, count=count)
        started(5)

    given: dict[str, Any] = {}
    monkeypatch.setattr("hgclr.serving.workers.run_workers", run_workers)
    # Not what the fixture puts in its place, which cannot be sent to another process.
    monkeypatch.setattr("hgclr.cli.console.open_classifier", open_classifier)
    _, result = start("--port", "0", "--workers", "3", "--log-requests")
    assert given["count"] == 3
    assert given["deployment"].log_requests
    assert given["deployment"].settings == Settings(hosts=())
    assert "5 labels, 3 workers" in result.stderr


def test_the_key_is_no_option() -> None:
    assert not [name for name in inspect.signature(serve).parameters if "key" in name]


def test_an_address_that_is_taken_is_told_before_the_model_is_loaded(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgclr.cli.console.open_classifier", lambda _: pytest.fail("it was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=rf"cannot listen on 127.0.0.1:{port}: .*; choose another with --host"):
            start("--port", str(port))
    with pytest.raises(InputError, match=r"cannot listen on no\.such\.host\.invalid:80"):
        start("--port", "80", "--host", "no.such.host.invalid")
