"""Reference pages of the commands, written from the program itself: a page for each command or group of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from hgclr.cli.app import app

__all__ = ["command_pages"]

PROGRAM = "hgclr"
# What the records of help end with, as in "Port to listen on.  [default: 8000; x>=0]".
FACTS = re.compile(r"  \[(?P<facts>(?:env var|default|required|x|[\d.]+<)[^\n]*)\]$")
BOLD = re.compile(r"\[/?bold\]")
EXAMPLE = re.compile(r"Example: (?P<bold>\**)(?P<line>.+?)(?P=bold)", re.DOTALL)

STREAMS = (
    "Results go to standard output, logs and progress bars to standard error. `--output` names the folder to write (for"
    " `hgclr predict`, a file or a folder). `--json FILE` writes the result as JSON, `--html FILE` as a page; `-` is"
    " standard output. Exit codes: 0 for success, 2 for a mistake in the input or the options. In that case one line on"
    " standard error says what is wrong, where, and how to fix it."
)


def command_pages() -> dict[str, str]:
    """Return Markdown by page name: ``index``, then the commands in the order of ``hgclr --help``."""
    program: Any = typer.main.get_command(app)
    panels: dict[str, list[tuple[str, str]]] = {}
    pages = {}
    for name, command in program.commands.items():
        panels.setdefault(command.rich_help_panel, []).append((name, _first_sentence(command)))
        pages[name] = _page(f"{PROGRAM} {name}", command)
    return {"index": _overview(program, panels)} | pages


def _overview(program: Any, panels: dict[str, list[tuple[str, str]]]) -> str:
    parts = ["# Commands", _prose(program.help), "These pages are generated from the program."]
    for panel, rows in panels.items():
        lines = [f"| [`{PROGRAM} {name}`]({name}.md) | {text} |" for name, text in rows]
        parts += [f"## {panel}", "\n".join(["| command | purpose |", "|---|---|", *lines])]
    parts += ["## Every command", *_parameters(program, PROGRAM), STREAMS]
    return "\n\n".join(parts) + "\n"


def _page(path: str, command: Any) -> str:
    parts = [f"# {path}", *_description(path, command)]
    for below, subcommand in _leaves(path, command):
        parts += [f"## {below}", *_description(below, subcommand)]
    return "\n\n".join(parts) + "\n"


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield all commands below a group, and groups within it, with what one types to call them."""
    for name, subcommand in getattr(command, "commands", {}).items():
        yield f"{path} {name}", subcommand
        yield from _leaves(f"{path} {name}", subcommand)


def _description(path: str, command: Any) -> list[str]:
    pieces = command.collect_usage_pieces(typer.Context(command, info_name=path))
    # {FILE...}... and [[WORD...]]...: typer puts its own signs around metavars that have them already.
    usage = [re.sub(r"^\[(\[.*\])\]\.\.\.$", r"\1", re.sub(r"[{}]", "", piece)) for piece in pieces]
    usage = [piece.replace("......", "...") for piece in usage]
    summary, *more = _prose(command.help).split("\n\n", 1)
    return [summary, f"```text\n{path} {' '.join(usage)}\n```", *more, *_parameters(command, path)]


def _parameters(command: Any, path: str) -> list[str]:
    """Return arguments and options as definition lists, one for each panel."""
    context = typer.Context(command, info_name=path)
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or record[0] == "--help":
            continue
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panels.setdefault(parameter.rich_help_panel or kind, []).append(_definition(*record))
    return [f"**{panel}**\n\n" + "\n\n".join(entries) for panel, entries in panels.items()]


def _definition(names: str, text: str) -> str:
    found = FACTS.search(text)
    facts = [_fact(fact) for fact in found["facts"].split("; ")] if found else []
    text = _safe(text[: found.start()] if found else text)
    names = re.sub(r" <([\w\[\]]+)(?: range)?>", r" <\1>", names)
    return f"`{names}`\n:   {text}" + (f"\n    <span class='facts'>{' · '.join(facts)}</span>" if facts else "")


def _fact(fact: str) -> str:
    name, colon, value = fact.partition(": ")
    name = {"env var": "environment"}.get(name, name)
    return f"{name} `{value}`" if colon else _safe(fact.replace("<=", " ≤ ").replace(">=", " ≥ "))


def _first_sentence(command: Any) -> str:
    return _safe(" ".join(command.help.split("\n\n")[0].split()))


def _prose(text: str) -> str:
    """Return help in Markdown, with its examples as code to copy."""
    parts = [part if part.startswith("    ") else _safe(part.strip()) for part in text.split("\n\n")]
    for number, part in enumerate(parts):
        if found := EXAMPLE.fullmatch(part.replace("&lt;", "<")):
            parts[number] = f"```sh\n{' '.join(found['line'].split())}\n```"
    return "\n\n".join(parts)


def _safe(text: str) -> str:
    """Return help as Markdown: a bold word of rich's markup, and < that does not begin HTML."""
    return BOLD.sub("**", text.replace("<", "&lt;"))
