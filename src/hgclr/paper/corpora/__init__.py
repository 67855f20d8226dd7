"""Corpora that others publish, turned into data folders.

Everything here raises :class:`~hgclr.errors.InputError`, with file and place, for input that cannot be used. Below: the
XML of news items, as the New York Times and Reuters distribute it.
"""

from __future__ import annotations

import re
from html.entities import name2codepoint
from xml.etree.ElementTree import Element, ParseError, XMLParser

ENTITY = re.compile(rb"<!\[CDATA\[.*?\]\]>|&([A-Za-z][A-Za-z0-9]*);", re.DOTALL)
"""A named character, or a section in which an ampersand is only an ampersand."""


class BrokenXml(ValueError):  # noqa: N818 - never leaves this package: it becomes a document left out
    """A file that is no XML that we would read."""


def parse(data: bytes) -> Element:
    """Return the root of a file, in whatever encoding its header names.

    The files cite a DTD that defines HTML's named characters (``&eacute;``) and is not at hand; they are read as what
    they mean in HTML. Files that define entities themselves are refused: they can blow up to any size.

    Raises:
        BrokenXml: with line and column, if this is not well formed; if the header names an encoding that is not known.
    """
    if b"<!ENTITY" in data.replace(b"\0", b""):  # whether it is UTF-8 or UTF-16
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
    except (ParseError, LookupError, ValueError) as error:  # the latter two: an encoding that is unknown, or too odd
        raise BrokenXml(str(error)) from None
    return root


def paragraphs(root: Element) -> list[str]:
    """Return the text of the ``<p>`` elements in order, as `text_of` gives it; empty paragraphs are left out."""
    return [text for element in root.iter("p") if (text := text_of(element))]


def text_of(element: Element) -> str:
    """Return the text of an element, markup inside dropped and white space made single."""
    return " ".join("".join(element.itertext()).split())
