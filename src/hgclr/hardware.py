"""The machine: its hardware and packages for the record, its cores, and the precision to train in."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Literal

from hgclr.errors import InputError

Precision = Literal["fp32", "bf16", "fp16"]
MAIN_PACKAGES = ("numpy", "tokenizers", "safetensors", "torch", "transformers", "accelerate", "datasets")


def choose_precision(requested: Literal["auto", "fp32", "bf16", "fp16"]) -> Precision:
    """Return the precision to train in; ``auto`` is bf16 on a GPU that supports it and fp32 otherwise.

    Raises:
        InputError: if the requested precision does not run on this machine.
    """
    import torch

    if requested == "fp16" and not torch.accelerator.is_available():
        raise InputError("precision fp16 needs a GPU and there is none", remedy="use precision auto")
    native = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if requested == "bf16" and torch.cuda.is_available() and not native:
        raise InputError("this GPU has no bfloat16", remedy="use precision fp16 or auto")
    if requested == "auto":
        return "bf16" if native else "fp32"
    return requested


def machine(*packages: str) -> dict[str, object]:
    """Return the hardware, the commit, and the versions of the main packages and of ``packages``, for the record."""
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
    """Return the number of cores that this process may use, as the system counts them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_threads() -> int | None:
    """Return the number of threads that the environment asks for by ``OMP_NUM_THREADS``, if it does."""
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
    # An installed copy may lie inside somebody else's repository, whose commit says nothing about us.
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
