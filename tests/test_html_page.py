"""Pages: well-formed, escaped, with nothing from outside."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from html.parser import HTMLParser

import pytest

from hgclr.presentation import Html, Section, facts, folding_tree, notice, page, picture, table, tiles

NASTY = "<b>&\"'"


class Reader(HTMLParser):
    """Keep tags, attributes and text, and complain about tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.deepest = 0
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.deepest = max(self.deepest, self.open.count("details"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def png(width: int, height: int) -> bytes:
    """Return a white picture, built by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_whole_page() -> None:
    sections = [Section(f"{NASTY} one", Html("<p>first</p>")), Section("Two", Html("<p>second</p>"))]
    html = page(NASTY, sections, lead=NASTY, footer=NASTY)
    reader = Reader(html)
    assert html.startswith("<!DOCTYPE html>")
    assert "b" not in reader.tags
    assert reader.text.count(NASTY) == 6  # name, heading, lead, contents, heading of the section, footer
    targets = {values["href"] for tag, values in reader.attributes if tag == "a"}
    assert targets == {f"#{values['id']}" for tag, values in reader.attributes if tag == "section"}
    assert "prefers-color-scheme: dark" in html
    assert not re.search(r"https?://|@import|url\(", html)


def test_parts_escape_text_but_not_html() -> None:
    for part in (
        tiles([(NASTY, NASTY)]),
        facts([(NASTY, NASTY)]),
        table([NASTY, "n"], [[NASTY, NASTY]], caption=NASTY),
        notice("warning", NASTY, NASTY),
        folding_tree([(0, NASTY), (1, NASTY)]),
    ):
        reader = Reader(part)
        assert reader.text.count(NASTY) >= 2
        assert NASTY not in part
    assert "<i>kept</i>" in table(["x"], [[Html("<i>kept</i>")]])


def test_table_aligns_numbers_right() -> None:
    reader = Reader(table(["name", "where", "n"], [["a", "b", "1"]], text_columns=2))
    cells = [values.get("class") for tag, values in reader.attributes if tag in ("th", "td")]
    assert cells == [None, None, "number", None, None, "number"]


def test_picture_is_inside_the_page_at_half_its_size() -> None:
    content = png(40, 20)
    reader = Reader(picture(content, alt=NASTY, caption="below"))
    (image,) = (values for tag, values in reader.attributes if tag == "img")
    assert (image["width"], image["height"], image["alt"]) == ("20", "10", NASTY)
    source = image["src"]
    assert source is not None
    head, _, data = source.partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == content
    assert reader.text == "below"
    assert 'src="data:image/svg+xml;base64,' in picture(b"<svg/>", alt="", kind="svg")


@pytest.mark.parametrize("unfolded", [0, 1])
def test_folding_tree_nests_as_depths_say(unfolded: int) -> None:
    nodes = [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e"), (0, "f"), (1, "g")]
    html = folding_tree(nodes, unfolded=unfolded)
    reader = Reader(html)
    assert reader.tags.count("summary") == 3  # a, b, f have something below them
    assert reader.tags.count("div") == 4
    assert reader.deepest == 2
    assert html.count("<details open>") == (2 if unfolded else 0)
    assert [word for word in reader.text.split() if word] == list("abcdefg")


def test_folding_tree_of_nothing_and_of_great_depth() -> None:
    assert folding_tree([]) == ""
    assert Reader(folding_tree([(depth, "x") for depth in range(3000)])).deepest == 2999
