"""The report: its page is complete, escaped and reproducible; its files; errors."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgclr.data import DataFolder
from hgclr.errors import InputError, MissingExtraError
from hgclr.evaluation.report import HEADLINES, draw_plots, json_file, report, report_page
from hgclr.taxonomy import Taxonomy
from support.audit_cases import KnownClassifier
from support.html import HtmlReader
from support.scored_documents import Scored, score

EVIL = "</script><img src=x onerror=alert(1)>&"


def check_self_contained(text: str) -> HtmlReader:
    page = HtmlReader(text)
    assert not page.fetched
    targets = {values.get("id") for _, values in page.attributes}
    for tag, values in page.attributes:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert not [name for name in values if name.startswith("on")]
        assert tag != "img" or values["alt"]
        assert tag != "a" or (values["href"] or "")[1:] in targets
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    return page


@pytest.fixture(scope="module")
def evil() -> Scored:
    taxonomy = Taxonomy(["a", "b", "c", EVIL], [-1, 0, 0, 0], ["top", EVIL, "x'\"y", "<!--"])
    scored = score(taxonomy, 60, noise=0.5)
    return Scored(taxonomy, [EVIL + text for text in scored.texts], scored.probabilities, scored.gold)


@pytest.fixture(scope="module")
def evil_content(evil: Scored) -> dict[str, Any]:
    return evil.content(training_counts=np.array([4, 3, 2, 1])) | {
        "model": EVIL,
        "command": EVIL,
        "data": EVIL,
        "pseudo_labels": {EVIL: 1234, "b": 5},
    }


@pytest.fixture(scope="module")
def plots(evil_content: dict[str, Any]) -> Any:
    """Shared by tests that check only the text of pages, because drawing is slow."""
    return draw_plots(evil_content)


@pytest.fixture(scope="module")
def evil_page(evil_content: dict[str, Any], plots: Any) -> str:
    return report_page(evil_content, plots)


def test_the_page_is_self_contained_and_escaped(evil: Scored, evil_page: str) -> None:
    page = check_self_contained(evil_page)
    assert page.tags.count("section") == 12
    assert page.tags.count("img") == 3
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', evil_page)
    tree = json.loads(data[0])
    assert tree["names"] == list(evil.taxonomy.names)
    assert tree["parents"] == evil.taxonomy.parents.tolist()
    assert tree["gold"] == evil.gold.sum(axis=0).tolist()
    assert tree["right"] == (evil.gold & (evil.probabilities > 0.5)).sum(axis=0).tolist()
    policy = next(values["content"] for _, values in page.attributes if "http-equiv" in values)
    assert (policy or "").startswith("default-src 'none'; img-src data:;")
    assert evil_page.index("1,234</td>") < evil_page.index(">5</td>")
    meanings = re.findall(r'<span class="meaning">([^<]+)</span>', evil_page)
    assert len(set(meanings)) == len(HEADLINES)  # every score is explained


@pytest.mark.slow
def test_the_same_content_gives_the_same_bytes(evil_content: dict[str, Any], evil_page: str) -> None:
    assert report_page(evil_content, draw_plots(evil_content)) == evil_page


def known(scored: Scored) -> KnownClassifier:
    answers = dict(zip(scored.texts, scored.probabilities, strict=True))
    return KnownClassifier(scored.taxonomy, answers, 5, rule="closure")


def data_folder(place: Path, scored: Scored, splits: tuple[str, ...] = ("train", "test")) -> DataFolder:
    place.mkdir()
    scored.taxonomy.write(place / "taxonomy.json")
    rows = [
        {"text": text, "labels": [scored.taxonomy.ids[label] for label in np.flatnonzero(gold)]}
        for text, gold in zip(scored.texts, scored.gold, strict=True)
    ]
    for split in splits:
        (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return DataFolder(place)


@pytest.mark.slow
def test_report_scores_a_split_and_writes_everything(taxonomy, tmp_path: Path, caplog) -> None:
    scored = score(taxonomy, 23)
    folder = data_folder(tmp_path / "data", scored)
    with (tmp_path / "data" / "train.jsonl").open("a") as file:
        file.write('{"text": "x", "labels": ["unheard of"]}\n')
    counted: list[int] = []
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine.txt").write_text("stays")
    written = report(known(scored), folder, "test", output, name="m", progress=counted.append, resamples=20)
    assert counted == [5, 5, 5, 5, 3]
    assert {path.name for path in output.iterdir()} == {
        "mine.txt",
        "report.html",
        "report.json",
        *(f"{name}.{kind}" for name in ("reliability", "risk-coverage", "threshold-curve") for kind in ("png", "svg")),
    }
    content = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert content == json.loads(json_file(written))
    expected = scored.content(rule="closure", batch=5, resamples=20, training_counts=scored.gold.sum(axis=0))
    for key in ("scores", "labels", "frequency", "documents_digest", "resampled", "confusions"):
        assert content[key] == json.loads(json.dumps(expected[key]))
    assert "train.jsonl" in caplog.text  # a row that is not counted


def test_no_work_is_done_for_a_report_that_cannot_be_written(taxonomy, tmp_path: Path, monkeypatch) -> None:
    scored = score(taxonomy, 9)
    folder = data_folder(tmp_path / "data", scored)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        report(known(scored), folder, "test", tmp_path / "file", name="m", progress=pytest.fail)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find_spec(name, *rest)
    )
    with pytest.raises(MissingExtraError):
        report(known(scored), folder, "test", tmp_path / "out", name="m", progress=pytest.fail)
