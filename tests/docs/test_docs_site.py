"""The site: links, navigation, the pages that are written from the program, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from command_pages import command_pages
from outside_links import LINK
from setting_page import settings_page

from hgclr.cli.app import app
from hgclr.config import method_fields
from hgclr.training.settings import DataSettings, ModelSettings, TrainingSettings
from support.doc_pages import DOCS, PAGES, ROOT, name_of

WRITTEN = {"reference/settings.md", *(f"reference/commands/{name}.md" for name in command_pages())}


class Assets(HTMLParser):
    """Collect what a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.found.add(values.get("src") or "")
        elif tag == "link":
            self.found.add(values.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` builds it: any warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    for page in {page.relative_to(DOCS).as_posix() for page in PAGES} | WRITTEN:
        assert (site / page).with_suffix(".html").is_file(), page
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assets = Assets()
        assets.feed(page.read_text(encoding="utf-8"))
        assert not [asset for asset in assets.found if re.match(r"(https?:)?//", asset)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


@pytest.mark.slow
def test_everything_can_be_searched_for(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    by_page = {entry["location"].partition("#")[0] for entry in entries}
    assert {page.removesuffix(".md") + ".html" for page in WRITTEN} <= by_page
    assert any("HierarchicalClassifier" in entry["title"] for entry in entries)


def test_all_pages_are_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = set(re.findall(r"[\w/-]+\.md", json.dumps(yaml.safe_load(text)["nav"])))
    assert pages >= {page.relative_to(DOCS).as_posix() for page in PAGES}
    assert pages >= WRITTEN & {"reference/settings.md", "reference/commands/index.md"}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Also for readers of the repository, who have no site; its build looks at anchors too."""
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        target = link["target"]
        if not re.match(r"[a-z]+:", target):
            path = (page.parent / target).resolve()
            written = path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix() in WRITTEN
            assert written or path.exists(), target


def every_command(command: Any, path: str) -> dict[str, Any]:
    below = {}
    for name, subcommand in getattr(command, "commands", {}).items():
        below |= {f"{path} {name}": subcommand} | every_command(subcommand, f"{path} {name}")
    return below


def test_every_command_and_option_is_in_the_reference() -> None:
    pages = command_pages()
    for path, command in every_command(typer.main.get_command(app), "hgclr").items():
        page = pages[path.split()[1]]
        section = re.split(rf"^##? {path}$", page, maxsplit=1, flags=re.MULTILINE)[1]
        section = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
        assert command.help.split("\n")[0].split(".")[0] in section.replace("&lt;", "<")
        for parameter in command.params:
            name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else "Arguments"
            assert name in section, f"{path}: {name}"
        assert "[bold]" not in section


def test_every_setting_is_in_the_reference() -> None:
    page = settings_page()
    fields = [name for section in (DataSettings, ModelSettings, TrainingSettings) for name in section.model_fields]
    for name in [*fields, *method_fields()]:
        assert f"\n`{name}`\n:   " in page, name
    assert "`encoder_config`" not in page
    entry = page[page.index("`classification_loss`") :].split("\n\n")[0]
    assert "default `document` · paper `sum` · published `mean`" in entry
