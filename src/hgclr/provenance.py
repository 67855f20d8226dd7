"""Provenance of a result: machine, versions, commit, command and settings; and the cores that a process may use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

MAIN_PACKAGES = ("numpy", "tokenizers", "safetensors", "torch", "transformers", "accelerate", "datasets")
PATHS = ("path", "taxonomy", "start", "label_changes")
"""Settings that are paths, which may be written in several ways."""


@dataclass(frozen=True)
class Stopwatch:
    """Measures seconds and CPU seconds since it was made, or since the given readings of both clocks."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)

    def read(self) -> dict[str, float]:
        return {
            "seconds": round(time.monotonic() - self.wall, 1),
            "cpu_seconds": round(time.process_time() - self.cpu, 1),
        }


def machine(*packages: str) -> dict[str, object]:
    """Return the hardware, the commit, and the versions of the main packages and of ``packages``."""
    commit, modified = _commit()
    return {
        "processor": next(iter(_cpuinfo_values("model name")), platform.processor() or platform.machine()),
        "cores": len(set(zip(_cpuinfo_values("physical id"), _cpuinfo_values("core id"), strict=False))) or None,
        "threads": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("hgclr", *MAIN_PACKAGES, *packages)},
        "commit": commit,
        "modified": modified,
    }


def usable_cores() -> int:
    """Return the number of logical cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_threads() -> int | None:
    """Return the number of threads in ``OMP_NUM_THREADS``, or None."""
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    return int(chosen) or None if chosen.isdecimal() else None


def _cpuinfo_values(name: str) -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> tuple[str | None, bool | None]:
    """Return the commit of the checkout this package runs from and whether tracked files, except results, differ."""
    root = Path(__file__).resolve().parents[2]
    # An installed copy may be inside another repository, whose commit would be wrong.
    if not (root / ".git").exists() or not (root / "src" / "hgclr").is_dir():
        return None, None
    state = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)benchmarks/results"]
    try:
        commit, changes = (
            subprocess.run(
                ["git", "--no-optional-locks", "-C", str(root), *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
            for words in (["rev-parse", "--verify", "HEAD"], state)
        )
    except (OSError, subprocess.SubprocessError):  # no git, no commit yet, or a repository of another user
        return None, None
    return commit.stdout.strip(), bool(changes.stdout.strip())


def portable(value: Any) -> Any:
    """Return settings with only the last part of absolute paths; the rest means nothing on another machine."""
    if isinstance(value, dict):
        return {name: portable(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [portable(inside) for inside in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value


def command_line(words: Sequence[str]) -> str:
    """Return a command with only the last part of absolute paths, also in ``--set a.path=/b/c``.

    Example:
        >>> command_line(["hgclr", "train", "/home/me/run.yaml", "--set", "data.path=/data/wos"])
        'hgclr train run.yaml --set data.path=wos'
    """
    parts = (word.partition("=") for word in words)
    return shlex.join(portable(name) + equals + portable(value) for name, equals, value in parts)


class SettingDifference(NamedTuple):
    """A setting with two values; its place is a name such as ``model.preset``."""

    place: str
    before: Any
    now: Any


def first_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], *, shared: bool = False, place: str = ""
) -> SettingDifference | None:
    """Return the first setting that differs, or None; ``place`` is the name of the enclosing sections.

    ``shared`` skips settings that only one side has, because another version of hgclr added them.
    """
    for name in sorted({*old, *new}):
        before, now, where = old.get(name), new.get(name), f"{place}.{name}" if place else name
        if shared and (name not in old or name not in new):
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            if (inside := first_difference(before, now, shared=shared, place=where)) is not None:
                return inside
        elif name in PATHS and isinstance(before, str) and isinstance(now, str):
            if Path(before).resolve() != Path(now).resolve():
                return SettingDifference(where, before, now)
        elif before != now:
            return SettingDifference(where, before, now)
    return None
