"""Markdown files are wrapped at 120 characters, except where Markdown cannot break a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.doc_pages import PAGES, PARSER, ROOT, name_of

LIMIT = 120
OTHERS = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *(page for folder in ("examples", "benchmarks/notes") for page in sorted((ROOT / folder).rglob("*.md"))),
]
# A list item, quote or bracket may hold the link.
SINGLE_LINK = re.compile(r"\s*(?:[-*>] |\d+\. )?[(*]*!?\[[^]]*\]\([^)\s]*\)[)*]*[.,;:]?")


def too_long(text: str) -> list[int]:
    """Return the numbers of lines over the limit that are no table row, no code, and no single link or image."""
    lines = text.splitlines()
    fixed: set[int] = set()
    for token in PARSER.parse(text):
        if token.type in ("fence", "code_block", "table_open"):
            fixed.update(range(*token.map))
    return [
        number + 1
        for number, line in enumerate(lines)
        if len(line) > LIMIT and number not in fixed and not SINGLE_LINK.fullmatch(line.rstrip())
    ]


@pytest.mark.parametrize("page", [*OTHERS, *PAGES], ids=name_of)
def test_lines_are_wrapped(page: Path) -> None:
    numbers = too_long(page.read_text(encoding="utf-8"))
    assert not numbers, f"{name_of(page)}: wrap at {LIMIT} characters: lines {', '.join(map(str, numbers))}"


def test_what_cannot_be_wrapped_may_be_longer() -> None:
    long = "word " * 30
    assert too_long(f"short\n\n{long}\n") == [3]
    assert too_long(f"- {long}\n") == [1]
    assert too_long(f"| a | b |\n|---|---|\n| {long} | c |\n") == []
    assert too_long(f"```sh\n{long}\n```\n\n    {long}\n") == []
    assert too_long(f"![{long}](image.svg)\n[text]({'a' * LIMIT}).\n") == []
    assert too_long(f"See [text]({'a' * LIMIT}) and more.\n") == [1]
