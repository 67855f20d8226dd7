"""What the benchmarks share: turns, medians with their spread, memory, what a figure depends on, and its file."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hgclr.provenance import command_line, machine

__all__ = [
    "arguments_of",
    "in_turns",
    "memory",
    "one_round",
    "peak_memory",
    "provenance",
    "ratio",
    "show",
    "spread",
    "write",
]

RUNTIMES = ("onnx", "onnxruntime", "onnxscript", "scikit-learn")


def arguments_of(script: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command line that shows a script's docstring as it stands."""
    return argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)


def one_round(
    contenders: Mapping[str, Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Let every contender work once, one after the other, and return the seconds of each."""
    seconds = {}
    for name, work in contenders.items():
        started = clock()
        work()
        seconds[name] = clock() - started
    return seconds


def in_turns(
    contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each contender in each round; one more round, which comes first, warms up."""
    one_round(contenders, clock)
    timed = [one_round(contenders, clock) for _ in range(rounds)]
    return {name: [seconds[name] for seconds in timed] for name in contenders}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of repeated measurements, the lowest and the highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratio(seconds: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Return how many times as fast as ``base`` a contender was, round by round: the machine's own pace drops out."""
    return spread([theirs / ours for ours, theirs in zip(seconds, base, strict=True)])


def memory() -> int:
    """Return the memory this process holds, in bytes."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Return the most memory this process has held, in bytes."""
    return _status("VmHWM")


def provenance() -> dict[str, Any]:
    """Return what every figure depends on: the command, the machine with its packages, the commit."""
    versions = {}
    for package in RUNTIMES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "command": command_line(sys.argv),
        "runtimes": versions,
        "machine": machine(),
    }


def write(result: Mapping[str, Any], output: Path | None) -> None:
    """Write a result as JSON, if it is wanted in a file."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a short table."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _status(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))
