"""The pages of the docs, taken apart: blocks of code, commands, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+?) -->")
PARSER = MarkdownIt().enable("table")


@dataclass(frozen=True)
class Block:
    """A block of code: its language (empty if it is indented), its file name if it has one, and its first line."""

    language: str
    title: str
    text: str
    line: int
    not_run: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page; a comment just above one can say that it is not run, and why."""
    found, reason = [], None
    for token in PARSER.parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            language, _, rest = token.info.partition(" ")
            title = re.search(r'title="(.+?)"', rest)
            found.append(
                Block(
                    language, title[1] if title else "", token.content, token.map[0] + token.type.count("fence"), reason
                )
            )
        comment = NOT_RUN.search(token.content) if token.type == "html_block" else None
        reason = comment["reason"] if comment else None
    return found


def inline_code(page: Path) -> Iterator[str]:
    """Yield what stands between backticks in the prose and the tables of a page."""
    for token in PARSER.parse(page.read_text(encoding="utf-8")):
        yield from (child.content for child in token.children or [] if child.type == "code_inline")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every call of hgclr in shell code, up to a comment, a pipe or a redirection."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if "hgclr" not in line:
            continue
        words = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
        words.whitespace_split = True
        call: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("|>;&"):
                if call[:1] == ["hgclr"]:
                    yield call
                call = []
            else:
                call.append(word)
