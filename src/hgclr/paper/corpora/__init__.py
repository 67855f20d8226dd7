"""Conversion of published corpora to data folders; below, the XML of news items of the New York Times and Reuters.

Unusable input raises an :class:`~hgclr.errors.InputError` with file and line.
"""

from __future__ import annotations

import re
from html.entities import name2codepoint
from xml.etree.ElementTree import Element, ParseError, XMLParser

ENTITY = re.compile(rb"<!\[CDATA\[.*?\]\]>|&([A-Za-z][A-Za-z0-9]*);", re.DOTALL)
"""A named character, or a CDATA section, in which ampersands have no meaning."""


class BrokenXml(ValueError):  # noqa: N818 - stays in this package: such documents are skipped
    """A file that is not well-formed XML, or not safe to read."""


def parse(data: bytes) -> Element:
    """Return the root of a file, in the encoding that its header names.

    The files refer to a DTD that defines HTML's named characters (``&eacute;``) and is not available; they are read as
    in HTML. Files that define entities are rejected, because entities can expand to any size.

    Raises:
        BrokenXml: with line and column, if the XML is not well formed, or its encoding is unknown.
    """
    if b"<!ENTITY" in data.replace(b"\0", b""):  # in UTF-8 or UTF-16
        raise BrokenXml("it defines entities")

    def spelled_out(found: re.Match[bytes]) -> bytes:
        """Return the numeric form of a named character of HTML, and anything else unchanged."""
        name = found.group(1)
        code = None if name is None else name2codepoint.get(name.decode())
        return found.group() if code is None else b"&#%d;" % code

    parser = XMLParser()
    try:
        parser.feed(ENTITY.sub(spelled_out, data))
        root: Element = parser.close()
    except (ParseError, LookupError, ValueError) as error:  # the latter two: a bad encoding
        raise BrokenXml(str(error)) from None
    return root


def paragraphs(root: Element) -> list[str]:
    """Return the texts of the non-empty ``<p>`` elements in order; see `text_of`."""
    return [text for element in root.iter("p") if (text := text_of(element))]


def text_of(element: Element) -> str:
    """Return the text of an element without markup, with white space collapsed."""
    return " ".join("".join(element.itertext()).split())
