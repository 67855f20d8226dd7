"""Keyboard, screen reader, dark and narrow screens, trees of any size, names that look like markup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hgclr.taxonomy import Taxonomy
from support.toy_service import make_classifier, serving

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "<img src=x onerror=alert(1)>"
BRANCHES, LEAVES = 31, 999


def focused(page: Page) -> str:
    """Return the id of what has the focus, or what it is called."""
    return page.evaluate(
        "document.activeElement.id || document.activeElement.ariaLabel || document.activeElement.textContent"
    )


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    press = page.keyboard.press
    press("Tab")
    assert focused(page) == "Skip to the text"
    press("Enter")
    assert focused(page) == "text"
    page.keyboard.type("lens serve")
    expect(page.locator("#summary")).to_have_text("6 labels on 2 paths")
    for name in ("rule", "threshold", "abstain_below", "find", "science, 95 %, predicted"):
        press("Tab")
        assert focused(page) == name
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", name
    for key, name in (
        ("ArrowDown", "physics"),
        ("ArrowRight", "optics"),  # an open branch: its first child
        ("ArrowLeft", "physics"),  # a leaf: its parent
        ("End", "1 more labels in society"),
        ("Home", "science"),
        ("t", "tennis"),  # by its first letter
        ("ArrowUp", "sports"),
    ):
        press(key)
        expect(page.get_by_role("treeitem", name=re.compile(f"^{name}"))).to_be_focused()
    press("ArrowLeft")
    expect(page.get_by_role("treeitem", name="sports")).to_have_attribute("aria-expanded", "false")
    press("ArrowRight")
    expect(page.get_by_role("treeitem", name="sports")).to_have_attribute("aria-expanded", "true")
    press("Enter")
    expect(page.get_by_role("region", name="Why sports?")).to_be_visible()
    expect(page.locator("#why-words mark")).to_have_text(["serve"])
    page.get_by_role("slider", name="Threshold").focus()
    for _ in range(3):
        press("PageUp")
    expect(page.locator("#summary")).to_have_text("4 labels on 2 paths")  # 80 %
    page.get_by_role("tab", name="A text").focus()
    press("ArrowRight")
    expect(page.get_by_role("tab", name="A file")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="A file")).to_be_visible()


def test_on_a_phone_the_answer_comes_right_after_the_text(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_label("Text to classify").fill("lens")
    boxes = [page.locator(place).bounding_box() for place in ("#text-panel", "#tree-panel", "#controls")]
    assert [box["y"] for box in boxes] == sorted(box["y"] for box in boxes)
    expect(page.get_by_role("treeitem", name="optics")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_label("Text to classify").focus()
    for name in ("find", "science, 95 %, predicted", "rule"):  # the order of the Tab key is the same
        page.keyboard.press("Tab")
        assert focused(page) == name
    page.get_by_role("tab", name="A file").click()
    row = {"name": "mine.txt", "mimeType": "text/plain", "buffer": b"lens " * 60 + b"\nprism"}
    page.get_by_label("Choose a file").set_input_files(row)
    page.get_by_role("button", name="Label the file").click()
    expect(page.get_by_role("region", name="Review")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1200, "height": 900})
    tops = [page.locator(place).bounding_box()["y"] for place in ("#controls", "#rows-panel")]
    assert tops == sorted(tops)


def test_every_control_has_a_name_and_the_page_its_landmarks(page: Page) -> None:
    for role in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)
    for role, name in (
        ("textbox", "Text to classify"),
        ("combobox", "Decoding rule"),
        ("combobox", "Find a label"),
        ("slider", "Threshold"),
        ("slider", "Abstain below"),
        ("tree", "Label tree"),
        ("form", "Decisions"),
        ("button", "Dark"),
    ):
        expect(page.get_by_role(role, name=name)).to_have_count(1)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button:not(select button)")]
          .filter((control) => !control.labels?.length && !control.textContent.trim())
          .map((control) => control.outerHTML)"""
    )
    assert nameless == []
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.get_by_label("Text to classify").fill("lens")
    # The live region says the result once it has settled.
    expect(page.locator("[aria-live=polite]")).to_have_text("3 labels on 1 path; science, physics, optics, 73 %")
    expect(page.get_by_role("slider", name="Threshold")).to_have_attribute("aria-valuetext", "50 %")


def contrast(page: Page, selector: str) -> float:
    """Return the contrast of an element's text with what is behind it, by the formula of WCAG 2."""
    return page.evaluate(
        """(selector) => {
          const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const channels = (color) => {
            canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
          };
          const luminance = ([r, g, b]) => [r, g, b].map((value) => value / 255)
            .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
            .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
          const element = document.querySelector(selector);
          let behind = element;
          while (channels(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
          const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
            .map((color) => luminance(channels(color))).sort((x, y) => y - x);
          return (a + 0.05) / (b + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.get_by_label("Text to classify").fill("lens")
    expect(page.get_by_role("treeitem", name="optics")).to_be_visible()
    for selector in ("#text", "#model-facts", "#summary", "#rule-line", "#reset", ".tree li", ".tree .more", "#theme"):
        assert contrast(page, selector) >= 4.5, selector


def test_a_tree_of_31000_labels_stays_quick_and_its_names_are_data(browser: Browser) -> None:
    ids = [f"B{branch:02}" for branch in range(BRANCHES)]
    parents = [-1] * BRANCHES
    for branch in range(BRANCHES):
        ids += [f"B{branch:02}.{leaf:03}" for leaf in range(LEAVES)]
        parents += [branch] * LEAVES
    names = [HOSTILE if name == "B30.500" else f"label {name}" for name in ids]
    weights = {"wrist": {"B30": 6.0, "B30.500": 4.0}}
    classifier = make_classifier(Taxonomy(ids, parents, names), weights)
    with serving(classifier, name=HOSTILE) as address:
        page = browser.new_page()
        page.on("dialog", lambda dialog: pytest.fail(f"a name ran as a program: {dialog.message}"))
        page.goto(address)
        rows = page.get_by_role("treeitem")
        expect(rows).to_have_count(21)  # 20 branches, and the row for more of them
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
        page.get_by_label("Text to classify").fill("a broken wrist")
        lit = page.get_by_role("treeitem", name=f"{HOSTILE}, 73 %, predicted")
        expect(lit).to_be_visible()
        expect(rows).to_have_count(4)
        lit.click()
        expect(page.locator("#why-words mark")).to_have_text(["wrist"])
        box = page.get_by_role("combobox", name="Find a label")
        box.fill("b07.123")
        box.press("Enter")
        expect(page.get_by_role("treeitem", name="label B07.123, 5 %, not predicted")).to_be_focused()
        page.get_by_label("Threshold").fill("0")  # gives all of them
        expect(page.locator("#summary")).to_have_text("31,000 labels on 30,969 paths")
        assert rows.count() < 300
        page.close()
