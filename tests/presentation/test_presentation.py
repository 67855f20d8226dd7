"""Pages and plots: well-formed, escaped, self-contained, the same bytes every time."""

from __future__ import annotations

import re

import pytest

from hgclr.presentation import COLOURS, Plot, draw, legend_above, render_page
from support.html import HtmlReader

NASTY = "<b>&\"'"
BASE = "presentation/templates/base.html"


def test_a_page_is_whole_and_escaped() -> None:
    sections = [(f"{NASTY} one", "first"), ("Two", "second")]
    html = render_page(BASE, title=NASTY, sections=sections, lead=NASTY, footer=NASTY, script="let c;")
    page = HtmlReader(html)
    assert html.startswith("<!DOCTYPE html>")
    assert "b" not in page.tags
    assert page.text.count(NASTY) == 6  # title, heading, lead, contents, heading of the section, footer
    targets = {values["href"] for tag, values in page.attributes if tag == "a"}
    assert targets == {f"#{values['id']}" for tag, values in page.attributes if tag == "section"}
    assert "<script>let c;</script>" in html
    assert not re.search(r"https?://|@import|url\(", html)


@pytest.fixture(scope="module")
def plot() -> Plot:
    return make()


def make() -> Plot:
    def fill(figure) -> str:
        axes = figure.subplots()
        axes.plot([1, 2], [3, 4], color=COLOURS[0], label="$a$")
        legend_above(axes, 1)
        return NASTY

    return draw("name", fill, (2, 1))


def test_a_plot_gives_the_same_bytes_every_time(plot: Plot) -> None:
    again = make()
    assert plot == again
    assert set(plot.files()) == {"name.png", "name.svg"}
    assert plot.png.startswith(b"\x89PNG")
    assert b"<svg" in plot.svg
