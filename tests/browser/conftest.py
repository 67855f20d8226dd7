"""The page in a real browser, on a real service over a toy model; every test fails on errors in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy
from support.toy_service import make_classifier, serving, word_weights
from support.watched_page import Watched, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WORDS = {"optics": "lens prism", "chemistry": "acid salt", "law": "court judge", "tennis": "racket serve"}
NAMES = (("codes", "QC 350", ""), ("alternatives", ["Theory of light"], []))


@pytest.fixture(scope="session")
def classifier(taxonomy: Taxonomy) -> HierarchicalClassifier:
    return make_classifier(taxonomy, word_weights(taxonomy, WORDS))


@pytest.fixture(scope="module")
def address(classifier: HierarchicalClassifier) -> Iterator[str]:
    with serving(classifier, name="toy", texts_per_request=8, characters_per_text=400) as address:
        yield address


@pytest.fixture(scope="module")
def graph_address(taxonomy: Taxonomy) -> Iterator[str]:
    """A service over a tree in which optics is below physics and below law, and has a code and an alternative name."""
    further: list[tuple[int, ...]] = [()] * len(taxonomy)
    further[taxonomy.resolve("optics")] = (taxonomy.resolve("law"),)
    named = {key: [value if label == "optics" else empty for label in taxonomy.ids] for key, value, empty in NAMES}
    graph = Taxonomy(**taxonomy.arguments() | {"more_parents": further} | named)
    with serving(make_classifier(graph, word_weights(taxonomy, WORDS), rule="closure"), name="graph") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser, for one file of tests: while playwright is at work, no other test in the process can run a loop."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture
def watched(context: BrowserContext, address: str) -> Iterator[Watched]:
    """The page before it is loaded."""
    watched = Watched(context.new_page(), address)
    yield watched
    watched.check()


@pytest.fixture
def page(watched: Watched) -> Page:
    """The page, with its tree."""
    page = watched.load()
    page.get_by_role("treeitem", name="science").wait_for()
    return page
