"""Shared functions of the benchmarks: timing in turns, medians and ranges, memory, provenance, output."""

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
    """Return a command-line parser whose help is the script's docstring."""
    return argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)


def one_round(
    contenders: Mapping[str, Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Run every contender once, one after the other, and return the seconds of each."""
    seconds = {}
    for name, work in contenders.items():
        started = clock()
        work()
        seconds[name] = clock() - started
    return seconds


def in_turns(
    contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each contender in each round. A first round warms up and is not counted."""
    one_round(contenders, clock)
    timed = [one_round(contenders, clock) for _ in range(rounds)]
    return {name: [seconds[name] for seconds in timed] for name in contenders}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, lowest and highest value."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratio(seconds: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Return the speed relative to ``base``, round by round, so that the machine's changing speed cancels out."""
    return spread([theirs / ours for ours, theirs in zip(seconds, base, strict=True)])


def memory() -> int:
    """Return the resident memory of this process, in bytes."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes."""
    return _status("VmHWM")


def provenance() -> dict[str, Any]:
    """Return the command, the versions of packages, the machine and the commit of a result."""
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
    """Write a result as JSON if a file is given."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _status(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))
