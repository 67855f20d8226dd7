"""How much memory there is to take, where training would run."""

from __future__ import annotations

import re
from pathlib import Path

from hgclr.errors import require_extra

__all__ = ["free_memory"]

# The files of a control group, by version: its limit, what it uses, and the word for what of that is only cached files.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def free_memory() -> int | None:
    """Return the bytes that are free on the accelerator, or without one on this machine; None where it does not say.

    Raises:
        MissingExtraError: if torch, which knows of accelerators, is not installed.
    """
    require_extra("torch", extra="train", capability="Looking for free memory")
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    if torch.backends.mps.is_available():
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    if torch.accelerator.is_available():
        return None
    return _processor_memory(Path("/"))


def _processor_memory(root: Path) -> int | None:
    """Return what the system has to give, or the control group of this process (a container's) if that is less.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE)
    known = [int(found[1]) * 1024] if found else []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        version = 2 if controllers == "" else 1 if "memory" in controllers.split(",") else None
        if version is not None:
            top = root / "sys/fs/cgroup" / ("memory" if version == 1 else "")
            # A container may see its own group at the top, whatever the path says; a limit above holds as well.
            own_folder = top / own.lstrip("/")
            folders = [own_folder, *own_folder.parents]
            known += [free for folder in folders if folder.is_relative_to(top) for free in _group(folder, version)]
    return min(known, default=None)


def _group(folder: Path, version: int) -> list[int]:
    """Return what a control group may still take, if it has a limit; files that it has cached can be let go."""
    limit, used, cached = _FILES[version]
    try:
        numbers = int(_read(folder / limit)), int(_read(folder / used))
    except ValueError:  # no such file, or "max"
        return []
    found = re.search(rf"^{cached} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
    return [max(0, numbers[0] - numbers[1] + (int(found[1]) if found else 0))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
