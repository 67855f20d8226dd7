"""What the benchmarks share: turns, medians, provenance, files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from measuring import in_turns, memory, peak_memory, provenance, ratio, show, spread, write


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    clock = 0.0

    def work(name: str, seconds: float) -> None:
        nonlocal clock
        order.append(name)
        clock += seconds if order.count(name) > 1 else 100

    seconds = in_turns({"slow": lambda: work("slow", 5), "fast": lambda: work("fast", 1)}, 3, lambda: clock)
    assert order == ["slow", "fast"] * 4
    assert seconds == {"slow": [5, 5, 5], "fast": [1, 1, 1]}


def test_a_ratio_is_taken_within_each_round() -> None:
    # The machine is three times as slow in the last round, for both.
    assert ratio([1.0, 2.0, 6.0], [4.0, 6.0, 24.0]) == {"median": 4.0, "lowest": 3.0, "highest": 4.0}
    assert spread([3.0, 1.0, 2.0, 10.0]) == {"median": 2.5, "lowest": 1.0, "highest": 10.0}


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="this system does not tell a process its memory")
def test_memory_is_that_of_this_process() -> None:
    before = memory()
    block = np.ones(20_000_000)  # 160 MB
    assert memory() - before == pytest.approx(block.nbytes, rel=0.1)
    held = memory()
    del block
    assert memory() < held
    assert peak_memory() > 0.99 * held  # the system counts in steps


def test_a_result_says_what_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/a/place/bench.py", "--data", "../two words", "--model", "/home/me/model"])
    written = {"seconds": spread([1.0]), **provenance()}
    write(written, tmp_path / "results" / "one.json")
    read = json.loads((tmp_path / "results" / "one.json").read_text(encoding="utf-8"))
    assert read == written
    assert read["command"] == "bench.py --data '../two words' --model model"
    assert read["machine"]["packages"]["numpy"] == np.__version__
    assert read["runtimes"]["scikit-learn"]
    write(written, None)  # nowhere


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show("Speed", ("", "texts/s"), [("ours", "12")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "Speed"
    assert any("ours" in line and "12" in line for line in lines)
