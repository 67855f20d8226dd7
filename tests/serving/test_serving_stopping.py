"""SIGTERM to a real process: not ready at once, what is in flight is finished, the exit code is 0."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.fake_service import PATIENCE, until

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from support.fake_service import WordBackend, make_classifier
from hgclr.serving.app import create_app, listen, run
from hgclr.serving.settings import Settings
import hgclr.serving.service, time

hgclr.serving.service.LAST_BATCH = 0.5
gate, entered = Path({gate!r}), Path({entered!r})

class FileGated(WordBackend):
    warmed = False
    def logits(self, input_ids, attention_mask):
        if self.warmed:
            entered.touch()
            while not gate.exists():
                time.sleep(0.01)
        return super().logits(input_ids, attention_mask)

backend = FileGated()
app = create_app(make_classifier(backend), Settings(grace={grace}, max_wait=0))
listener = listen("127.0.0.1", 0)

def started():
    app.state.service.engine.warm.wait()
    backend.warmed = True
    print(listener.getsockname()[1], flush=True)

run(app, listener, started=started)
"""


@contextmanager
def process(tmp_path: Path, grace: float) -> Iterator[tuple[subprocess.Popen[str], str, Path, Path]]:
    """A service whose backend waits for a file; give the process, its address, that file, and one that it touches."""
    gate, entered = tmp_path / "gate", tmp_path / "entered"
    program = PROGRAM.format(folder=str(Path(__file__).parents[1]), gate=str(gate), entered=str(entered), grace=grace)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            yield running, f"http://127.0.0.1:{running.stdout.readline().strip()}", gate, entered
        finally:
            running.kill()


@pytest.mark.slow
def test_what_is_in_flight_is_finished(tmp_path: Path) -> None:
    with process(tmp_path, grace=60) as (running, address, gate, entered), httpx.Client(timeout=PATIENCE) as client:
        answers: list[httpx.Response] = []
        body = {"texts": ["atom"] * 40}  # several batches
        ask = threading.Thread(target=lambda: answers.append(httpx.post(f"{address}/predict", json=body, timeout=60)))
        ask.start()
        until(entered.exists)
        assert client.get(f"{address}/readyz").status_code == 200
        running.send_signal(signal.SIGTERM)
        until(lambda: client.get(f"{address}/readyz").status_code == 503)
        assert client.get(f"{address}/livez").status_code == 200
        refused = client.post(f"{address}/predict", json={"text": "lens"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "not_ready")
        assert running.poll() is None
        gate.touch()
        ask.join(PATIENCE)
        assert running.wait(PATIENCE) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert answers[0].status_code == 200
    assert len(answers[0].json()["predictions"]) == 40


@pytest.mark.slow
def test_an_idle_service_stops_at_once(tmp_path: Path) -> None:
    with process(tmp_path, grace=600) as (running, address, _, _), httpx.Client() as client:
        assert client.get(f"{address}/readyz").status_code == 200  # and the connection stays open
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_what_takes_longer_than_the_grace_time_does_not_hold_it_up(tmp_path: Path, signals: int) -> None:
    # With one signal the grace time ends it, with a second one the impatience.
    with process(tmp_path, grace=0.3 if signals == 1 else 600) as (running, address, gate, entered):
        statuses: list[int | str] = []

        def ask() -> None:
            try:
                statuses.append(httpx.post(f"{address}/predict", json={"text": "atom"}, timeout=60).status_code)
            except httpx.HTTPError as error:
                statuses.append(type(error).__name__)

        thread = threading.Thread(target=ask)
        thread.start()
        until(entered.exists)
        with httpx.Client() as client:
            running.send_signal(signal.SIGTERM)
            until(lambda: _not_ready(client, address))
        if signals == 2:
            running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
        thread.join(PATIENCE)
    assert statuses == [503] if signals == 1 else statuses != [200]
    assert not gate.exists()


def _not_ready(client: httpx.Client, address: str) -> bool:
    try:
        return client.get(f"{address}/readyz").status_code == 503
    except httpx.HTTPError:  # it has gone already
        return True
