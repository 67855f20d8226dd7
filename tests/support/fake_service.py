"""A service around a backend that needs no weights: its logits are sums over words, and it can be made to wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from hgclr.inference import HierarchicalClassifier
from hgclr.serving.app import create_app
from hgclr.serving.server import listen, server_config
from hgclr.serving.service import Settings
from hgclr.taxonomy import Taxonomy

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "atom", "laser", "lens", "court", "judge", "goal", "boat", "poison"]
TREE = Taxonomy(["science", "optics", "society", "law", "../sports"], [-1, 0, -1, 2, 2])
LONGEST = 12
PATIENCE = 60
"""Seconds after which a test that waits for an event has failed."""


class WordBackend:
    """Add a row of a random table for every word of a text; a batch with the word ``poison`` fails as a whole."""

    batch_tokens = 64

    def __init__(self) -> None:
        self.table = np.random.default_rng(3).normal(size=(len(WORDS), len(TREE))).astype(np.float32)
        self.table[0] = 0  # padding
        self.batches: list[list[list[int]]] = []

    def logits(self, input_ids, attention_mask):
        self.batches.append([row[mask > 0].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)])
        if (input_ids == WORDS.index("poison")).any():
            raise RuntimeError(f"no good text: {WORDS[-1]}")
        return self.table[input_ids].sum(axis=1)


class GatedBackend(WordBackend):
    """Compute nothing, after the warm-up, until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def close(self) -> None:
        self.gate.clear()
        self.entered.clear()
        self.batches.clear()

    def logits(self, input_ids, attention_mask):
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        return super().logits(input_ids, attention_mask)


class FolderBackend(WordBackend):
    """Leave a file with the process id in a folder; compute nothing while there is a file ``closed`` in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        (folder / str(os.getpid())).touch()

    def logits(self, input_ids, attention_mask):
        while (self.folder / "closed").exists():
            (self.folder / "entered").touch()
            time.sleep(0.01)
        return super().logits(input_ids, attention_mask)


def make_classifier(backend: WordBackend | None = None) -> HierarchicalClassifier:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return HierarchicalClassifier(backend or WordBackend(), tokenizer, TREE, pad_token=0, max_length=LONGEST)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


@contextmanager
def served(app: FastAPI) -> Iterator[httpx.Client]:
    """Serve an application on a free port in a thread; give a client of it once it is ready."""
    listener = listen("127.0.0.1", 0)
    app.state.server = server = uvicorn.Server(server_config(app, app.state.service.settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=PATIENCE) as client:
        until(lambda: server.started)
        until(lambda: app.state.service.engine.warm.is_set())
        try:
            yield client
        finally:
            client.close()
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the service did not stop"


@contextmanager
def fake_service(backend: WordBackend | None = None, **settings: object) -> Iterator[tuple[httpx.Client, FastAPI]]:
    """Serve the fake model; give a client and the application."""
    app = create_app(make_classifier(backend), Settings(**settings), name="fake")
    with served(app) as client:
        yield client, app


def load_from(folder: Path) -> HierarchicalClassifier:
    """The model of a worker."""
    return make_classifier(FolderBackend(folder))


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from functools import partial
from pathlib import Path

from hgclr.serving.app import create_app
from hgclr.serving.server import listen, run, run_workers, worker_app
from hgclr.serving.service import Settings
from support.fake_service import load_from

if __name__ == "__main__":
    load = partial(load_from, Path(sys.argv[2]))
    settings, workers = Settings(grace=int(sys.argv[3]), max_wait=0, deadline=600), int(sys.argv[4])
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    if workers > 1:
        app = partial(worker_app, load, settings, "fake", level=30, log_requests=False)
        run_workers(app, settings, listener, workers)
    else:
        run(create_app(load(), settings), listener)
"""


@contextmanager
def service_process(folder: Path, grace: int, workers: int = 1) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service over `FolderBackend` in a separate process; give the process and its address once it is ready."""
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", PROGRAM, str(tests), str(folder), str(grace), str(workers)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        try:
            assert running.stdout is not None
            address = f"http://127.0.0.1:{running.stdout.readline().strip()}"
            until(lambda: httpx.get(f"{address}/readyz", timeout=PATIENCE).status_code == 200)
            yield running, address
        finally:
            running.kill()


def metric(client: httpx.Client, name: str) -> float:
    """Return one number of the metrics, 0 if it is not there yet."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))
