"""A client of the service for load tests. It does little work, because it shares the cores with the service."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import numpy as np

__all__ = ["Load", "open_loop", "post", "requests_of", "saturate"]

SETTLE = 30.0
"""Seconds to wait for open requests when a load ends."""
CONNECTIONS = 256
"""Connections of an open loop. Fewer than the limit of the service, so that it refuses none of them."""


@dataclass
class Load:
    """The outcome of a load.

    Args:
        seconds: duration.
        statuses: number of responses by status, or by exception where there was no response.
        texts: texts of requests that were answered with 200 during the load.
        latencies: seconds from the time a request was due to its response with 200.
    """

    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def texts_per_second(self) -> float:
        """Return texts labelled per second."""
        return self.texts / self.seconds

    def percentile(self, share: float) -> float:
        """Return the latency at a percentile."""
        return float(np.percentile(self.latencies, share))

    def count(self, status: str, texts: int, latency: float) -> None:
        """Count a response; ``texts`` is 0 for one that came after the end of the load."""
        self.statuses[status] += 1
        if status == "200":
            self.texts += texts
            self.latencies.append(latency)


def requests_of(texts: Sequence[str], each: int) -> Iterator[bytes]:
    """Yield requests of ``each`` texts without end, as prepared bytes."""
    stream = cycle(texts)
    bodies = ({"texts": list(islice(stream, each))} for _ in range(max(1, len(texts) // each)))
    return cycle([post("/predict", json.dumps(body).encode()) for body in bodies])


async def saturate(port: int, requests: Iterator[bytes], *, each: int, clients: int, seconds: float) -> Load:
    """Run clients that send the next request as soon as they have a response, until the time is up.

    All responses count, and the whole time until the last one.
    """
    load, started = Load(), time.perf_counter()

    async def ask() -> None:
        connection, begun = _Connection(port), started
        while begun < started + seconds:  # each client sends at least one request
            status = await connection.ask(next(requests))
            now = time.perf_counter()
            load.seconds = now - started
            load.count(status, each, now - begun)
            begun = now
        connection.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return load


async def open_loop(
    port: int, requests: Iterator[bytes], *, each: int, texts_per_second: float, seconds: float, seed: int = 0
) -> Load:
    """Send requests at random times, at a rate that does not depend on the responses, and wait for the last one.

    Latencies count from the time a request was due, so they include waiting for a free connection.
    """
    load, started = Load(seconds=seconds), time.perf_counter()
    random = np.random.default_rng(seed)
    idle: list[_Connection] = []
    under_way: set[asyncio.Task[None]] = set()
    free = asyncio.Semaphore(CONNECTIONS)

    async def ask(due: float, request: bytes) -> None:
        async with free:
            connection = idle.pop() if idle else _Connection(port)
            status = await connection.ask(request)
            now = time.perf_counter()
            load.count(status, each if now <= started + seconds else 0, now - due)
            idle.append(connection)

    due = started
    while due < started + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(ask(due, next(requests)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        due += random.exponential(each / texts_per_second)
    if under_way:
        await asyncio.wait(under_way, timeout=SETTLE)
    for connection in idle:
        connection.close()
    return load


def post(path: str, body: bytes) -> bytes:
    """Return a request with JSON in its body."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class _Connection:
    """A connection that is opened on first use and kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> str:
        """Send a request and return the status of the response, or the name of the exception."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            return head.split(b" ", 2)[1].decode()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            return type(error).__name__

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
