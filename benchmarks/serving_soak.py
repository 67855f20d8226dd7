"""Run the service for a long time under good, malformed, slow, oversized and aborted requests.

    python benchmarks/serving_soak.py --data ../shared/data/clinc150 --seconds 1800 \
        --output benchmarks/results/serving-soak.json

Clients of nine kinds, drawn at random with a seed, keep the service busy without overload. The exit code is 1 if a kind
of client got a response that is not allowed, if memory grew, if the log grew too fast, or if the service was not ready
at the end. Without --model, the service has a random head.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hgclr.data import DataFolder
from measuring import arguments_of, provenance, show, write
from serving_client import post
from serving_load import MemoryWatch, service

TEXTS = 1024
"""Number of different texts that are sent."""
CLIENTS = 12
"""Number of concurrent clients."""
PATIENCE = 60.0
"""Seconds that a client waits for a response."""
GROWTH = 0.1
"""Allowed growth of memory from the second to the last quarter, as a share."""
LOG_BYTES_PER_SECOND = 1000
"""Allowed growth of the log."""
BODY_LIMIT = 4 * 2**20
"""Default limit of the service for a request body."""

Client = Callable[[int, random.Random, Sequence[str]], Awaitable[str]]
"""Acts on the service at a port and returns a status, or the fate of the connection."""


async def predict(port: int, draw: random.Random, texts: Sequence[str]) -> str:
    """Request labels of some texts."""
    body: dict[str, Any] = {"texts": draw.sample(texts, draw.randint(1, 8))}
    if draw.random() < 0.2:
        body |= {"probabilities": True, "rule": draw.choice(["closure", "drop-orphans", "top-k-paths"])}
    return await _exchange(port, post("/predict", json.dumps(body).encode()))


async def explain(port: int, draw: random.Random, texts: Sequence[str]) -> str:
    """Request an explanation."""
    return await _exchange(port, post("/explain", json.dumps({"text": draw.choice(texts)[:200]}).encode()))


async def describe(port: int, draw: random.Random, _texts: Sequence[str]) -> str:
    """Request a page without computation."""
    path = draw.choice(["/livez", "/readyz", "/metrics", "/model", "/taxonomy", "/docs", "/openapi.json", "/"])
    return await _exchange(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def malform(port: int, draw: random.Random, texts: Sequence[str]) -> str:
    """Send a malformed body."""
    good = json.dumps({"texts": draw.sample(texts, 2)}).encode()
    place = draw.randrange(len(good))
    bodies = [
        good[:place],
        good[:place] + bytes([draw.choice(b'\xff\x00"[}')]) + good[place:] + b"}",
        b'{"texts": [' + b"1," * draw.randint(1, 2_000_000) + b"1]}",
        b'{"text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"text": "a", "threshold": NaN}',
        b'{"text": "a", ' + b",".join(b'"x%d": 1' % number for number in range(draw.randint(1, 50_000))) + b"}",
        json.dumps({"texts": ["a"] * 300}).encode(),
        json.dumps({"text": "word " * 10_000}).encode(),
    ]
    return await _exchange(port, post("/predict", draw.choice(bodies)))


async def oversize(port: int, draw: random.Random, _texts: Sequence[str]) -> str:
    """Send a body that is too large, with a length or in chunks."""
    body = b'{"text": "' + b"a" * (BODY_LIMIT + draw.randint(1, 2**20)) + b'"}'
    if draw.random() < 0.5:
        return await _exchange(port, post("/predict", body))
    head = post("/predict", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    pieces = [body[start : start + 2**16] for start in range(0, len(body), 2**16)]
    return await _exchange(port, head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n")


async def dawdle(port: int, draw: random.Random, texts: Sequence[str]) -> str:
    """Send a request in pieces with pauses, or leave it unfinished."""
    whole = post("/predict", json.dumps({"text": draw.choice(texts)}).encode())
    pieces = [whole[start : start + 40] for start in range(0, len(whole), 40)]
    if draw.random() < 0.3:
        pieces = pieces[:2]
    return await _exchange(port, *pieces, pause=draw.uniform(0, 0.1))


async def drop(port: int, draw: random.Random, texts: Sequence[str]) -> str:
    """Close the connection in the head, in the body, or before the response."""
    whole = post("/predict", json.dumps({"texts": draw.sample(texts, 8)}).encode())
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(whole[: draw.choice([10, len(whole) // 2, len(whole)])])
    await asyncio.sleep(draw.choice([0, 0.001, 0.02]))
    writer.transport.abort()
    return "left"


async def babble(port: int, draw: random.Random, _texts: Sequence[str]) -> str:
    """Send bytes that are not HTTP, or a request for another host."""
    noise = draw.randbytes(200).replace(b"\n", b" ") + b"\r\n\r\n"
    return await _exchange(port, draw.choice([noise, b"GET /model HTTP/1.1\r\nHost: other.example\r\n\r\n"]))


async def idle(port: int, draw: random.Random, _texts: Sequence[str]) -> str:
    """Open many connections and send nothing."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(draw.randint(1, 100))]
    await asyncio.sleep(draw.uniform(0, 1))
    for _, writer in opened:
        writer.close()
    return "left"


KINDS: dict[Client, tuple[int, set[str]]] = {
    predict: (40, {"200", "429", "503", "504"}),
    explain: (3, {"200", "429", "503", "504"}),
    describe: (10, {"200"}),
    malform: (15, {"422"}),
    oversize: (3, {"413", "429", "left"}),
    dawdle: (10, {"200", "429", "left"}),
    drop: (10, {"left"}),
    babble: (5, {"400", "left"}),
    idle: (4, {"left"}),
}
"""Weight of each kind of client, and the outcomes that are allowed for it."""


def run(model: Path, data: Path, *, seconds: float, split: str = "test", seed: int = 0) -> dict[str, Any]:
    """Return the outcomes of each kind of client, the memory and the faults."""
    texts = [document.text for document in islice(DataFolder(data).documents(split), TEXTS)]
    with tempfile.TemporaryFile("w+") as log:
        with service(model, log=log) as (port, process), MemoryWatch(process) as watch:
            outcomes = asyncio.run(soak(port, texts, seconds, seed))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
                ready = answer.status == 200
        logged = os.fstat(log.fileno()).st_size
    quarter = len(watch.held) // 4
    before, after = max(watch.held[quarter : 2 * quarter + 1]), max(watch.held[-quarter - 1 :])
    return {
        "seconds": seconds,
        "seed": seed,
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "bytes": {"second_quarter": before, "last_quarter": after, "highest": max(watch.held)},
        "log_bytes": logged,
        "ready": ready,
        "faults": faults_of(outcomes, before, after, log_bytes_per_second=logged / seconds, ready=ready),
        **provenance(),
    }


def faults_of(
    outcomes: Mapping[str, Mapping[str, int]], before: int, after: int, *, log_bytes_per_second: float, ready: bool
) -> list[str]:
    """Return the faults: outcomes that are not allowed, growth of memory and log, and a service that is not ready."""
    faults = [
        f"{kind.__name__}: {count} x {status}"
        for kind, (_, allowed) in KINDS.items()
        for status, count in sorted(outcomes.get(kind.__name__, {}).items())
        if status not in allowed
    ]
    if after > before * (1 + GROWTH):
        faults.append(f"memory grew from {before} to {after} bytes")
    if log_bytes_per_second > LOG_BYTES_PER_SECOND:
        faults.append(f"the log grew by {log_bytes_per_second:.0f} bytes per second")
    if not ready:
        faults.append("the service was not ready at the end")
    return faults


async def soak(port: int, texts: Sequence[str], seconds: float, seed: int) -> dict[str, Counter[str]]:
    """Run clients of all kinds until the time is up; return the number of each outcome by kind."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    end = time.monotonic() + seconds
    kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]

    async def work(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        while time.monotonic() < end:
            (kind,) = draw.choices(kinds, weights)
            outcomes[kind.__name__][await kind(port, draw, texts)] += 1

    await asyncio.gather(*map(work, range(CLIENTS)))
    return outcomes


async def _exchange(port: int, *pieces: bytes, pause: float = 0.0) -> str:
    """Send the pieces of a request and return the status; ``left`` if the service closes the connection first."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return type(error).__name__
    try:
        async with asyncio.timeout(PATIENCE):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                if pause:
                    await asyncio.sleep(pause)
            return (await reader.readuntil(b"\r\n")).split(b" ", 2)[1].decode()
    except (OSError, asyncio.IncompleteReadError):
        # The service may respond and close the connection before it has read everything.
        return "left"
    except TimeoutError:
        return "no answer"
    finally:
        writer.transport.abort()


def main() -> None:
    """Run the soak test, write the result and print the table; exit with 1 on a fault."""
    parser = arguments_of(__doc__)
    parser.add_argument(
        "--model", type=Path, help="model folder of hgclr train or hgclr export; default: a random head"
    )
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="encoder of the model with a random head")
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--split", default="test")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model
        if model is None:
            from untrained import write_untrained

            tree = DataFolder(arguments.data).taxonomy
            model = write_untrained(arguments.encoder, tree, Path(scratch, "model"), pooling="mean")
        result = run(model, arguments.data, seconds=arguments.seconds, split=arguments.split, seed=arguments.seed)
    write(result, arguments.output)
    rows = [(name, json.dumps(counts)) for name, counts in sorted(result["outcomes"].items())]
    held = result["bytes"]
    rows.append(("memory", f"{held['second_quarter'] / 1e6:.0f} MB, then {held['last_quarter'] / 1e6:.0f} MB"))
    rows.append(("log", f"{result['log_bytes']} bytes"))
    show(f"Soak test, {result['seconds']:.0f} seconds", ("client", "outcomes"), rows)
    if result["faults"]:
        sys.exit("faults: " + "; ".join(result["faults"]))


if __name__ == "__main__":
    main()
