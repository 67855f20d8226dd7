"""Links from a page to files of the repository that are no pages: the site shows their path instead."""

from __future__ import annotations

import posixpath
import re

__all__ = ["LINK", "show_paths"]

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)]*)?\)")


def show_paths(markdown: str, page: str) -> str:
    """Replace links that leave the folder ``docs`` by their text and the path from the repository's root.

    Args:
        markdown: the text of a page.
        page: its path in ``docs``, such as ``guides/data.md``.

    Example:
        >>> show_paths("see [the runs](../../benchmarks/results/runs.json)", "guides/export.md")
        'see the runs (`benchmarks/results/runs.json`)'
    """

    def path_of(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:", target):
            return link[0]
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if place.startswith("docs/"):
            return link[0]
        text = link["text"].strip("`")
        return f"`{place}`" if place.endswith(text) else f"{text} (`{place}`)"

    return LINK.sub(path_of, markdown)
