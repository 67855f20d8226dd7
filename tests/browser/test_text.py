"""One text: the tree lights up, and follows threshold, rule and abstaining.

A word gives its label 73 %, those above it 95 %; see toy_service.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgclr.decisions.decoding import RULES
from support.watched_page import Watched

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


def given(page: Page) -> list[str]:
    """Return the labels that are lit, in order of the tree on the page."""
    return [name.split(",")[0] for name in names(page) if name.endswith(", given")]


def names(page: Page) -> list[str]:
    return page.get_by_role("treeitem").evaluate_all("items => items.map(item => item.ariaLabel)")


def type_text(page: Page, text: str) -> None:
    page.get_by_label("Text to classify").fill(text)


def test_the_tree_lights_up_path_by_path(page: Page) -> None:
    type_text(page, "a lens and a racket")
    expect(page.locator("#summary")).to_have_text("6 labels on 2 paths")
    assert names(page) == [
        "science, 95 %, given",
        "physics, 95 %, given",
        "optics, 73 %, given",
        "1 more labels in science",
        "society, 95 %, given",
        "sports, 95 %, given",
        "tennis, 73 %, given",
        "1 more labels in sports",
        "1 more labels in society",
    ]
    levels = page.get_by_role("treeitem").evaluate_all("items => items.map(item => item.ariaLevel)")
    assert levels == ["1", "2", "3", "2", "1", "2", "3", "3", "2"]


def test_the_header_introduces_the_model(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("toy")
    expect(page.get_by_role("banner")).to_contain_text("9 labels · 3 levels")
    expect(page.get_by_role("banner")).to_contain_text("decides by threshold, at 50 %")


def test_without_a_text_nothing_is_lit_and_the_tree_can_be_opened(page: Page) -> None:
    assert names(page) == ["science", "society"]
    page.get_by_role("treeitem", name="science").click()
    assert names(page) == ["science", "chemistry", "physics", "society"]
    type_text(page, "lens")
    expect(page.locator("#summary")).to_contain_text("3 labels")
    type_text(page, "   ")
    expect(page.locator("#summary")).to_contain_text("there is no text yet")
    assert given(page) == []


def test_the_threshold_moves_the_labels(page: Page) -> None:
    type_text(page, "lens")
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    page.get_by_label("Threshold").fill("0.8")
    expect(page.locator("#summary")).to_have_text("2 labels on 1 path")
    assert given(page) == ["science", "physics"]
    page.get_by_label("Threshold").fill("0.96")
    expect(page.locator("#summary")).to_contain_text("No label is probable enough")
    assert names(page)[:3] == ["science, 95 %, not given", "physics, 95 %, not given", "optics, 73 %, not given"]
    page.get_by_role("button", name="As the model decides").click()
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")


def test_dragging_ends_at_the_service_s_answer_to_the_last_threshold(page: Page, watched: Watched, classifier) -> None:
    type_text(page, "lens racket acid")
    expect(page.locator("#summary")).to_contain_text("labels on")
    slider = page.get_by_label("Threshold")
    for value in ("0.1", "0.02", "0.3", "0.97", "0.06", "0.75", "0.9", "0.05", "0.8"):
        slider.fill(value)
    labels = classifier.predict(["lens racket acid"], threshold=0.8)[0].labels
    expect(page.locator("#summary")).to_contain_text(f"{len(labels)} labels on")
    page.wait_for_timeout(200)  # an answer to an older question would come now
    assert sorted(given(page)) == sorted(label.id for label in labels)
    # Probabilities do not depend on the threshold, so that they were asked for once.
    bodies = [json.loads(request.post_data) for request in watched.sent("predict")]
    assert sum(body.get("probabilities", False) for body in bodies) == 1


def test_every_rule_can_be_chosen_and_explains_itself(page: Page, classifier) -> None:
    chooser = page.get_by_label("Decoding rule")
    assert chooser.locator("option").evaluate_all("options => options.map(option => option.value)") == list(RULES)
    type_text(page, "lens judge")
    page.get_by_label("Threshold").fill("0.9")
    lines = set()
    for rule in RULES:
        chooser.select_option(rule)
        labels = classifier.predict(["lens judge"], rule=rule, threshold=0.9)[0].labels
        expect(page.get_by_role("treeitem", name=", given")).to_have_count(len(labels))
        assert sorted(given(page)) == sorted(label.id for label in labels)
        line = page.locator("#rule-line").inner_text()
        assert chooser.locator(f"option[value={rule}]").text_content() == f"{rule} — {line}"
        lines.add(line)
    assert len(lines) == len(RULES)


def test_rules_that_differ_show_it(page: Page) -> None:
    """One path has no room for ``law``."""
    type_text(page, "lens judge")
    page.get_by_label("Decoding rule").select_option("best-path")
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    expect(page.get_by_label("Paths")).to_be_hidden()
    page.get_by_label("Decoding rule").select_option("top-k-paths")
    page.get_by_label("Paths").fill("2")
    expect(page.locator("#summary")).to_have_text("5 labels on 2 paths")


def test_labels_abstained_from_are_shown_as_such(page: Page) -> None:
    type_text(page, "lens")
    page.get_by_label("Abstain below").fill("0.8")
    expect(page.locator("#summary")).to_have_text("2 labels on 1 path, 1 abstained")
    expect(page.get_by_role("treeitem", name="optics, 73 %, abstained")).to_be_visible()


def test_siblings_come_on_demand(page: Page) -> None:
    type_text(page, "serve")
    page.get_by_role("treeitem", name="1 more labels in sports").click()
    expect(page.get_by_role("treeitem", name="rowing, 8 %, not given")).to_be_focused()
    page.get_by_role("treeitem", name="sports").locator("[data-fold]").click()
    expect(page.get_by_role("treeitem", name="tennis")).to_have_count(0)
    expect(page.get_by_role("treeitem", name="sports")).to_have_attribute("aria-expanded", "false")


def test_a_label_is_found_by_a_part_of_its_name(page: Page) -> None:
    box = page.get_by_role("combobox", name="Find a label")
    box.fill("ow")
    found = page.get_by_role("listbox", name="Labels found").get_by_role("option")
    expect(found).to_have_text("rowingsociety › sports")
    box.press("Enter")
    expect(page.get_by_role("treeitem", name="rowing")).to_be_focused()
    expect(box).to_have_value("")
    box.fill("nothing like it")
    expect(found).to_have_text("No label has this in its name")
    box.press("Escape")
    expect(found).to_have_count(0)


def test_a_long_text_says_what_of_it_counts(page: Page) -> None:
    type_text(page, "x " * 100)  # the toy model reads 64 tokens
    expect(page.locator("#text-note")).to_contain_text("only the first 64 tokens count")
    type_text(page, "😀" * 399)  # two places of a string each in the browser, one for the service
    expect(page.locator("#text-note")).to_have_text("399 of at most 400 characters.")
    expect(page.get_by_role("alert")).to_be_hidden()
    type_text(page, "x" * 401)
    expect(page.get_by_role("alert")).to_contain_text("The text has 401 characters, more than 400.")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()  # it would be refused again
