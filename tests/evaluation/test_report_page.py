"""The page of a report and of a comparison: whole, escaped, nothing from outside, the same every time."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgclr.data import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError, MissingExtraError
from hgclr.evaluation.comparison import compare, write_comparison
from hgclr.evaluation.report import HEADLINES, json_file, report, report_page
from hgclr.evaluation.report_plots import draw_plots
from hgclr.presentation import Html, Section, page, render_page
from hgclr.taxonomy import Taxonomy
from support.scored_documents import Scored, score, write

EVIL = "</script><img src=x onerror=alert(1)>&"


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and the texts of its scripts; counts what is left open."""

    VOID = frozenset({"meta", "img", "br", "input", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def check_self_contained(text: str) -> Elements:
    elements = Elements(text)
    assert elements.open == []
    for tag, attributes in elements.found:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/")
            assert attributes["alt"]
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")
        assert "src" not in attributes or tag == "img"
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    targets = {attributes.get("id") for _, attributes in elements.found}
    assert {(attributes["href"] or "")[1:] for tag, attributes in elements.found if tag == "a"} <= targets
    return elements


@pytest.fixture(scope="module")
def evil() -> Scored:
    taxonomy = Taxonomy(["a", "b", "c", EVIL], [-1, 0, 0, 0], ["top", EVIL, "x'\"y", "<!--"])
    scored = score(taxonomy, 60, noise=0.5)
    return Scored(taxonomy, [EVIL + text for text in scored.texts], scored.probabilities, scored.gold)


@pytest.fixture(scope="module")
def evil_content(evil: Scored) -> dict[str, Any]:
    return evil.content(training_counts=np.array([4, 3, 2, 1])) | {"model": EVIL, "command": EVIL, "data": EVIL}


@pytest.fixture(scope="module")
def plots(evil_content: dict[str, Any]) -> Any:
    """Also for pages whose texts alone are looked at: to draw takes longest."""
    return draw_plots(evil_content)


@pytest.fixture(scope="module")
def evil_page(evil_content: dict[str, Any], plots: Any) -> str:
    return report_page(evil_content, plots)


@pytest.mark.slow
def test_the_page_is_self_contained_and_escaped(evil: Scored, evil_page: str) -> None:
    elements = check_self_contained(evil_page)
    (data,) = [text for text in elements.scripts if text.startswith('{"names"')]
    tree = json.loads(data)
    assert tree["names"] == list(evil.taxonomy.names)
    assert tree["parents"] == evil.taxonomy.parents.tolist()
    assert tree["gold"] == evil.gold.sum(axis=0).tolist()
    assert tree["right"] == (evil.gold & (evil.probabilities > 0.5)).sum(axis=0).tolist()
    policy = next(attributes["content"] for tag, attributes in elements.found if "http-equiv" in attributes)
    assert (policy or "").startswith("default-src 'none'; img-src data:;")


def test_every_score_is_explained(evil_page: str) -> None:
    meanings = re.findall(r'<span class="meaning">([^<]+)</span>', evil_page)
    assert len(set(meanings)) == len(HEADLINES)
    for headline, meaning in zip(HEADLINES, meanings, strict=True):
        assert f'<span class="name">{headline.name}</span>' in evil_page
        assert len(meaning) > 20
    assert "The mean of the F1 of every label: a label with three documents weighs as much as" in evil_page


@pytest.mark.slow
def test_the_same_content_gives_the_same_bytes(evil_content: dict[str, Any], evil_page: str) -> None:
    assert report_page(evil_content, draw_plots(evil_content)) == evil_page


@pytest.mark.slow
def test_what_cannot_be_said_is_left_out(taxonomy) -> None:
    gold = np.zeros((2, 9), dtype=np.bool_)
    gold[:, 0] = True
    content = Scored(taxonomy, ["a", "b"], np.zeros((2, 9), dtype=np.float32), gold).content(rule="drop-orphans")
    text = report_page(content, draw_plots(content))
    check_self_contained(text)
    assert "The data folder has no train split" in text
    assert "no label was given" in text
    assert "no document was given a sibling" in text


@pytest.mark.slow
def test_thresholds_sureness_and_calibration_are_told(taxonomy, plots: Any) -> None:
    from hgclr.decisions.settings import Temperatures

    scored = score(taxonomy, 30)
    content = scored.content(
        rule="top-k-paths",
        thresholds=np.linspace(0.25, 0.75, 9, dtype=np.float32),
        abstain_below=0.125,
        paths=3,
        calibration=Temperatures(taxonomy, (1.0, 2.0, 3.0)),
    )
    text = report_page(content, plots)
    assert "one for each label, from 0.250 to 0.750, median 0.500" in text
    assert "k = 3, down to a leaf or not" in text
    assert "labels that are less than 12.5% sure" in text
    assert "temperature, one for each level" in text


class Pretender:
    """A classifier that knows the probabilities of every text beforehand."""

    def __init__(self, scored: Scored, window: int = 5) -> None:
        self.taxonomy, self.window = scored.taxonomy, window
        self.decisions = Decisions(scored.taxonomy, "closure")
        self._known = dict(zip(scored.texts, scored.probabilities, strict=True))

    def predict_proba(self, texts: list[str]) -> np.ndarray:
        return np.stack([self._known[text] for text in texts])


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
    written = report(Pretender(scored), folder, "test", output, name="m", progress=counted.append, resamples=20)
    assert counted == [5, 5, 5, 5, 3]
    assert {path.name for path in output.iterdir()} == {
        "mine.txt",
        "report.html",
        "report.json",
        *(f"{name}.{kind}" for name in ("reliability", "risk-coverage", "threshold-curve") for kind in ("png", "svg")),
    }
    assert written.page == output / "report.html"
    content = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert content == json.loads(json_file(written.content))
    expected = scored.content(rule="closure", batch=5, resamples=20, training_counts=scored.gold.sum(axis=0))
    for key in ("scores", "labels", "frequency", "documents_digest", "resampled", "confusions"):
        assert content[key] == json.loads(json.dumps(expected[key]))
    assert "train.jsonl: 1 rows are not counted" in caplog.text


@pytest.mark.slow
def test_a_folder_without_train_split_has_no_frequencies(taxonomy, tmp_path: Path) -> None:
    scored = score(taxonomy, 9)
    folder = data_folder(tmp_path / "data", scored, ("dev",))
    written = report(Pretender(scored), folder, "dev", tmp_path / "out", name="m", resamples=5)
    assert written.content["frequency"] is None
    assert {label["training"] for label in written.content["labels"]} == {None}


def test_no_work_is_done_for_a_report_that_cannot_be_written(taxonomy, tmp_path: Path, monkeypatch) -> None:
    scored = score(taxonomy, 9)
    folder = data_folder(tmp_path / "data", scored)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: the output is a file; give a folder"):
        report(Pretender(scored), folder, "test", tmp_path / "file", name="m", progress=pytest.fail)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find_spec(name, *rest)
    )
    with pytest.raises(
        MissingExtraError, match=r"Writing a report needs an optional part: pip install 'hgclr\[report\]'"
    ):
        report(Pretender(scored), folder, "test", tmp_path / "out", name="m", progress=pytest.fail)


def test_the_page_of_a_comparison_is_self_contained_and_escaped(evil: Scored, tmp_path: Path) -> None:
    contents: dict[str, dict[str, Any]] = {
        "<b>one": evil.content(),
        "two": evil.content(rule="closure"),
        "three": evil.content(rule="best-path"),
    }
    folders = [write(tmp_path / name, content) for name, content in contents.items()]
    place = write_comparison(tmp_path / "out", compare(folders), command=EVIL)
    text = place.read_text(encoding="utf-8")
    check_self_contained(text)
    assert "&lt;b&gt;one, two and three compared" in text
    assert "With 2 comparisons" in text
    names = {"comparison.html", "comparison.json", "comparison.png", "comparison.svg"}
    assert {path.name for path in place.parent.iterdir()} == names


def test_parts_of_a_page() -> None:
    base, sections = "presentation/templates/base.html", [Section("s", Html(""))]
    assert "<p>a &lt; b</p>" in page("t", sections, lead="a < b")
    text = render_page(base, title="t", sections=sections, lead="a sentence", style="b{}", script="let c;")
    assert "<p>a sentence</p>" in text
    assert "b{}</style>" in text
    assert "<script>let c;</script>\n</body>" in text
    assert "<script>" not in page("t", sections)


CLICKS = """
<script>
const rows = () => [...document.querySelectorAll("[role=treeitem]")];
const names = () => rows().map((row) => row.querySelector(".name").textContent).join("|");
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const enter = (name, value) => {
  const control = document.querySelector(`[name=${name}]`);
  control.value = value;
  control.dispatchEvent(new Event("input"));
};
const seen = [names()];
rows()[0].focus();
press("ArrowRight");
seen.push(names());
press("ArrowDown");
seen.push(document.activeElement.getAttribute("aria-label"));
press("ArrowLeft");
press("ArrowLeft");
seen.push(names());
enter("find", "OPT");
seen.push(names(), document.querySelector("[role=status]").textContent);
enter("find", "");
enter("order", "worst");
seen.push(names());
document.title = JSON.stringify(seen);
</script>
</body>"""


@pytest.mark.slow
def test_the_tree_opens_by_keyboard_and_can_be_searched(taxonomy, plots: Any, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    scored = score(taxonomy, 40)
    content = scored.content()
    text = report_page(content, plots)
    place = tmp_path / "page.html"
    place.write_text(text.replace("</body>", CLICKS), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run([browser, *options, place.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    titles = re.search(r"<title>(.*)</title>", done.stdout)
    assert titles is not None, done.stderr
    top, opened, label, closed, found, status, worst = json.loads(titles[1])
    labels = {each["id"]: each for each in content["labels"]}
    assert top == closed == "science|society"
    assert opened == "science|chemistry|physics|society"
    chemistry = labels["chemistry"]
    assert label.startswith(f"chemistry: {chemistry['gold']} documents, precision {100 * chemistry['precision']:.1f},")
    assert label.endswith(f"F1 {100 * chemistry['f1']:.1f}")
    assert found == "science|physics|optics"
    assert status == "1 label found"
    assert worst == "|".join(sorted(("science", "society"), key=lambda name: labels[name]["f1"]))


def test_numbers_of_a_label_with_a_long_path_stay_with_it() -> None:
    """Beside the path they would slide into the row of the next label where the path takes the whole line."""
    style = (Path(report_page.__code__.co_filename).parent / "templates" / "report.css").read_text(encoding="utf-8")
    (rule,) = re.findall(r"\.worst \.figures \{([^}]*)\}", style)
    assert "display: block" in rule
    assert "float" not in rule
