"""One text: the tree shows its labels, follows the settings and explains labels; errors of the service are shown.

A word gives its label 73 % and the label's ancestors 95 %; see toy_service.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgclr.decisions.decoding import RULES
from support.watched_page import Watched

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

TEXT = "😀 a lens, 𝕏 and the racket"
"""Has characters that are two code units in the browser and one code point for the service."""


def predicted(page: Page) -> list[str]:
    """Return the labels that are lit, in order of the tree on the page."""
    return [name.split(",")[0] for name in names(page) if name.endswith(", predicted")]


def names(page: Page) -> list[str]:
    return page.get_by_role("treeitem").evaluate_all("items => items.map(item => item.ariaLabel)")


def type_text(page: Page, text: str) -> None:
    page.get_by_label("Text to classify").fill(text)


def refuse(times: int, status: int, kind: str, message: str):
    """Return a route that answers ``times`` times with an error, then as the service does."""
    left = iter(range(times))
    error = {"error": {"type": kind, "message": message}}

    def answer(route: Route) -> None:
        if next(left, None) is None:
            route.fallback()
        else:
            route.fulfill(status=status, headers={"Retry-After": "0.1"}, json=error)

    return answer


def test_a_text_lights_up_its_labels(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("toy")
    assert names(page) == ["science", "society"]
    type_text(page, "a lens and a racket")
    expect(page.locator("#summary")).to_have_text("6 labels on 2 paths")
    assert names(page) == [
        "science, 95 %, predicted",
        "physics, 95 %, predicted",
        "optics, 73 %, predicted",
        "1 more labels in science",
        "society, 95 %, predicted",
        "sports, 95 %, predicted",
        "tennis, 73 %, predicted",
        "1 more labels in sports",
        "1 more labels in society",
    ]
    levels = page.get_by_role("treeitem").evaluate_all("items => items.map(item => item.ariaLevel)")
    assert levels == ["1", "2", "3", "2", "1", "2", "3", "3", "2"]
    type_text(page, "   ")
    expect(page.locator("#summary")).to_contain_text("there is no text yet")
    assert predicted(page) == []


def test_a_label_with_two_parents_shows_both_paths(context: BrowserContext, graph_address: str) -> None:
    watched = Watched(context.new_page(), graph_address)
    page = watched.load()
    page.get_by_role("treeitem", name="science").wait_for()
    type_text(page, "lens")
    expect(page.locator("#summary")).to_have_text("5 labels on 1 path")
    optics = page.get_by_role("treeitem", name="optics, 39 %, predicted, also under society, law")
    expect(optics.locator(".also")).to_have_text("also under society › law")
    assert any(name.startswith("law, 39 %, predicted") for name in names(page))
    page.get_by_role("combobox", name="Find a label").fill("optics")
    expect(page.locator("#found-labels .also")).to_have_text("also under society › law")
    found = page.get_by_role("listbox", name="Labels found").get_by_role("option")
    for query, text in (("qc 350", "QC 350"), ("light", "Theory of light"), ("optics", "")):
        page.get_by_role("combobox", name="Find a label").fill(query)
        expect(found).to_have_text(f"optics{text}science › physicsalso under society › law")
    watched.check()


@pytest.mark.slow
def test_the_threshold_moves_the_labels(page: Page, watched: Watched) -> None:
    type_text(page, "lens")
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    slider = page.get_by_label("Threshold")
    for value in ("0.1", "0.02", "0.3", "0.97", "0.06", "0.75", "0.9", "0.05", "0.8"):
        slider.fill(value)
    expect(page.locator("#summary")).to_have_text("2 labels on 1 path")
    page.wait_for_timeout(200)  # an answer to an older question would come now
    assert predicted(page) == ["science", "physics"]
    # Probabilities do not depend on the threshold, so that they were asked for once.
    bodies = [json.loads(request.post_data) for request in watched.sent("predict")]
    assert sum(body.get("probabilities", False) for body in bodies) == 1
    slider.fill("0.96")
    expect(page.locator("#summary")).to_contain_text("No label is probable enough")
    assert names(page)[:3] == [
        "science, 95 %, not predicted",
        "physics, 95 %, not predicted",
        "optics, 73 %, not predicted",
    ]
    page.get_by_role("button", name="Reset").click()
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    page.get_by_label("Abstain below").fill("0.8")
    expect(page.locator("#summary")).to_have_text("2 labels on 1 path, 1 abstained")
    expect(page.get_by_role("treeitem", name="optics, 73 %, abstained")).to_be_visible()


@pytest.mark.slow
def test_every_rule_can_be_chosen(page: Page, classifier) -> None:
    chooser = page.get_by_label("Decoding rule")
    assert chooser.locator("option").evaluate_all("options => options.map(option => option.value)") == list(RULES)
    type_text(page, "lens judge")
    page.get_by_label("Threshold").fill("0.9")
    for rule in RULES:
        chooser.select_option(rule)
        labels = classifier.predict("lens judge", rule=rule, threshold=0.9).labels
        expect(page.get_by_role("treeitem", name=", predicted")).to_have_count(len(labels))
        assert sorted(predicted(page)) == sorted(label.id for label in labels)
    page.get_by_role("button", name="Reset").click()
    chooser.select_option("top-k-paths")
    page.get_by_label("Paths").fill("2")
    expect(page.locator("#summary")).to_have_text("5 labels on 2 paths")


@pytest.mark.slow
def test_siblings_come_on_demand_and_labels_are_found_by_a_part_of_their_name(page: Page) -> None:
    type_text(page, "serve")
    page.get_by_role("treeitem", name="1 more labels in sports").click()
    expect(page.get_by_role("treeitem", name="rowing, 8 %, not predicted")).to_be_focused()
    page.get_by_role("treeitem", name="sports").locator("[data-fold]").click()
    expect(page.get_by_role("treeitem", name="tennis")).to_have_count(0)
    box = page.get_by_role("combobox", name="Find a label")
    box.fill("ow")
    found = page.get_by_role("listbox", name="Labels found").get_by_role("option")
    expect(found).to_have_text("rowingsociety › sports")
    box.press("Enter")
    expect(page.get_by_role("treeitem", name="rowing")).to_be_focused()
    box.fill("nothing like it")
    expect(found).to_have_attribute("aria-disabled", "true")
    box.press("Escape")
    expect(found).to_have_count(0)


@pytest.mark.slow
def test_the_words_that_carry_a_label_are_marked_in_the_text(page: Page) -> None:
    type_text(page, TEXT)
    page.get_by_role("treeitem", name="optics").click()
    why = page.get_by_role("region", name="Why optics?")
    # Leaving a word out changes the label's logit only if it is the label's own.
    expect(why.locator("#why-words mark")).to_have_text(["lens"])
    assert page.locator("#why-words").inner_text() == TEXT
    expect(page.get_by_role("treeitem", name="optics")).to_have_attribute("aria-selected", "true")
    # The words alone still say 73 %; without them there is nothing left but the bias, 5 %.
    expect(why).to_contain_text("With the underlined words alone the label has 73 %")
    expect(why).to_contain_text("without them 5 %")
    page.get_by_role("treeitem", name="tennis").click()
    expect(page.get_by_role("region", name="Why tennis?").locator("#why-words mark")).to_have_text(["racket"])
    page.get_by_role("button", name="Close").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#why")).to_be_hidden()
    expect(page.get_by_role("treeitem", name="tennis")).to_be_focused()
    page.get_by_role("treeitem", name="optics").click()
    expect(page.locator("#why")).to_be_visible()
    type_text(page, "the lens")
    expect(page.locator("#why")).to_be_hidden()


@pytest.mark.slow
def test_words_against_a_label_are_marked_and_a_refusal_is_shown(page: Page) -> None:
    def answer(route) -> None:
        """Answer as the service would for a text of three words, one of which speaks against the label."""
        fields = route.fetch().json()
        fields["words"] = [
            {"word": word, "start": start, "stop": start + len(word)}
            for word, start in (("lens", 0), ("of", 5), ("law", 8))
        ]
        fields["labels"][0] |= {"relevance": [2.0, 0.01, -1.0], "kept": [0]}
        fields["words_not_read"] = 1
        route.fulfill(json=fields)

    page.route("**/explain", answer)
    type_text(page, "lens of law unread")
    page.get_by_role("treeitem", name="optics").click()
    expect(page.locator("#why-words mark.kept")).to_have_text(["lens"])
    expect(page.locator("#why-words mark.against")).to_have_text(["law"])
    expect(page.locator("#why-words mark")).to_have_count(2)
    expect(page.locator("#why-note")).to_contain_text("1 word at the end is not read by the model.")
    page.unroute("**/explain")
    page.route("**/explain", refuse(1, 500, "internal", "something went wrong here"))
    page.get_by_role("treeitem", name="physics").click()
    expect(page.locator("#why-note")).to_have_text("Something went wrong here.")


@pytest.mark.slow
def test_a_busy_service_is_asked_again_and_an_error_can_be_tried_again(page: Page, watched: Watched) -> None:
    page.route("**/predict", refuse(2, 429, "overloaded", "1024 texts wait"))
    type_text(page, "lens")
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    assert len(watched.sent("predict")) == 3
    page.unroute("**/predict")
    page.route("**/predict", refuse(1, 500, "internal", "something went wrong here"))
    type_text(page, "lens racket")
    expect(page.get_by_role("alert")).to_contain_text("Something went wrong here.")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#summary")).to_have_text("6 labels on 2 paths")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.route("**/predict", lambda route: route.fulfill(status=502, body="<html>Bad gateway</html>"))
    type_text(page, "racket")
    expect(page.get_by_role("alert")).to_contain_text("The service answered with status 502.")


@pytest.mark.slow
def test_without_a_network_the_page_says_so_and_comes_back(page: Page) -> None:
    page.context.set_offline(True)
    type_text(page, "lens")
    expect(page.locator("#summary")).to_contain_text("The service does not answer. Trying again in")
    page.context.set_offline(False)  # the browser tells the page
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")


@pytest.mark.slow
def test_the_page_waits_for_the_model_and_gives_up_on_a_service_that_is_gone(watched: Watched) -> None:
    """With a simulated clock: the pauses add up to seven seconds."""
    page = watched.page
    page.clock.install()
    page.route("**/model", lambda route: route.abort())
    watched.load()
    for _ in range(12):
        page.clock.run_for(1500)
        page.wait_for_timeout(30)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer.")
    assert len(watched.sent("model")) == 4
    page.unroute("**/model")
    page.route("**/model", refuse(1, 503, "not_ready", "the service is warming up"))
    page.get_by_role("button", name="Try again").click()
    for _ in range(4):
        page.clock.run_for(500)
        page.wait_for_timeout(30)
    expect(page.get_by_role("treeitem", name="science")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
