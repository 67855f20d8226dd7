"""Commands that the docs and the README show exist, with their options, and take the arguments they are shown with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hgclr.cli.app import app
from support.doc_pages import DOCS, PAGES, ROOT, blocks, commands, inline_code, name_of

PROGRAM: Any = typer.main.get_command(app)
SHELL = ("", "sh")
# Options of other programs, which pages name without theirs.
FOREIGN = {"--cap-drop", "--read-only", "--tmpfs"}


def find(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words call, and the words behind it."""
    command, rest = PROGRAM, words[1:]
    while hasattr(command, "commands") and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    if rest and not is_placeholder(rest[0]) and (default := getattr(command, "default", None)):
        command = command.commands[default]
    return command, rest


def options(command: Any) -> set[str]:
    """Return the options of a command and of all below it."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *(options(below) for below in getattr(command, "commands", {}).values()))


def is_placeholder(word: str) -> bool:
    """Tell the NAME in `hgclr data prepare NAME` from a command that does not exist."""
    return word.startswith("-") or word == "…" or word.isupper()


def check(words: list[str]) -> None:
    """Check the names in a call that may be incomplete, as those in prose are."""
    command, rest = find(words)
    if hasattr(command, "commands") and rest:
        assert is_placeholder(rest[0]), f"there is no command {' '.join(words[: 1 - len(rest) or None])!r}"
    named = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert named <= options(command), f"{' '.join(words)}: there is no {sorted(named - options(command))}"


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield place and words of every call in the blocks of a page."""
    for block in blocks(page):
        if block.language in SHELL:
            yield from ((f"{name_of(page)}:{block.line}", words) for words in commands(block.text))


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_commands_in_blocks_can_be_given_as_they_are(page: Path) -> None:
    for place, words in shown(page):
        try:
            check(words)
            command, rest = find(words)
            if "…" not in rest:
                command.make_context(" ".join(words), list(rest))
        except (Exception, SystemExit) as error:
            pytest.fail(f"{place}: {' '.join(words)}: {error}")


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_commands_in_prose_exist(page: Path) -> None:
    for code in inline_code(page):
        for words in commands(code.replace("'", "") if code.count("'") % 2 else code):
            check(words)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_options_in_prose_exist(page: Path) -> None:
    known = options(PROGRAM) | FOREIGN
    for code in inline_code(page):
        if code.startswith("--"):
            named = set(re.findall(r"(?<!\S)--[a-z][\w-]*", code))
            assert named <= known, f"no command has {sorted(named - known)}"


def test_enough_is_found() -> None:
    """The checks above see the commands at all."""
    calls = [words for page in PAGES for _, words in shown(page)]
    assert len(calls) > 50
    assert ["hgclr", "calibrate", "runs/first/model", "my-data", "--risk", "0.05"] in calls
    assert any("hgclr taxonomy diff" in code for code in inline_code(DOCS / "guides" / "changing-trees.md"))
