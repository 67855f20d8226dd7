"""Loading, busy, broken, offline: what the page says, and that it goes on when it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.watched_page import Watched

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


def refuse(status: int, kind: str, message: str):
    answer = {
        "status": status,
        "headers": {"Retry-After": "0.1"},
        "json": {"error": {"type": kind, "message": message}},
    }
    return lambda route: route.fulfill(**answer)


def test_a_busy_service_is_asked_again(page: Page, watched: Watched) -> None:
    times = iter(range(2))

    def busy(route: Route) -> None:
        if next(times, None) is None:
            route.fallback()
        else:
            refuse(429, "overloaded", "1024 texts wait")(route)

    page.route("**/predict", busy)
    page.get_by_label("Text to classify").fill("lens")
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    assert len(watched.sent("predict")) == 3
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_error_is_shown_and_can_be_tried_again(page: Page) -> None:
    page.route("**/predict", refuse(500, "internal", "something went wrong here"))
    page.get_by_label("Text to classify").fill("lens")
    expect(page.get_by_role("alert")).to_contain_text("Something went wrong here.")
    page.unroute("**/predict")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_answer_that_is_no_json_is_an_error_too(page: Page) -> None:
    page.route("**/predict", lambda route: route.fulfill(status=502, body="<html>Bad gateway</html>"))
    page.get_by_label("Text to classify").fill("lens")
    expect(page.get_by_role("alert")).to_contain_text("The service answered with status 502.")


def test_without_a_network_the_page_says_so_and_comes_back(page: Page) -> None:
    page.context.set_offline(True)
    page.get_by_label("Text to classify").fill("lens")
    expect(page.locator("#summary")).to_contain_text("The service does not answer. Trying again in")
    page.context.set_offline(False)  # the browser tells the page
    expect(page.locator("#summary")).to_have_text("3 labels on 1 path")


def test_a_service_that_is_gone_is_given_up_after_some_attempts(watched: Watched, context) -> None:
    """On a clock of the test's own: the pauses add up to seven seconds."""
    page = watched.page
    page.clock.install()
    page.route("**/model", lambda route: route.abort())
    watched.load()
    for _ in range(12):
        page.clock.run_for(1500)
        page.wait_for_timeout(30)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer.")
    assert len(watched.sent("model")) == 4
    expect(page.locator("#summary")).to_have_text("The label tree could not be loaded.")
    page.unroute("**/model")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("treeitem", name="science")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_while_the_model_is_loading_the_page_waits(watched: Watched) -> None:
    times = iter(range(2))

    def warming(route: Route) -> None:
        if next(times, None) is None:
            route.fallback()
        else:
            refuse(503, "not_ready", "the service is warming up")(route)

    watched.page.route("**/model", warming)
    page = watched.load()
    expect(page.get_by_role("tree")).not_to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("heading", level=1)).to_have_text("toy")
