"""``hgclr settings``: what a run can be told."""

from __future__ import annotations

from typing import Annotated

import typer

from hgclr.cli.console import Console
from hgclr.cli.options import JsonFile
from hgclr.errors import InputError, require_extra

__all__ = ["settings"]


def settings(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD...]", help="Only settings whose names hold one of these: training, rate, …"),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List the settings of a run: names, values, defaults, meanings.

    They stand in the file of **hgclr train**, by sections, or after **--set**: --set training.epochs=4. Without a
    default, the recipe, the preset or the data folder decides.

    Example: **hgclr settings training**
    """
    require_extra("pydantic", extra="train", capability="The settings of training")
    from difflib import get_close_matches

    from rich.padding import Padding
    from rich.text import Text

    from hgclr.files import write_json
    from hgclr.training.setting_list import list_settings, written

    known = list_settings()
    chosen = [setting for setting in known if not words or any(word in setting.key for word in words)]
    if not chosen:
        near = get_close_matches(
            (words or [""])[0], [part for setting in known for part in (setting.name, setting.key)]
        )
        remedy = f"did you mean {near[0]!r}?" if near else "hgclr settings lists all of them"
        raise InputError(f"no setting has {' or '.join(map(repr, words or []))} in its name", remedy=remedy)
    if json_file is not None:
        write_json(json_file, [setting.to_json() for setting in chosen])
    console = Console(highlight=False)
    for setting in chosen:
        facts = [setting.kind]
        if setting.required:
            facts.append("required")
        elif setting.default is not None:
            facts.append(f"default {written(setting.default)}")
        facts += [f"{preset} {written(value)}" for preset, value in setting.presets.items()]
        console.print(Text.assemble((setting.key, "bold"), ("  " + " · ".join(facts), "dim")))
        console.print(Padding(Text(setting.meaning), (0, 0, 0, 4)))
