"""A browser, and a page of it, under the strictest policy, with what it did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, Route

STRICT = "default-src 'self'"
"""The policy that the page must work under, whatever the service's own allows."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium; skip the test where it or playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as started:
        playwright.expect.set_options(timeout=60_000)  # on a busy machine, with other tests beside these
        # Test machines often run as root in a container, where Chromium's sandbox cannot start, and without a network.
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", *quiet])
        yield browser
        browser.close()


class Watched:
    """A page, and what it did."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.requests: list[Request] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("response", self._response)
        page.on("console", self._console)
        page.route(f"{address}/", _strictly)

    def load(self) -> Page:
        """Load the page under the strictest policy."""
        self.page.goto(f"{self.address}/")
        return self.page

    def sent(self, path: str) -> list[Request]:
        """Return the requests to an endpoint."""
        return [request for request in self.requests if request.url == f"{self.address}/{path}"]

    def check(self) -> None:
        """Nothing went wrong, and nothing came from elsewhere."""
        assert self.problems == []
        assert {request.url.split("/")[2] for request in self.requests} == {self.address.removeprefix("http://")}

    def _response(self, response: Response) -> None:
        if response.status == 404:  # a file of the page that is not there
            self.problems.append(response.url)

    def _console(self, message: ConsoleMessage) -> None:
        # That the service refuses a request is what some tests are about; the browser reports it, and only that.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.problems.append(message.text)


def _strictly(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, headers=answer.headers | {"content-security-policy": STRICT})
