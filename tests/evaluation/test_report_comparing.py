"""Comparisons: a better model is found to be better, a model is no better than itself, and no apples with pears."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgclr.errors import InputError
from hgclr.evaluation.comparison import CHANGES, Comparison, compare, level_lines, score_lines
from hgclr.evaluation.report import HEADLINES, decision_facts, shown_difference
from hgclr.taxonomy import Taxonomy
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
        assert better[name].p_value == pytest.approx(2 / 201)  # not one resample says otherwise
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


def test_lines_of_a_table(comparison: Comparison) -> None:
    lines = {line.name: line for line in score_lines(comparison)}
    assert list(lines) == [headline.name for headline in HEADLINES]
    first, second = (100 * content["scores"]["micro"]["f1"] for content in comparison.contents[:2])
    better, alike = lines["Micro-F1"].others
    assert lines["Micro-F1"].first == f"{first:.2f}"
    assert (better.value, better.difference) == (f"{second:.2f}", f"+{second - first:.2f}")
    assert (better.verdict, better.p_value) == ("better", "0.010")
    assert alike.verdict is None
    assert lines["Precision"].others[0].p_value == ""
    assert [line.name for line in level_lines(comparison)][:3] == [
        "level 1, Micro-F1",
        "level 1, Macro-F1",
        "level 2, Micro-F1",
    ]


@pytest.mark.parametrize(("difference", "text"), [(0.0123, "+1.23"), (-0.0123, "−1.23"), (-1e-9, "0.00"), (0, "0.00")])
def test_differences_have_a_sign(difference: float, text: str) -> None:
    assert shown_difference(difference) == text


def test_json_holds_scores_tests_and_labels(comparison: Comparison) -> None:
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert [each["name"] for each in content["reports"]] == ["base", "better", "alike"]
    assert content["scores"]["micro_f1"] == [each["scores"]["micro"]["f1"] for each in comparison.contents]
    assert content["differences_to_first"][0]["micro_f1"]["p_value"] == pytest.approx(2 / 201)
    assert content["labels"][1]["report"] == "alike"
    assert content["labels"][0]["gained"][0]["id"] == comparison.changes(1)[0][0].id


def test_reports_of_other_documents_are_refused(taxonomy, reports: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other", score(taxonomy, 299).content(resamples=200))
    with pytest.raises(
        InputError, match=r"not made from the same documents in the same order \(.*300; .*299\); evaluate"
    ):
        compare([reports["base"], other])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tennis": {"name": "Tennis"}}, "'tennis' has another name or parent"),
        ({"tennis": {"parent": "society"}}, "'tennis' has another name or parent"),
        ({"tennis": {"id": "squash"}}, "'tennis' is only in the first"),
        (None, "the labels come in another order"),
    ],
)
def test_other_label_trees_are_refused(change, message: str, reports: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((reports["base"] / "report.json").read_text())
    if change is None:
        content["labels"].reverse()
    else:
        content["labels"] = [label | change.get(label["id"], {}) for label in content["labels"]]
    with pytest.raises(InputError, match=f"have different label trees: {message}"):
        compare([reports["base"], write(tmp_path / "other", content)])


def test_a_tree_with_more_labels_is_refused(tmp_path: Path) -> None:
    small, large = Taxonomy(["a", "c"], [-1, -1]), Taxonomy(["a", "c", "b"], [-1, -1, -1])
    folders = [write(tmp_path / str(len(tree)), score(tree, 5).content(resamples=5)) for tree in (small, large)]
    with pytest.raises(InputError, match="'b' is only in the second"):
        compare(folders)


def test_other_resamples_are_refused(taxonomy, reports: dict[str, Path], tmp_path: Path) -> None:
    fewer = write(tmp_path / "fewer", score(taxonomy, noise=0.4).content(resamples=100))
    with pytest.raises(InputError, match="have different resamples: 200 of seed 0 and 100 of seed 0; write both"):
        compare([reports["base"], fewer])


def test_reports_with_the_keys_of_version_0_1_can_be_compared(reports: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((reports["base"] / "report.json").read_text())
    former = {"abstain_below": "sure", "allow_inner_nodes": "stop_inside", "provenance": "found"}
    content["decisions"] = {former.get(key, key): value for key, value in content["decisions"].items()}
    comparison = compare([reports["base"], write(tmp_path / "old", content)])
    assert decision_facts(comparison.contents[1]) == decision_facts(comparison.contents[0])


def test_one_report_is_no_comparison(reports: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="a comparison needs two reports or more"):
        compare([reports["base"]])


def broken(content: dict[str, Any], **changes: Any) -> str:
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: "{", "report.json: broken: Expecting property name"),
        (lambda _: "[]", "report.json: not a report; give a folder that hgclr evaluate --output wrote"),
        (lambda content: broken(content, kind="else"), "report.json: not a report"),
        (
            lambda content: broken(content, version=9),
            "a report of version 9, where 1 is needed; evaluate the model anew",
        ),
        (
            lambda content: json.dumps({key: value for key, value in content.items() if key != "labels"}),
            "report.json: broken: 'labels' is missing",
        ),
        (lambda content: broken(content, resampled={}), "these are not resampled scores"),
    ],
)
def test_what_is_no_report_is_named(make, message: str, reports: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((reports["base"] / "report.json").read_text())
    (tmp_path / "report.json").write_text(make(content))
    with pytest.raises(InputError, match=message):
        compare([reports["base"], tmp_path])


def test_a_missing_report_is_named(reports: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no report: No such file or directory; give a folder"):
        compare([reports["base"], tmp_path / "nowhere"])
