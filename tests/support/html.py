"""Pages as a browser reads them."""

from __future__ import annotations

from html.parser import HTMLParser


class HtmlReader(HTMLParser):
    """Tags, attributes and text of a page; fails where tags do not match."""

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

    @property
    def fetched(self) -> list[str]:
        """Addresses that a browser would load."""
        found = []
        for _, values in self.attributes:
            found += [values[name] or "" for name in ("src", "srcset") if name in values]
            found += [values["href"] or ""] if "href" in values else []
        return [address for address in found if not address.startswith(("#", "data:"))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "input", "link"):
            self.open.append(tag)
        self.deepest = max(self.deepest, self.open.count("details"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data
