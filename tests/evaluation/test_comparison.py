"""Comparisons: a better model is found to be better, a model is not better than itself, unequal data are an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgclr.errors import InputError
from hgclr.evaluation.comparison import CHANGES, Comparison, compare, write_comparison
from hgclr.taxonomy import Taxonomy
from support.html import HtmlReader
from support.scored_documents import score, write


@pytest.fixture(scope="module")
def reports(taxonomy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    contents = {
        "base": score(taxonomy, noise=0.4).content(resamples=200),
        "better": score(taxonomy, noise=0.1, model=1).content(resamples=200),
        "alike": score(taxonomy, noise=0.4, model=2).content(resamples=200),
    }
    return {name: write(folder / name, content) for name, content in contents.items()}


@pytest.fixture(scope="module")
def comparison(reports: dict[str, Path]) -> Comparison:
    return compare([reports["base"], reports["better"] / "report.json", reports["alike"]])


def test_a_better_model_is_better(comparison: Comparison) -> None:
    better, alike = comparison.tests
    for name in ("micro_f1", "macro_f1", "hierarchical_f1", "macro_f1_level_3"):
        first, second, third = (content["intervals"][name]["score"] for content in comparison.contents)
        assert better[name].difference == pytest.approx(second - first)
        assert better[name].difference > 0
        assert better[name].p_value == pytest.approx(2 / 201)  # the smallest possible: all resamples agree
        assert alike[name].difference == pytest.approx(third - first)
    assert alike["micro_f1"].p_value > 0.05


def test_a_model_is_no_better_than_itself(reports: dict[str, Path]) -> None:
    itself = compare([reports["base"], reports["base"]])
    assert {test.p_value for test in itself.tests[0].values()} == {1.0}
    assert {test.difference for test in itself.tests[0].values()} == {0.0}
    assert itself.changes(1) == ([], [])
    assert itself.names == (f"1: {reports['base']}", f"2: {reports['base']}")


def test_a_swap_turns_the_sign(reports: dict[str, Path], comparison: Comparison) -> None:
    swapped = compare([reports["better"], reports["base"]])
    test, back = comparison.tests[0]["micro_f1"], swapped.tests[0]["micro_f1"]
    assert (back.difference, back.low, back.high) == pytest.approx((-test.difference, -test.high, -test.low))


def test_labels_that_gain_and_lose(comparison: Comparison) -> None:
    for other in (1, 2):
        changes = {
            one["id"]: (two["f1"] - one["f1"]) * one["gold"]
            for one, two in zip(comparison.contents[0]["labels"], comparison.contents[other]["labels"], strict=True)
        }
        gained, lost = comparison.changes(other)
        up = sorted((label for label in changes if changes[label] > 0), key=lambda label: -changes[label])
        down = sorted((label for label in changes if changes[label] < 0), key=lambda label: changes[label])
        assert [change.id for change in gained] == up[:CHANGES]
        assert [change.id for change in lost] == down[:CHANGES]
    assert comparison.changes(2)[1]  # the models are alike: some labels lose


def test_json_holds_scores_tests_and_labels(comparison: Comparison) -> None:
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert [each["name"] for each in content["reports"]] == ["base", "better", "alike"]
    assert content["scores"]["micro_f1"] == [each["scores"]["micro"]["f1"] for each in comparison.contents]
    assert content["differences_to_first"][0]["micro_f1"]["p_value"] == pytest.approx(2 / 201)
    assert content["labels"][1]["report"] == "alike"
    assert content["labels"][0]["gained"][0]["id"] == comparison.changes(1)[0][0].id


def test_reports_that_do_not_fit_together_are_refused(taxonomy, reports: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((reports["base"] / "report.json").read_text())

    def relabelled(**change: str) -> dict[str, Any]:
        labels = [label | change if label["id"] == "tennis" else label for label in content["labels"]]
        return content | {"labels": labels}

    others = [
        score(taxonomy, 299).content(resamples=200),
        score(taxonomy, noise=0.4).content(resamples=100),
        score(Taxonomy(["a", "c"], [-1, -1]), 300).content(resamples=200),
        relabelled(name="Tennis"),
        relabelled(parent="society"),
        relabelled(id="squash"),
        content | {"labels": content["labels"][::-1]},
        content | {"labels": content["labels"][:-1]},
    ]
    for number, other in enumerate(others):
        with pytest.raises(InputError) as caught:
            compare([reports["base"], write(tmp_path / str(number), other)])
        assert str(number) in str(caught.value)
        assert caught.value.remedy
    with pytest.raises(InputError):
        compare([reports["base"]])


def broken(content: dict[str, Any], **changes: Any) -> str:
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: "{",
        lambda _: "[]",
        lambda content: broken(content, kind="else"),
        lambda content: broken(content, version=9),
        lambda content: json.dumps({key: value for key, value in content.items() if key != "labels"}),
        lambda content: broken(content, decisions=[]),
        lambda content: broken(content, resampled={}),
        lambda content: broken(content, scores={}),
    ],
)
def test_a_broken_report_is_refused(make, reports: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        compare([reports["base"], tmp_path])
    content = json.loads((reports["base"] / "report.json").read_text())
    (tmp_path / "report.json").write_text(make(content))
    with pytest.raises(InputError) as caught:
        compare([reports["base"], tmp_path])
    assert caught.value.remedy


def test_the_page_is_whole_and_escaped(reports: dict[str, Path], tmp_path: Path) -> None:
    named = tmp_path / "<b>one"
    named.mkdir()
    (named / "report.json").write_bytes((reports["base"] / "report.json").read_bytes())
    page = write_comparison(tmp_path / "out", compare([named, reports["better"], reports["alike"]]), command="<i>")
    shown = HtmlReader(page.read_text(encoding="utf-8"))
    assert not shown.fetched
    assert not {"b>one", "i"} & set(shown.tags)
    assert shown.tags.count("section") == 5
    assert "<b>one" in shown.text
    classes = [values.get("class") for _, values in shown.attributes]
    assert "better" in classes
    assert {path.name for path in page.parent.iterdir()} == {
        f"comparison.{kind}" for kind in ("html", "json", "png", "svg")
    }
