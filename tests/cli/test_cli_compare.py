"""``hgclr compare``: the table, the page, the refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.report import json_file, report_content
from hgclr.evaluation.report_data import Collector
from hgclr.files import write_files
from hgclr.taxonomy import Taxonomy


def write(folder: Path, taxonomy: Taxonomy, flipped: float, documents: int = 200) -> Path:
    """Write the report of a model that takes some decisions the wrong way round."""
    random = np.random.default_rng(3)
    gold = taxonomy.close(random.random((documents, len(taxonomy))) < 0.2)
    wrong = random.random(gold.shape) < flipped
    collected = Collector(Decisions(taxonomy), resamples=100)
    collected.update([f"text {row}" for row in range(documents)], (gold ^ wrong).astype(np.float32), gold)
    content = report_content(collected, model=folder.name, data="data", split="test", command="", training_counts=None)
    write_files(folder, {"report.json": json_file(content)})
    return folder


@pytest.fixture(scope="module")
def reports(taxonomy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return write(folder / "worse", taxonomy, 0.2), write(folder / "better", taxonomy, 0.02)


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", *map(str, arguments)])


def test_reports_are_put_side_by_side(reports: tuple[Path, Path]) -> None:
    result = run(*reports)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].strip() == "data, test: 200 documents"
    assert [cell.strip() for cell in lines[2].strip("┃").split("┃")] == ["", "worse", "better", "difference", "p"]
    cells = {
        row[0]: row[1:] for row in ([c.strip() for c in line.strip("│").split("│")] for line in lines if "│" in line)
    }
    worse, better = (json.loads((place / "report.json").read_text())["scores"] for place in reports)
    first, second = 100 * worse["micro"]["f1"], 100 * better["micro"]["f1"]
    assert cells["Micro-F1"] == [f"{first:.2f}", f"{second:.2f}", f"+{second - first:.2f}", f"{2 / 101:.3f}"]
    assert cells["Hamming loss"][2].startswith("−")
    assert "level 3, Macro-F1" in cells


def test_a_page_is_written_where_it_is_wanted(reports: tuple[Path, Path], tmp_path: Path) -> None:
    result = run(*reports, "--output", tmp_path / "out", "--json", tmp_path / "result.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"written: {tmp_path / 'out' / 'comparison.html'}\n")
    content = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert content == json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_what_cannot_be_compared_is_refused(reports: tuple[Path, Path], taxonomy, tmp_path: Path) -> None:
    fewer = write(tmp_path / "fewer", taxonomy, 0.1, documents=50)
    pruned = write(tmp_path / "pruned", Taxonomy(["science"], [-1]), 0.1)
    for arguments in (reports[:1], (reports[0], fewer), (reports[0], pruned), (reports[0], tmp_path)):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert result.stdout == ""
