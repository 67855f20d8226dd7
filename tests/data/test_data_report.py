"""Plots and the HTML report of a data folder."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data import report as module
from hgclr.data.check import CheckReport, check
from hgclr.data.report import DataPlot, check_report, draw_plots, report_page, write_plots, write_report
from hgclr.data.statistics import describe
from hgclr.errors import InputError, MissingExtraError

PLOTS = {"labels-per-level.png", "label-frequency.png", "text-length.png", "labels-per-document.png"}
UNDRAWN = [DataPlot(name, bytes(24), "a plot") for name in sorted(PLOTS)]
"""As long as the header of a PNG, for tests of a page's words: drawing takes longer than everything else here."""
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
def checked(folder: Path) -> CheckReport:
    return check(DataFolder(folder))


def test_files_of_a_report(checked: CheckReport, tmp_path: Path) -> None:
    target = tmp_path / "out" / "report"
    files = write_report(target, "my data", checked.statistics, checked)
    assert {file.name for file in files} == {path.name for path in target.iterdir()}
    assert {file.name for file in files} == PLOTS | {"report.html", "stats.json", "check.json"}
    assert json.loads((target / "stats.json").read_text())["table1"]["documents"] == {"train": 3, "dev": 2}
    assert json.loads((target / "check.json").read_text())["unseen_labels"] == ["<b>& > late"]
    for name in PLOTS:
        content = (target / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert (width, height) == (1760, 760)


@pytest.mark.slow
def test_page_needs_nothing_else_and_holds_the_plots(checked: CheckReport) -> None:
    plots = draw_plots(checked.statistics)
    html = report_page("my data", checked.statistics, plots, checked)
    sources = re.findall(r'src="([^"]*)"', html)
    assert [base64.b64decode(source.partition(",")[2]) for source in sources] != []
    assert {base64.b64decode(source.removeprefix("data:image/png;base64,")) for source in sources} == {
        plot.png for plot in plots
    }
    assert not re.search(r"https?://|<link|<script|@import|url\(", html)
    assert all(len(plot.alt) > 30 and f'alt="{plot.alt}"' in html for plot in plots)


def test_page_escapes_what_is_in_the_data(checked: CheckReport) -> None:
    html = report_page("<data>", checked.statistics, draw_plots(checked.statistics), checked)
    for raw in ("<b>&<", "<i>two", "<u>unknown", "<data>"):
        assert raw not in html
    assert "&lt;b&gt;&amp; &gt; late" in html
    assert "&lt;u&gt;unknown&lt;/u&gt;" in html
    assert "<title>Data folder &lt;data&gt;</title>" in html


def test_page_shows_findings_and_the_tree_of_unused_labels(checked: CheckReport) -> None:
    html = report_page("x", checked.statistics, UNDRAWN, checked)
    tree = html[html.index("Branches without a document</h2>") :]
    assert '<summary>&lt;b&gt;&amp; <span class="quiet">3 of 5 below have no document</span></summary>' in tree
    assert '<summary><b>idle</b> <span class="quiet">and all 2 below</span></summary>' in tree
    assert "<summary>deep</summary>" in tree
    assert '<div class="leaf">deeper</div>' in tree
    assert "used $1$" not in tree
    assert "dev.jsonl:3" in html
    assert "dev: &lt;b&gt;&amp;" in html  # the other side of the conflict


def test_large_trees_are_cut(checked: CheckReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWN", 2)
    html = report_page("x", checked.statistics, UNDRAWN, checked)
    assert "deeper" not in html
    assert "stats.json has the documents of every label" in html


def test_page_of_statistics_alone(folder: Path) -> None:
    statistics = describe(DataFolder(folder, skip_bad_rows=True))
    html = report_page("x", statistics, UNDRAWN)
    assert "Findings" not in html
    assert "Branches without" not in html
    assert html.count("<figure>") == 4


def test_good_data_is_called_good(tmp_path: Path) -> None:
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\n")
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"a text of words, {n}", "labels": [n]}) + "\n" for n in "AB")
    )
    found = check(DataFolder(tmp_path))
    assert "nothing looks wrong" in report_page("x", found.statistics, UNDRAWN, found)


def test_folders_without_a_good_row_can_be_reported(tmp_path: Path) -> None:
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\n")
    (tmp_path / "train.jsonl").write_text("[]\n")
    found = check(DataFolder(tmp_path))
    write_report(tmp_path / "report", "x", found.statistics, found)
    assert "train.jsonl has no good row" in (tmp_path / "report" / "report.html").read_text()


def test_deep_trees_and_many_labels_can_be_drawn(tmp_path: Path) -> None:
    labels = [f"n{number}" for number in range(40)]
    (tmp_path / "taxonomy.txt").write_text(" > ".join(labels) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "x " * 900, "labels": [" > ".join(labels)]}) + "\n")
    statistics = describe(DataFolder(tmp_path))
    assert {plot.name for plot in draw_plots(statistics)} == PLOTS


@pytest.mark.slow
def test_the_same_statistics_give_the_same_pictures(checked: CheckReport, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_plots(tmp_path / "one", checked.statistics)]
    second = [path.read_bytes() for path in write_plots(tmp_path / "two", checked.statistics)]
    assert first == second
    assert {path.name for path in (tmp_path / "one").iterdir()} == PLOTS


def test_places_that_cannot_be_written_to(
    checked: CheckReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "draw_plots", lambda _: UNDRAWN)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the output is a file; give a folder"):
        check_report(tmp_path / "file")
    with pytest.raises(InputError, match=r"cannot be written"):
        write_plots(tmp_path / "file", checked.statistics)


def test_plots_need_matplotlib(checked: CheckReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for act in (lambda: check_report(tmp_path), lambda: draw_plots(checked.statistics)):
        with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[data\]'"):
            act()
