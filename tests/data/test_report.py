"""Plots and the HTML report of a data folder."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import Statistics, check, describe
from hgclr.data.report import draw_plots, report_page, write_report
from hgclr.presentation import Plot

PLOTS = {"label-frequency", "text-length", "labels-per-document"}
UNDRAWN = [Plot(name, bytes(24), b"", "a plot") for name in sorted(PLOTS)]
"""As long as the header of a PNG, for tests of a page's text: drawing plots is slow."""
TREE = {"<b>&": {"used $1$": {}, "idle": {"deep": {"deeper": {}}}, "late": {}}, "other": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Labels with markup in their names, an unused branch, a label for testing only, a conflict, a bad row."""
    path = tmp_path / "my <data>"
    path.mkdir()
    (path / "taxonomy.json").write_text(json.dumps(TREE))
    rows = {
        "train": [("one <i>two</i> three", ["<b>& > used $1$"]), ("four", ["other"]), ("same", ["other"])],
        "dev": [("SAME", ["<b>&"]), ("five", ["<b>& > late"])],
    }
    for split, documents in rows.items():
        lines = [json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in documents]
        (path / f"{split}.jsonl").write_text("".join(lines))
    with (path / "dev.jsonl").open("a") as file:
        file.write('{"text": "x", "labels": ["<u>unknown</u>"]}\n')
    return path


@pytest.fixture
def checked(folder: Path) -> Statistics:
    return check(DataFolder(folder))


def test_files_of_a_report(checked: Statistics, tmp_path: Path) -> None:
    target = tmp_path / "out" / "report"
    files = {file.name: file.read_bytes() for file in write_report(target, "<data>", checked, checked=True)}
    plots = {f"{name}.{kind}" for name in PLOTS for kind in ("png", "svg")}
    assert set(files) == {path.name for path in target.iterdir()} == plots | {"report.html", "stats.json"}
    content = json.loads(files["stats.json"])
    assert content["table1"]["documents"] == {"train": 3, "dev": 2}
    assert content["unseen_labels"] == ["<b>& > late"]
    html = files["report.html"].decode()
    sources = re.findall(r'src="data:image/png;base64,([^"]*)"', html)
    assert {base64.b64decode(source) for source in sources} == {files[f"{name}.png"] for name in PLOTS}
    assert not re.search(r"https?://|<link|<script|@import|url\(", html)
    for raw in ("<b>&<", "<i>two", "<u>unknown", "<data>"):
        assert raw not in html
    assert "<title>Data folder &lt;data&gt;</title>" in html


def test_page_shows_findings_and_unused_branches(checked: Statistics) -> None:
    html = report_page("x", checked, UNDRAWN, checked=True)
    branches = html[html.index("Branches without a document</h2>") :]
    assert "&lt;b&gt;&amp; &gt; idle" in branches
    assert "used $1$" not in branches
    assert "dev.jsonl:3" in html
    assert "&lt;u&gt;unknown&lt;/u&gt;" in html
    assert "dev: &lt;b&gt;&amp;" in html  # the other side of the conflict


@pytest.mark.slow
def test_deep_trees_can_be_drawn_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    labels = [f"n{number}" for number in range(40)]
    (tmp_path / "taxonomy.txt").write_text(" > ".join(labels) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "x " * 900, "labels": [" > ".join(labels)]}) + "\n")
    statistics = describe(DataFolder(tmp_path))
    assert draw_plots(statistics) == draw_plots(statistics)
