"""The XML of news items: characters, encodings, broken files."""

from __future__ import annotations

from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.paper.corpora import BrokenXml, paragraphs, parse

NITF = '<!DOCTYPE nitf SYSTEM "http://www.nitf.org/IPTC/NITF/3.3/specification/dtd/nitf-3-3.dtd">'


@pytest.mark.parametrize("doctype", [NITF, ""], ids=["NITF names a DTD", "NewsML names none"])
def test_named_and_numeric_characters(doctype: str) -> None:
    data = f"{doctype}<p>Caf&eacute; &mdash; 5 &lt; 6 &amp; &#233;&#xE9; &quot;&apos; &amp;eacute;</p>"
    assert parse(data.encode()).text == "Café — 5 < 6 & éé \"' &eacute;"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"no element found: line 1, column 0"),
        (b"<nitf>\n<p>one</nitf>", r"mismatched tag: line 2, column 8"),
        (b"<nitf><p>cut sh", r"no element found: line 1, column 15"),
        (b"<p>\xe9</p>", r"not well-formed \(invalid token\): line 1, column 3"),
        (b"<p>&nosuchthing;</p>", r"undefined entity: line 1, column 3"),
        (NITF.encode() + b"<p>&nosuchthing;</p>", r"undefined entity &nosuchthing;: line 1"),
        (b'<?xml version="1.0" encoding="martian"?><p>x</p>', r"unknown encoding: martian"),
        (b'<?xml version="1.0" encoding="shift_jis"?><p>x</p>', r"multi-byte encodings are not supported"),
    ],
)
def test_broken_files(data: bytes, reason: str) -> None:
    with pytest.raises(BrokenXml, match=f"^{reason}"):
        parse(data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_files_that_define_entities_are_refused(encoding: str) -> None:
    data = '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><p>&b;</p>'.encode(encoding)
    with pytest.raises(BrokenXml, match="it defines entities"):
        parse(data)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="￾￿"))))
def test_text_comes_back_as_it_was_escaped(texts: list[str]) -> None:
    data = "<nitf>" + "".join(f"<p>{escape(text)}</p>" for text in texts) + "</nitf>"
    expected = [" ".join(text.split()) for text in texts]
    assert paragraphs(parse(data.encode())) == [text for text in expected if text]
