"""What this machine is and which precision it really runs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hgclr.errors import InputError, require_extra
from hgclr.files import cache_dir, write_json

__all__ = [
    "Precision",
    "Probe",
    "bf16_probe",
    "choose_precision",
    "chosen_threads",
    "free_memory",
    "machine",
    "usable_cores",
]

logger = logging.getLogger(__name__)
Precision = Literal["fp32", "bf16", "fp16"]
MAIN_PACKAGES = ("numpy", "tokenizers", "safetensors", "torch", "transformers", "accelerate", "datasets")
BF16_FEATURES = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # as Linux calls them; the last is ARM's
WORTHWHILE = 1.2  # how many times as fast as fp32 bf16 must be to be chosen
PATIENCE = 120  # seconds for a probe that needs two or three
# Times a layer of an encoder, forward and backward, as the trainer runs it: fp32 weights under autocast.
# One thread, CPU time, turns, and the best of many: so that the answer, on which the weights of a
# training run depend, does not change with what else the machine is doing.
_PROBE = """
import json, time, torch
torch.set_num_threads(1)
size = 384
weight = torch.randn(size, size, dtype=torch.bfloat16)
(weight @ weight).sum().item()
layer = torch.nn.TransformerEncoderLayer(size, 12, 4 * size, dropout=0.0, batch_first=True)
texts = torch.randn(4, 64, size)
def seconds(bf16):
    start = time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = layer(texts).float().square().mean()
    loss.backward()
    return time.process_time() - start
times = [(seconds(False), seconds(True)) for _ in range(20)]
print(json.dumps({"fp32": min(pair[0] for pair in times), "bf16": min(pair[1] for pair in times)}))
"""


# The files of a control group, by version: its limit, what it uses, and the word for what of that is only cached files.
_GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


@dataclass(frozen=True)
class Probe:
    """What came of trying bfloat16 on the CPU.

    Args:
        status: ``fast`` if it is worth using, ``slow`` if it runs without gain, ``crashes`` if it ends the
            process, ``unsupported`` if it cannot be tried or fails.
        detail: the reason in words.
        ratio: time of fp32 over time of bf16, where measured.
    """

    status: Literal["fast", "slow", "crashes", "unsupported"]
    detail: str
    ratio: float | None = None


def bf16_probe() -> Probe:
    """Find out, in a process of its own, whether bfloat16 runs on this CPU and gains anything.

    Some virtual machines advertise instructions that they cannot run; the first product in bfloat16 then
    kills the process. The answer is kept per CPU, torch version and ``ONEDNN_MAX_CPU_ISA`` in
    ``hardware.json`` in the cache; delete that file to measure again.
    """
    if importlib.util.find_spec("torch") is None:
        return Probe("unsupported", "torch is not installed")
    features = _cpu_features()
    usable = sorted((features or set()) & BF16_FEATURES)
    if features is not None and not usable:
        return Probe("slow", "this CPU has no bfloat16 instructions and emulates them")
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "default")
    # The features too, because virtual machines of one CPU model differ in what they let through.
    key = " | ".join([_cpu_model(), *usable, f"torch {importlib.metadata.version('torch')}", limit])
    cache = cache_dir() / "hardware.json"
    known = _read_cache(cache)
    if key in known:
        return known[key]
    probe = _run_probe()
    if probe.status != "unsupported":  # for which the cause may be gone the next time
        _write_cache(cache, {**known, key: probe})
    return probe


def choose_precision(requested: Literal["auto", "fp32", "bf16", "fp16"]) -> Precision:
    """Return the precision to train in; ``auto`` is bf16 where the hardware gains by it and fp32 otherwise.

    Raises:
        InputError: if the requested precision does not run on this machine.
    """
    if requested == "fp32":
        return "fp32"
    require_extra("torch", extra="train", capability=f"precision {requested}")
    import torch

    if torch.cuda.is_available():
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        if requested == "bf16" and not native:
            raise InputError("this GPU has no bfloat16", remedy="use precision fp16 or auto")
        return ("bf16" if native else "fp32") if requested == "auto" else requested
    if torch.accelerator.is_available():  # neither CUDA nor the CPU, say Apple's: only on request
        return "fp32" if requested == "auto" else requested
    if requested == "fp16":
        raise InputError("precision fp16 needs a GPU and there is none", remedy="use precision auto")
    probe = bf16_probe()
    if requested == "auto":
        return "bf16" if probe.status == "fast" else "fp32"
    if probe.status in ("crashes", "unsupported"):
        raise InputError(f"precision bf16 does not run here: {probe.detail}", remedy="use precision auto or fp32")
    if probe.status == "slow":
        logger.warning("bf16 gains nothing here (%s); precision auto would use fp32", probe.detail)
    return "bf16"


def machine(*packages: str) -> dict[str, object]:
    """Return what results depend on besides data and settings: hardware, versions (also of ``packages``), commit."""
    commit, modified = _commit()
    return {
        "processor": _cpu_model(),
        "cores": _physical_cores(),
        "threads": usable_cores(),
        "memory_bytes": _memory_bytes(),
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


def _run_probe() -> Probe:
    command = [sys.executable, "-P", "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Probe("unsupported", f"the trial did not end within {PATIENCE} s")
    number = -done.returncode if done.returncode < 0 else done.returncode - 128  # a shell reports 128 + n
    if number > 0:
        name = {int(one): one.name for one in signal.Signals}.get(number, f"signal {number}")
        advice = "; ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 may avoid it" if number == signal.SIGILL else ""
        return Probe("crashes", f"the trial was killed by {name}{advice}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return Probe("unsupported", lines[-1] if lines else f"the trial ended with exit code {done.returncode}")
    seconds = json.loads(done.stdout.splitlines()[-1])
    ratio = round(seconds["fp32"] / seconds["bf16"], 2)
    return Probe("fast" if ratio > WORTHWHILE else "slow", f"{ratio:.2f} times the speed of fp32", ratio)


def _read_cache(path: Path) -> dict[str, Probe]:
    """Return the known answers; a missing or broken file counts as empty, for it can be made anew."""
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))["bf16"]
        return {key: Probe(**answer) for key, answer in answers.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("ignoring %s: %s", path, error)
        return {}


def _write_cache(path: Path, probes: dict[str, Probe]) -> None:
    content = {"bf16": {key: asdict(probe) for key, probe in probes.items()}}
    try:
        write_json(path, content)
    except InputError as error:  # then it is measured again the next time
        logger.warning("cannot keep the answer in %s: %s", path, error.what)


def _cpuinfo() -> str:
    return _read(Path("/proc/cpuinfo"))


def _cpuinfo_values(*names: str) -> list[str]:
    pairs = (line.partition(":") for line in _cpuinfo().splitlines())
    return [value.strip() for name, _, value in pairs if name.strip() in names]


def _cpu_features() -> set[str] | None:
    lines = _cpuinfo_values("flags", "Features")  # x86 and ARM
    return set(lines[0].split()) if lines else None


def _cpu_model() -> str:
    names = _cpuinfo_values("model name")
    return names[0] if names else platform.processor() or platform.machine()


def _physical_cores() -> int | None:
    cores = set(zip(_cpuinfo_values("physical id"), _cpuinfo_values("core id"), strict=False))
    return len(cores) or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> tuple[str | None, bool | None]:
    """Return the commit of the checkout this package runs from and whether tracked files differ from it.

    Results do not count: a run that goes on from those in the repository rewrites them.
    """
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


def free_memory() -> int | None:
    """Return the bytes that are free on the accelerator, or without one on this machine; None where it does not say."""
    require_extra("torch", extra="train", capability="Looking for free memory")
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    if torch.backends.mps.is_available():
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    if torch.accelerator.is_available():
        return None
    return _cpu_memory(Path("/"))


def _cpu_memory(root: Path) -> int | None:
    """Return what the system has to give, or the control group of this process (a container's) if that is less.

    ``root`` is where ``proc`` and ``sys`` are.
    """
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE)
    known = [int(available[1]) * 1024] if available else []
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
    limit, used, cached = _GROUP_FILES[version]
    try:
        numbers = int(_read(folder / limit)), int(_read(folder / used))
    except ValueError:  # no such file, or "max"
        return []
    found = re.search(rf"^{cached} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
    return [max(0, numbers[0] - numbers[1] + (int(found[1]) if found else 0))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
