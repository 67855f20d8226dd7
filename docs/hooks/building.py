"""What MkDocs calls while it builds: pages that are written from the program, and links that leave the docs."""

from __future__ import annotations

import re
from typing import Any

from command_pages import command_pages
from mkdocs.structure.files import File, Files
from outside_links import show_paths
from setting_page import settings_page

__all__ = ["on_config", "on_files", "on_page_markdown"]

COMMANDS = "reference/commands"
SETTINGS = "reference/settings.md"

INDEX = "reference/index.md"
WRITTEN_FOR = {"commands": "commands/index.md", "settings-of-a-run": "settings.md"}
"""Headings of that page, which pages in the repository link to, and the written pages that the site has for them."""

written: dict[str, str] = {}
"""Markdown of the pages that are not in the repository, by path."""


def on_config(config: Any) -> Any:
    """Write the pages, and put those of the commands where the navigation names their overview."""
    commands = command_pages()
    written[SETTINGS] = settings_page()
    written.update({f"{COMMANDS}/{name}.md": text for name, text in commands.items()})
    listed = [{f"hgclr {name}" if name != "index" else "Overview": f"{COMMANDS}/{name}.md"} for name in commands]
    config.nav = _with_commands(config.nav, listed)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the written pages to those of the folder."""
    for path, text in written.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links to files outside the docs by paths, and links to generated pages by their place in the site."""
    here = page.file.src_uri == INDEX
    file = r"(?:index\.md)?" if here else r"index\.md"
    folder = "" if here else r"(?:[\w./-]*/)?"
    for anchor, target in WRITTEN_FOR.items():
        markdown = re.sub(rf"\]\(({folder}){file}#{anchor}\)", rf"](\g<1>{target})", markdown)
    return show_paths(markdown, page.file.src_uri)


def _with_commands(entries: Any, commands: list[dict[str, str]]) -> Any:
    """Return the navigation with the list of commands in the place of their overview."""
    if isinstance(entries, list):
        return [_with_commands(entry, commands) for entry in entries]
    if isinstance(entries, dict):
        return {title: _with_commands(below, commands) for title, below in entries.items()}
    return commands if entries == f"{COMMANDS}/index.md" else entries
