"""Measure the service under load: throughput compared with the backend alone, latency at half load, overload.

    python benchmarks/serving_load.py --model first-onnx --data ../shared/data/clinc150 \
        --output benchmarks/results/serving-load.json

Service, backend alone and client are separate processes that share the cores. Backend and service take turns, because
the speed of the machine changes by the minute. The overload is ten times the throughput. It must be answered with 200
and 429 only, memory must not grow, and afterwards the service must be as fast as before.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

from hgclr.data import DataFolder
from hgclr.inference import HierarchicalClassifier
from measuring import arguments_of, provenance, show, spread, write
from serving_client import Load, open_loop, requests_of, saturate

START = "import typer; from hgclr.cli.deploy import serve; typer.run(serve)"
TEXTS = 2048
"""Number of different texts that are sent."""
AT_ONCE = 512
"""Texts per call of the backend alone: as many as the clients of the service have in flight."""
OVERLOAD = 10
PATIENCE = 600.0
"""Seconds to wait until the service is ready."""
SETTLED = 0.25
"""Share of the overload after which memory must not grow."""

_classifier: HierarchicalClassifier


def load_bare(model: Path) -> None:
    """Load the model in the process of the backend alone."""
    global _classifier
    from hgclr.cli.console import open_classifier

    _classifier = open_classifier(str(model))
    _classifier.predict(["a text to warm up with"])


def bare(texts: Sequence[str], seconds: float) -> float:
    """Return the texts per second of the classifier without the service."""
    stream, done, started = cycle(texts), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        done += len(_classifier.predict(list(islice(stream, AT_ONCE))))
    return done / elapsed


@contextmanager
def service(model: Path, options: Sequence[str] = (), log: IO[str] | None = None) -> Iterator[tuple[int, int]]:
    """Start ``hgclr serve`` in its own process; yield its port and process id once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", START, str(model), "--port", str(port), *options]
    with ExitStack() as stack:
        log = log or stack.enter_context(tempfile.TemporaryFile("w+"))
        process = stack.enter_context(subprocess.Popen(command, stderr=log))
        try:
            _wait_until_ready(port, process, log)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
    if process.returncode:
        raise RuntimeError(f"the service exited with code {process.returncode}")


def memory_of(process: int) -> int:
    """Return the resident memory of a process, in bytes."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


class MemoryWatch:
    """Record the memory of a process every second while the block runs."""

    def __init__(self, process: int, every: float = 1.0) -> None:
        self._process, self._every, self._end = process, every, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.held: list[int] = []

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.held.append(memory_of(self._process))
            if self._end.wait(self._every):
                return


def run(
    model: Path,
    data: Path,
    *,
    split: str = "test",
    clients: int = 8,
    each: int = 64,
    latency_each: int = 1,
    rounds: int = 3,
    seconds: float = 10.0,
    overload_seconds: float = 120.0,
) -> dict[str, Any]:
    """Return throughput, latencies, statuses and memory.

    Args:
        model: model folder.
        data: data folder whose texts are sent.
        split: split of the texts.
        clients: number of clients at saturation.
        each: texts per request at saturation and overload.
        latency_each: texts per request at half load.
        rounds: number of turns of backend and service.
        seconds: duration of each turn and of the half load.
        overload_seconds: duration of the overload.
    """
    texts = [document.text for document in islice(DataFolder(data).documents(split), TEXTS)]
    requests = requests_of(texts, each)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=load_bare, initargs=(model,)) as alone,
        service(model) as (port, process),
    ):

        def saturated() -> Load:
            return asyncio.run(saturate(port, requests, each=each, clients=clients, seconds=seconds))

        def at_rate(rate: float, number: int, duration: float) -> Load:
            stream = requests if number == each else requests_of(texts, number)
            return asyncio.run(open_loop(port, stream, each=number, texts_per_second=rate, seconds=duration))

        alone.submit(bare, texts[:64], seconds / 4).result()
        at_rate(100.0, each, seconds / 4)
        turns = [(alone.submit(bare, texts, seconds).result(), saturated()) for _ in range(rounds)]
        capacity = spread([load.texts_per_second for _, load in turns])["median"]
        half = at_rate(capacity / 2, latency_each, seconds)
        with MemoryWatch(process) as watch:
            overload = at_rate(OVERLOAD * capacity, each, overload_seconds)
        backend_after, after = alone.submit(bare, texts, seconds).result(), saturated()
    settled = watch.held[int(SETTLED * len(watch.held)) :]
    return {
        "bare_texts_per_second": spread([rate for rate, _ in turns]),
        "served_texts_per_second": spread([load.texts_per_second for _, load in turns]),
        "served_to_bare": spread([load.texts_per_second / rate for rate, load in turns]),
        "half_load": {
            "texts_per_second": capacity / 2,
            "statuses": half.statuses,
            "p50_milliseconds": 1000 * half.percentile(50),
            "p99_milliseconds": 1000 * half.percentile(99),
        },
        "overload": {
            "seconds": overload_seconds,
            "offered_texts_per_second": OVERLOAD * capacity,
            "statuses": overload.statuses,
            "served_texts_per_second": overload.texts_per_second,
            "served_to_saturation": overload.texts_per_second / capacity,
            "bytes": {
                "at_first": watch.held[0],
                "settled_lowest": min(settled),
                "settled_highest": max(settled),
                "every_second": watch.held,
            },
        },
        "afterwards": {
            "served_texts_per_second": after.texts_per_second,
            "served_to_bare": after.texts_per_second / backend_after,
            "statuses": after.statuses,
        },
        "setting": {
            "model": model.name,
            "data": data.name,
            "texts": len(texts),
            "clients": clients,
            "texts_per_request": each,
            "texts_per_request_at_half_load": latency_each,
            "rounds": rounds,
            "seconds": seconds,
        },
        "versions": {name: importlib.metadata.version(name) for name in ("fastapi", "uvicorn", "prometheus-client")},
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder of hgclr train or hgclr export")
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--split", default="test")
    parser.add_argument("--clients", type=int, default=8, help="clients at saturation")
    parser.add_argument(
        "--texts-per-request", type=int, default=64, help="texts per request at saturation and overload"
    )
    parser.add_argument("--latency-texts-per-request", type=int, default=1, help="texts per request at half load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each turn")
    parser.add_argument("--overload-seconds", type=float, default=120.0, help="duration of the overload")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(
        arguments.model,
        arguments.data,
        split=arguments.split,
        clients=arguments.clients,
        each=arguments.texts_per_request,
        latency_each=arguments.latency_texts_per_request,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        overload_seconds=arguments.overload_seconds,
    )
    write(result, arguments.output)
    half, overload, afterwards = result["half_load"], result["overload"], result["afterwards"]
    ratio, held = result["served_to_bare"], overload["bytes"]
    show(
        "The service under load",
        ("what", "measured", "goal"),
        [
            ("backend alone", f"{result['bare_texts_per_second']['median']:.0f} texts/s", ""),
            ("service, saturated", f"{result['served_texts_per_second']['median']:.0f} texts/s", ""),
            (
                "  share of the backend alone",
                f"{ratio['median']:.1%} ({ratio['lowest']:.1%}-{ratio['highest']:.1%})",
                ">= 85%",
            ),
            ("half load, p50", f"{half['p50_milliseconds']:.1f} ms", ""),
            ("half load, p99", f"{half['p99_milliseconds']:.1f} ms", ""),
            (
                f"overload, {OVERLOAD} x for {overload['seconds']:.0f} s",
                json.dumps(overload["statuses"]),
                "200 and 429 only",
            ),
            ("  throughput", f"{overload['served_to_saturation']:.1%} of saturation", ""),
            ("  memory at its start", f"{held['at_first'] / 1e6:.0f} MB", ""),
            (
                "  memory later",
                f"{held['settled_lowest'] / 1e6:.0f}-{held['settled_highest'] / 1e6:.0f} MB",
                "constant",
            ),
            ("after the overload", f"{afterwards['served_to_bare']:.1%} of the backend alone", "as before"),
        ],
    )


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: IO[str]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise RuntimeError(f"the service did not start: {log.read()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except OSError:  # not started, or not ready
            time.sleep(0.1)
    raise RuntimeError(f"the service was not ready after {PATIENCE:.0f} seconds")


if __name__ == "__main__":
    main()
