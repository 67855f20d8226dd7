"""The log of the service: lines with a time, one for each request, and no fault over and over."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator

import pytest

from hgclr.serving.monitoring import SameFault, start_log
from hgclr.serving.server import _tell
from support.fake_service import fake_service

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ .+")


@pytest.fixture(autouse=True)
def _other_logs() -> Iterator[None]:
    """Put back what the service sets on logs that are not ours."""
    others = [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    before = [(list(logger.handlers), logger.propagate, logger.level) for logger in others]
    yield
    for logger, (handlers, propagate, level) in zip(others, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_every_request_is_a_line_with_its_time() -> None:
    stream = io.StringIO()
    start_log(stream, requests=True)
    with fake_service() as (client, _):
        for number in range(3):
            client.post("/predict", json={"texts": ["atom"] * 3}, headers={"X-Request-Id": f"id{number}" * 12})
    lines = stream.getvalue().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    asked = [line for line in lines if " POST /predict 200 " in line and line.endswith(" ms, 3 texts")]
    assert [line.split()[2][:3] for line in asked] == ["id0", "id1", "id2"]


def test_requests_are_not_logged_unless_asked() -> None:
    stream = io.StringIO()
    start_log(stream)
    with fake_service() as (client, _):
        client.get("/livez")
    assert stream.getvalue() == ""


def test_a_fault_is_told_once_a_second_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stream = io.StringIO()
    start_log(stream)
    log = logging.getLogger("hgclr.serving.somewhere")
    for _ in range(1000):
        log.error("cannot take %s", "more")
        log.warning("another fault")
        now += 0.0029
    told = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert told[:2] == ["ERROR cannot take more", "WARNING another fault"]
    assert len(told) == 6  # in the first moment of three seconds
    assert told[2] == "ERROR (344 more of these meanwhile) cannot take more"


def test_faults_that_are_told_apart_are_bounded() -> None:
    same = SameFault()
    for number in range(5000):
        assert same.filter(logging.LogRecord("a", logging.ERROR, "", 0, f"fault {number}", (), None))
    assert len(same._told) <= 1000


def test_what_goes_wrong_in_the_loop_is_one_line() -> None:
    stream = io.StringIO()
    start_log(stream)
    for _ in range(2048):  # as often as asyncio tries to take a connection
        _tell(
            None, {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        )
    assert len(stream.getvalue().splitlines()) == 1
    assert "ERROR socket.accept() out of system resource: Too many open files" in stream.getvalue()


def test_requests_that_are_no_http_fill_no_log() -> None:
    stream = io.StringIO()
    start_log(stream)
    import socket

    with fake_service() as (client, _):
        for _ in range(20):
            with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
                connection.sendall(b"no HTTP at all\r\n\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert 1 <= len(stream.getvalue().splitlines()) < 10
    assert all(LINE.fullmatch(line) for line in stream.getvalue().splitlines())
