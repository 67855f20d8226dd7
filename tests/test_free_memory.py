"""Free memory, read from made-up systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.hardware import _cpu_memory, free_memory

GIGABYTE = 10**9


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with 8 GB to give."""
    return write(
        tmp_path,
        **{
            "proc/meminfo": f"MemTotal: 16000000 kB\nMemFree: 5 kB\nMemAvailable:    {8 * GIGABYTE // 1024} kB\n",
            "proc/self/cgroup": "0::/\n",
        },
    )


def test_without_a_limit_it_is_what_the_system_has_available(machine: Path) -> None:
    write(machine, **{"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "5\n"})
    assert _cpu_memory(machine) == 8 * GIGABYTE


def test_a_container_may_take_less_and_lets_cached_files_go(machine: Path) -> None:
    group = "sys/fs/cgroup/"
    write(machine, **{group + "memory.max": f"{4 * GIGABYTE}\n", group + "memory.current": f"{3 * GIGABYTE}\n"})
    assert _cpu_memory(machine) == GIGABYTE
    write(machine, **{group + "memory.stat": f"file 7\nactive_file 7\ninactive_file {GIGABYTE}\n"})
    assert _cpu_memory(machine) == 2 * GIGABYTE


def test_the_tightest_limit_on_the_way_up_holds(machine: Path) -> None:
    write(
        machine,
        **{
            "proc/self/cgroup": "0::/pod/job\n",
            "sys/fs/cgroup/pod/memory.max": str(2 * GIGABYTE),
            "sys/fs/cgroup/pod/memory.current": str(GIGABYTE // 2),
            "sys/fs/cgroup/pod/job/memory.max": str(5 * GIGABYTE),
            "sys/fs/cgroup/pod/job/memory.current": "0",
        },
    )
    assert _cpu_memory(machine) == 3 * GIGABYTE // 2


def test_the_older_kind_of_control_groups(machine: Path) -> None:
    group = "sys/fs/cgroup/memory/job/"
    write(
        machine,
        **{
            "proc/self/cgroup": "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n",
            group + "memory.limit_in_bytes": str(3 * GIGABYTE),
            group + "memory.usage_in_bytes": str(2 * GIGABYTE),
            group + "memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            # no limit, as this kind writes it
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(5 * GIGABYTE),
        },
    )
    assert _cpu_memory(machine) == GIGABYTE + 500


def test_more_used_than_allowed_leaves_nothing(machine: Path) -> None:
    group = "sys/fs/cgroup/"
    write(machine, **{group + "memory.max": "10", group + "memory.current": "20"})
    assert _cpu_memory(machine) == 0


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert _cpu_memory(tmp_path) is None


def test_this_machine_says_something_sensible_or_nothing() -> None:
    free = free_memory()
    assert free is None or 0 <= free < 10**15
