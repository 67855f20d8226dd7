"""The benchmark of decoding rules, on very few documents."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import decoding_speed
from hgclr.decisions.decoding import RULES


def test_every_rule_is_timed_and_the_result_says_what_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "decoding-speed.json"
    command = ["decoding_speed.py", "--documents", "50", "--labels", "30", "--rounds", "2", "--output", str(file)]
    monkeypatch.setattr(sys, "argv", command)
    decoding_speed.main()
    result = json.loads(file.read_text(encoding="utf-8"))
    paths = {"best-path, leaves only", "top-k-paths, leaves only"}
    assert set(result["seconds"]) == {*RULES, *paths}
    for seconds in result["seconds"].values():
        assert 0 < seconds["lowest"] <= seconds["median"] <= seconds["highest"]
    given = result["labels_given"]
    assert given["drop-orphans"] < given["threshold"] < given["closure"]
    assert given["best-path"] < given["top-k-paths"]
    assert sum(result["setting"]["levels"]) == result["setting"]["labels"] == 30
    assert result["command"].endswith(
        "decoding_speed.py --documents 50 --labels 30 --rounds 2 --output decoding-speed.json"
    )
    assert result["machine"]
    shown = capsys.readouterr().out
    assert "50 documents x 30 labels" in shown
    assert all(rule in shown for rule in RULES)
