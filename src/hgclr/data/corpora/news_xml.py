"""Read one news item in XML: NITF (the New York Times) and NewsML (Reuters)."""

from __future__ import annotations

import re
from html.entities import name2codepoint
from xml.etree.ElementTree import Element, ParseError, XMLParser

__all__ = ["BrokenXml", "paragraphs", "parse"]

ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
KNOWN = {b"amp", b"lt", b"gt", b"quot", b"apos"}
"""What XML itself defines."""


class BrokenXml(ValueError):  # noqa: N818 - never leaves this package: it becomes a document left out
    """A file that is no XML that we would read."""


def parse(data: bytes) -> Element:
    """Return the root of a file, in whatever encoding its header names.

    The files cite a DTD that defines HTML's named characters (``&eacute;``) and is not at hand; they are read as what
    they mean in HTML. Files that define entities themselves are refused: they can blow up to any size.

    Raises:
        BrokenXml: with line and column, if this is not well formed.
    """
    if b"<!ENTITY" in data:
        raise BrokenXml("it defines entities")
    parser = XMLParser()
    try:
        parser.feed(ENTITY.sub(_spelled_out, data))
        root: Element = parser.close()
    except ParseError as error:
        raise BrokenXml(str(error)) from None
    return root


def paragraphs(root: Element) -> list[str]:
    """Return the text of the ``<p>`` elements in order, markup inside dropped and white space made single.

    Empty paragraphs are left out.
    """
    texts = (" ".join("".join(element.itertext()).split()) for element in root.iter("p"))
    return [text for text in texts if text]


def _spelled_out(found: re.Match[bytes]) -> bytes:
    name = found.group(1)
    code = name2codepoint.get(name.decode())
    return found.group() if name in KNOWN or code is None else b"&#%d;" % code
