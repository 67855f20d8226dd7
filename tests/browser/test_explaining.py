"""Click a label: the words that carry it are marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEXT = "😀 a lens, 𝕏 and the racket"
"""Characters that are two places of a string in the browser and one for the service."""


@pytest.fixture
def explained(page: Page) -> Page:
    """The page with the words of ``optics`` marked."""
    page.get_by_label("Text to classify").fill(TEXT)
    page.get_by_role("treeitem", name="optics").click()
    page.locator("#why-words mark").first.wait_for()
    return page


@pytest.mark.slow
def test_the_words_that_carry_a_label_are_marked_in_the_text(explained: Page) -> None:
    why = explained.get_by_role("region", name="Why optics?")
    assert explained.locator("#why-words").inner_text() == TEXT
    # Leaving a word out changes the label's logit only if it is the label's own.
    expect(why.locator("#why-words mark")).to_have_text(["lens"])
    expect(explained.get_by_role("treeitem", name="optics")).to_have_attribute("aria-selected", "true")
    # The words alone still say 73 %; without them there is nothing left but the bias, 5 %.
    expect(why).to_contain_text("With the underlined words alone the label has 73 %")
    expect(why).to_contain_text("without them 5 %")
    expect(explained.get_by_role("status")).to_contain_text("Words that carry optics: lens.")


@pytest.mark.slow
def test_another_label_has_other_words(explained: Page) -> None:
    explained.get_by_role("treeitem", name="tennis").click()
    why = explained.get_by_role("region", name="Why tennis?")
    expect(why.locator("#why-words mark")).to_have_text(["racket"])


@pytest.mark.slow
def test_escape_closes_and_goes_back_to_the_label(explained: Page) -> None:
    explained.get_by_role("button", name="Close").focus()
    explained.keyboard.press("Escape")
    expect(explained.get_by_role("region", name="Why optics?")).to_be_hidden()
    expect(explained.get_by_role("treeitem", name="optics")).to_be_focused()


@pytest.mark.slow
def test_another_text_closes_it(explained: Page) -> None:
    explained.get_by_label("Text to classify").fill("the lens")
    expect(explained.get_by_role("region", name="Why optics?")).to_be_hidden()
    expect(explained.get_by_role("treeitem", name="optics")).to_have_attribute("aria-selected", "false")


@pytest.mark.slow
def test_what_speaks_against_a_label_is_marked_otherwise(page: Page) -> None:
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
    page.get_by_label("Text to classify").fill("lens of law unread")
    page.get_by_role("treeitem", name="optics").click()
    expect(page.locator("#why-words mark.kept")).to_have_text(["lens"])
    expect(page.locator("#why-words mark.against")).to_have_text(["law"])
    expect(page.locator("#why-words mark")).to_have_count(2)
    expect(page.locator("#why-note")).to_contain_text("1 word at the end is not read by the model.")


@pytest.mark.slow
def test_a_refusal_is_said_in_the_panel(page: Page) -> None:
    error = {"error": {"type": "internal", "message": "something went wrong here"}}
    page.route("**/explain", lambda route: route.fulfill(status=500, json=error))
    page.get_by_label("Text to classify").fill("lens")
    page.get_by_role("treeitem", name="optics").click()
    expect(page.locator("#why-note")).to_have_text("Something went wrong here.")
