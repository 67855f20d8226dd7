"""SIGTERM to a real process: not ready at once, what is in flight is finished, the exit code is 0."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import httpx
import pytest

from support.fake_service import PATIENCE, service_process, until


@pytest.mark.slow
def test_what_is_in_flight_is_finished(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=60) as (running, address), httpx.Client(timeout=PATIENCE) as client:
        (tmp_path / "closed").touch()
        answers: list[httpx.Response] = []
        body = {"texts": ["atom"] * 40}  # several batches
        ask = threading.Thread(target=lambda: answers.append(httpx.post(f"{address}/predict", json=body, timeout=60)))
        ask.start()
        until((tmp_path / "entered").exists)
        assert client.get(f"{address}/readyz").status_code == 200
        running.send_signal(signal.SIGTERM)
        until(lambda: client.get(f"{address}/readyz").status_code == 503)
        assert client.get(f"{address}/livez").status_code == 200
        refused = client.post(f"{address}/predict", json={"text": "lens"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "not_ready")
        assert running.poll() is None
        (tmp_path / "closed").unlink()
        ask.join(PATIENCE)
        assert running.wait(PATIENCE) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert answers[0].status_code == 200
    assert len(answers[0].json()["predictions"]) == 40


@pytest.mark.slow
def test_an_idle_service_stops_at_once(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=600) as (running, address), httpx.Client() as client:
        assert client.get(f"{address}/readyz").status_code == 200  # and the connection stays open
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_what_takes_longer_than_the_grace_time_does_not_hold_it_up(tmp_path: Path, signals: int) -> None:
    # With one signal the grace time ends it, with a second one the impatience.
    with service_process(tmp_path, grace=0.3 if signals == 1 else 600) as (running, address):
        (tmp_path / "closed").touch()
        statuses: list[int | str] = []

        def ask() -> None:
            try:
                statuses.append(httpx.post(f"{address}/predict", json={"text": "atom"}, timeout=60).status_code)
            except httpx.HTTPError as error:
                statuses.append(type(error).__name__)

        thread = threading.Thread(target=ask)
        thread.start()
        until((tmp_path / "entered").exists)
        with httpx.Client() as client:
            running.send_signal(signal.SIGTERM)
            until(lambda: _not_ready(client, address))
        if signals == 2:
            running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
        thread.join(PATIENCE)
    assert statuses == [503] if signals == 1 else statuses != [200]


def _not_ready(client: httpx.Client, address: str) -> bool:
    try:
        return client.get(f"{address}/readyz").status_code == 503
    except httpx.HTTPError:  # it has gone already
        return True
